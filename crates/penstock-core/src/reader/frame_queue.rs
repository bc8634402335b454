//! What is between a reader's worker and its callers: frames in order, at most so many of them. Checked with loom.
//!
//! In order, the worker waits for room before it begins a frame, so that nothing is ever dropped. Live, from the first
//! [`newest`](FrameQueue::newest) to the next [`next`](FrameQueue::next), it never waits: the oldest frame makes room.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::error::Error;
use crate::sync::ticket::{Completion, Ticket, ticket};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, lock, passed, wait_until};

/// What one who asks for a frame gets: none if there was none in time, and at the end always the same.
pub(crate) type Answer<T> = Option<Result<Option<T>, Error>>;

pub(crate) struct FrameQueue<T> {
    state: Mutex<State<T>>,
    /// There is something to take, an end, or another manner.
    filled: Condvar,
    /// There is room, or none is needed.
    room: Condvar,
    /// Spares the worker the lock while nobody wants to know what is stale.
    is_going_live: AtomicBool,
}

struct State<T> {
    depth: usize,
    waiting: VecDeque<T>,
    /// How many came in, those that were dropped included.
    put: u64,
    dropped: u64,
    manner: Manner,
    end: Option<Result<(), Error>>,
    is_closed: bool,
    /// How many are asleep, so that nobody pays for waking no one (futex(2) is a system call).
    sleeping_takers: usize,
    sleeping_putters: usize,
    /// Ends when a `next` would not wait. One for all who ask, so that those who give up leave nothing behind.
    ready: Option<(Completion, Ticket)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    InOrder,
    /// The worker has yet to say how much is stale.
    GoingLive,
    /// Frames before that number are stale.
    Live {
        fresh_from: u64,
    },
}

impl<T> FrameQueue<T> {
    pub(crate) fn new(depth: usize) -> Self {
        let state = State {
            depth,
            waiting: VecDeque::new(),
            put: 0,
            dropped: 0,
            manner: Manner::InOrder,
            end: None,
            is_closed: false,
            sleeping_takers: 0,
            sleeping_putters: 0,
            ready: None,
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            room: Condvar::new(),
            is_going_live: AtomicBool::new(false),
        }
    }

    /// The worker's question before each frame: waits until there is room for it. False when nobody wants more.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut state = lock(&self.state);
        while state.is_full() && !state.is_closed {
            state.sleeping_putters += 1;
            state = wait_until(&self.room, state, None);
            state.sleeping_putters -= 1;
        }
        !state.is_closed
    }

    /// Hands over the next frame. Gives one back that nobody will have: the oldest that had to make room, or this one.
    pub(crate) fn put(&self, frame: T) -> Option<T> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Some(frame);
        }
        state.put += 1;
        state.waiting.push_back(frame);
        let is_over = state.manner != Manner::InOrder && state.waiting.len() > state.depth;
        let dropped = if is_over { state.waiting.pop_front() } else { None };
        state.dropped += u64::from(is_over);
        self.wake_takers(state);
        dropped
    }

    /// Whether the worker is to say what is stale: see [`go_live`](Self::go_live).
    pub(crate) fn is_going_live(&self) -> bool {
        // Acquire: partner of the store in `newest`.
        self.is_going_live.load(Ordering::Acquire)
    }

    /// The worker's word: that many frames after those handed over are as good as here, and so are stale as well.
    pub(crate) fn go_live(&self, stale: u64) {
        let mut state = lock(&self.state);
        self.is_going_live.store(false, Ordering::Relaxed); // the lock orders it
        if state.manner == Manner::GoingLive {
            state.manner = Manner::Live { fresh_from: state.put + stale };
        }
    }

    /// The worker's last word, of which only the first counts: there will be no more frames, and why.
    pub(crate) fn end(&self, outcome: Result<(), Error>) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(outcome);
        self.wake_takers(state);
    }

    /// Takes the oldest frame, waiting for it until the deadline.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Answer<T> {
        let mut state = lock(&self.state);
        state.manner = Manner::InOrder;
        loop {
            if let Some(oldest) = state.waiting.pop_front() {
                self.wake_putter(state);
                return Some(Ok(Some(oldest)));
            }
            if state.is_over() {
                return state.last_word();
            }
            if passed(deadline) {
                return None;
            }
            state = self.sleep(state, deadline);
        }
    }

    /// Takes the newest frame, waiting until the deadline for one that is not stale, and drops the others. `ring` wakes the worker
    /// wherever it waits.
    pub(crate) fn newest(&self, deadline: Option<Instant>, ring: impl Fn()) -> Answer<T> {
        let mut state = lock(&self.state);
        if state.manner == Manner::InOrder && !state.is_over() {
            state.manner = Manner::GoingLive;
            // Release: partner of the load in `is_going_live`.
            self.is_going_live.store(true, Ordering::Release);
            self.wake_putter(state);
            ring();
            state = lock(&self.state);
        }
        loop {
            if state.has_fresh() {
                let newest = state.waiting.pop_back();
                let stale = mem::take(&mut state.waiting);
                state.dropped += stale.len() as u64;
                drop(state);
                drop(stale); // not under the lock: it gives memory back
                return Some(Ok(newest));
            }
            if state.is_over() {
                return state.last_word();
            }
            if passed(deadline) {
                return None;
            }
            state = self.sleep(state, deadline);
        }
    }

    /// Has everybody leave, and drops what is in it.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let dropped = mem::take(&mut state.waiting);
        self.room.notify_all();
        self.wake_takers(state);
        drop(dropped); // not under the lock
    }

    /// Ends when a [`next`](Self::next) would not wait.
    pub(crate) fn ready(&self) -> Ticket {
        let mut state = lock(&self.state);
        if state.is_ready() {
            let (completion, ready) = ticket(0);
            drop(state);
            completion.end(Ok(()));
            return ready;
        }
        state.ready.get_or_insert_with(|| ticket(0)).1.clone()
    }

    /// How many frames wait, and how many were dropped.
    pub(crate) fn load(&self) -> (usize, u64) {
        let state = lock(&self.state);
        (state.waiting.len(), state.dropped)
    }

    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State<T>>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State<T>> {
        state.sleeping_takers += 1;
        let mut state = wait_until(&self.filled, state, deadline);
        state.sleeping_takers -= 1;
        state
    }

    /// Wakes all: some may wait for any frame, and others for a fresh one.
    fn wake_takers(&self, mut state: MutexGuard<'_, State<T>>) {
        let ready = state.ready.take();
        let sleeps = state.sleeping_takers > 0;
        drop(state);
        if sleeps {
            self.filled.notify_all();
        }
        if let Some((completion, _)) = ready {
            completion.end(Ok(()));
        }
    }

    fn wake_putter(&self, state: MutexGuard<'_, State<T>>) {
        let sleeps = state.sleeping_putters > 0;
        drop(state);
        if sleeps {
            self.room.notify_all();
        }
    }
}

impl<T> State<T> {
    fn is_full(&self) -> bool {
        self.manner == Manner::InOrder && self.waiting.len() >= self.depth
    }

    /// Whether no more frames will come.
    fn is_over(&self) -> bool {
        self.is_closed || self.end.is_some()
    }

    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() || self.is_over()
    }

    /// Whether the newest frame is one for `newest`. When no more will come, or another caller reads in order meanwhile, it is.
    fn has_fresh(&self) -> bool {
        let is_fresh = match self.manner {
            Manner::InOrder => true,
            Manner::GoingLive => false,
            Manner::Live { fresh_from } => self.put > fresh_from,
        };
        !self.waiting.is_empty() && (is_fresh || self.is_over())
    }

    /// What all get who ask when nothing is left.
    fn last_word(&self) -> Answer<T> {
        if self.is_closed { Some(Err(Error::Closed)) } else { self.end.clone().map(|end| end.map(|()| None)) }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::sync::Arc;

    /// What a worker does with so many frames, of which none is stale.
    fn work(queue: &FrameQueue<u64>, frames: u64) {
        for frame in 0..frames {
            if !queue.wait_for_room() {
                return;
            }
            if queue.is_going_live() {
                queue.go_live(0);
            }
            queue.put(frame);
        }
        queue.end(Ok(()));
    }

    fn worker(queue: &Arc<FrameQueue<u64>>, frames: u64) -> thread::JoinHandle<()> {
        let queue = Arc::clone(queue);
        thread::spawn(move || work(&queue, frames))
    }

    #[test]
    fn all_frames_come_in_order_and_then_the_end() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1));
            let worker = worker(&queue, 3);
            for frame in 0..3 {
                assert_eq!(queue.next(None), Some(Ok(Some(frame))));
            }
            assert_eq!(queue.next(None), Some(Ok(None)));
            worker.join().unwrap();
            assert_eq!(queue.load(), (0, 0));
        });
    }

    #[test]
    fn of_two_callers_one_gets_the_frame_and_the_other_the_end() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1));
            let other = thread::spawn({
                let queue = Arc::clone(&queue);
                move || queue.next(None)
            });
            let worker = worker(&queue, 1);
            let mut got = [queue.next(None), other.join().unwrap()];
            got.sort_by_key(|answer| *answer == Some(Ok(None)));
            assert_eq!(got, [Some(Ok(Some(0))), Some(Ok(None))]);
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_close_reaches_caller_and_worker() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1));
            let worker = worker(&queue, 2); // for ever, if it were not woken from its wait for room
            let caller = thread::spawn({
                let queue = Arc::clone(&queue);
                move || queue.next(None)
            });
            queue.close();
            assert_ne!(caller.join().unwrap(), Some(Ok(None)), "that would be a stream that has ended");
            worker.join().unwrap();
            assert_eq!(queue.next(None), Some(Err(Error::Closed)));
            assert_eq!(queue.load().0, 0);
        });
    }

    /// A worker that waits for its source, which has nothing until it was asked what is stale.
    #[test]
    fn a_worker_that_waits_for_its_source_is_asked_what_is_stale() {
        loom::model(|| {
            let shared = Arc::new((FrameQueue::new(1), Mutex::new(false), Condvar::new()));
            let worker = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (queue, is_rung, waker) = &*shared;
                    while !queue.is_going_live() {
                        let mut rung = lock(is_rung);
                        while !*rung {
                            rung = waker.wait(rung).unwrap(); // for ever, if the wake had come before the question
                        }
                        *rung = false;
                    }
                    queue.go_live(1);
                    (0..2).for_each(|frame| assert_eq!(queue.put(frame), (frame == 1).then_some(0)));
                    queue.end(Ok(()));
                }
            });
            let (queue, is_rung, waker) = &*shared;
            let ring = || {
                *lock(is_rung) = true;
                waker.notify_one();
            };
            assert_eq!(queue.newest(None, ring), Some(Ok(Some(1))));
            worker.join().unwrap();
            assert_eq!(queue.load(), (0, 1));
        });
    }

    #[test]
    fn a_worker_that_waits_for_room_goes_on_when_the_newest_is_wanted() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1));
            let worker = worker(&queue, 2);
            let mut last = None;
            while let Some(Ok(Some(frame))) = queue.newest(None, || {}) {
                assert!(last < Some(frame));
                last = Some(frame);
            }
            assert_eq!(last, Some(1), "the last one is nobody's but the caller's");
            worker.join().unwrap();
        });
    }

    #[test]
    fn who_watches_is_told_of_a_frame() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1));
            let worker = worker(&queue, 1);
            assert_eq!(queue.ready().wait(), Ok(())); // for ever, if it were forgotten
            assert_eq!(queue.next(Some(Instant::now())), Some(Ok(Some(0))));
            worker.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn now() -> Option<Instant> {
        Some(Instant::now())
    }

    #[test]
    fn live_the_oldest_makes_room_and_nothing_else_is_dropped() {
        let queue = FrameQueue::new(2);
        assert_eq!(queue.newest(now(), || {}), None);
        assert!(queue.is_going_live());
        queue.go_live(1);
        let dropped: Vec<_> = (0..4).map(|frame| queue.put(frame)).collect();
        assert_eq!(dropped, [None, None, Some(0), Some(1)]);
        assert_eq!(queue.next(now()), Some(Ok(Some(2))));
        assert_eq!(queue.next(now()), Some(Ok(Some(3))));
        assert_eq!(queue.load(), (0, 2));
    }

    #[test]
    fn what_was_there_before_is_stale_unless_it_is_the_last() {
        let queue = FrameQueue::new(4);
        queue.put('a');
        queue.put('b');
        assert_eq!(queue.newest(now(), || {}), None);
        queue.go_live(1);
        queue.put('c');
        assert_eq!(queue.newest(now(), || {}), None, "it was in the pipe already");
        queue.end(Err(Error::Closed));
        assert_eq!(queue.newest(now(), || {}), Some(Ok(Some('c'))));
        assert_eq!(queue.newest(now(), || {}), Some(Err(Error::Closed)));
        assert_eq!(queue.load(), (0, 2));
    }

    #[test]
    fn the_last_word_is_the_same_each_time() {
        let queue = FrameQueue::<u8>::new(1);
        queue.put(1);
        queue.end(Err(Error::Forked));
        queue.end(Ok(()));
        assert_eq!(queue.next(now()), Some(Ok(Some(1))));
        assert_eq!(queue.next(now()), Some(Err(Error::Forked)));
        assert_eq!(queue.newest(now(), || {}), Some(Err(Error::Forked)));
        queue.close();
        assert_eq!(queue.next(now()), Some(Err(Error::Closed)));
        assert_eq!(queue.put(2), Some(2));
    }

    #[test]
    fn all_who_watch_share_one_ticket() {
        let queue = FrameQueue::new(1);
        let (first, second) = (queue.ready(), queue.ready());
        assert_eq!(first.outcome(), None);
        queue.put(1);
        assert_eq!((first.outcome(), second.outcome()), (Some(Ok(())), Some(Ok(()))));
        assert_eq!(queue.ready().outcome(), Some(Ok(())));
    }
}
