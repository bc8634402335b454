//! The queue between a reader's worker and its callers, apart from the pipeline's because its worker asks for room before
//! it reads, and because each call decides whether the worker waits or drops the oldest frame. Checked with loom.
//!
//! In order, the worker waits for room before it begins a frame, so that no frame is dropped. Small frames come several
//! together, and a worker that waits is then woken once there is room for several. After
//! [`newest`](FrameQueue::newest), until the next [`next`](FrameQueue::next), it never waits: the oldest frame is
//! dropped for a new one.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::error::Error;
use crate::sync::monitor::Monitor;
use crate::sync::monitor::Side::{Putters, Takers};
use crate::sync::monitor::Wake::{All, Nobody};
use crate::sync::ticket::Ticket;
use crate::sync::{AtomicBool, Ordering, passed};

/// The answer to a request: none if no frame came in time. At the end all requests get the same answer.
pub(crate) type Answer<T> = Option<Result<Option<T>, Error>>;

pub(crate) struct FrameQueue<T> {
    monitor: Monitor<State<T>>,
    /// Lets the worker skip the lock while nobody asks what is stale.
    is_going_live: AtomicBool,
}

struct State<T> {
    depth: usize,
    /// A worker that waits is woken when there is room for so many.
    wake_room: usize,
    waiting: VecDeque<T>,
    /// Frames put in, the dropped ones included.
    put: u64,
    dropped: u64,
    policy: Policy,
    end: Option<Result<(), Error>>,
    is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    InOrder,
    /// The worker has yet to say how many frames are stale.
    GoingLive,
    /// Frames before that number are stale.
    Live {
        fresh_from: u64,
    },
}

impl<T> FrameQueue<T> {
    /// A queue of `depth` frames, of which the worker puts in at most `together` at once.
    pub(crate) fn new(depth: usize, together: usize) -> Self {
        let state = State {
            depth,
            wake_room: together.min(depth.div_ceil(2)), // not all of it, so that the caller still has frames meanwhile
            waiting: VecDeque::new(),
            put: 0,
            dropped: 0,
            policy: Policy::InOrder,
            end: None,
            is_closed: false,
        };
        Self { monitor: Monitor::new(state), is_going_live: AtomicBool::new(false) }
    }

    /// Called by the worker before it begins a frame: waits until there is room. Returns for how many; 0 when no frame is
    /// wanted any more.
    pub(crate) fn wait_for_room(&self) -> usize {
        let mut state = self.monitor.lock();
        while state.room() == 0 && !state.is_closed {
            state = state.wait(Putters, None);
        }
        if state.is_closed { 0 } else { state.room() }
    }

    /// Called by the worker: puts the next frames in. Returns those that nobody will get: the oldest, dropped to make room, or
    /// these.
    pub(crate) fn put(&self, frames: Vec<T>) -> Vec<T> {
        let mut state = self.monitor.lock();
        if state.is_closed {
            return frames;
        }
        state.put += frames.len() as u64;
        state.waiting.extend(frames);
        let most = if state.policy == Policy::InOrder { usize::MAX } else { state.depth };
        let over = state.waiting.len().saturating_sub(most);
        let dropped = state.waiting.drain(..over).collect();
        state.dropped += over as u64;
        state.wake(All, Nobody); // some may wait for any frame, others for a fresh one
        dropped
    }

    /// Whether the worker must say what is stale: see [`go_live`](Self::go_live).
    pub(crate) fn is_going_live(&self) -> bool {
        // Acquire: pairs with the store in `newest`.
        self.is_going_live.load(Ordering::Acquire)
    }

    /// Called by the worker: so many frames after those put in have come already, and so are stale as well.
    pub(crate) fn go_live(&self, stale: u64) {
        let mut state = self.monitor.lock();
        self.is_going_live.store(false, Ordering::Relaxed); // the lock orders it
        if state.policy == Policy::GoingLive {
            state.policy = Policy::Live { fresh_from: state.put + stale };
        }
    }

    /// Called by the worker: no more frames will come, for this reason. Only the first call counts.
    pub(crate) fn end(&self, outcome: Result<(), Error>) {
        let mut state = self.monitor.lock();
        state.end.get_or_insert(outcome);
        state.wake(All, Nobody);
    }

    /// Takes the oldest frame. Waits for it until the deadline.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Answer<T> {
        let mut state = self.monitor.lock();
        state.policy = Policy::InOrder;
        loop {
            if let Some(oldest) = state.waiting.pop_front() {
                let wakes = if state.room() >= state.wake_room { All } else { Nobody };
                state.wake(Nobody, wakes);
                return Some(Ok(Some(oldest)));
            }
            if state.is_over() {
                return state.answer_at_end();
            }
            if passed(deadline) {
                return None;
            }
            state = state.wait(Takers, deadline);
        }
    }

    /// Takes the newest frame and drops the others. Waits until the deadline for one that is not stale. `wake` wakes
    /// the worker from any wait.
    pub(crate) fn newest(&self, deadline: Option<Instant>, wake: impl Fn()) -> Answer<T> {
        let mut state = self.monitor.lock();
        if state.policy == Policy::InOrder && !state.is_over() {
            state.policy = Policy::GoingLive;
            // Release: pairs with the load in `is_going_live`.
            self.is_going_live.store(true, Ordering::Release);
            state.wake(Nobody, All);
            wake();
            state = self.monitor.lock();
        }
        loop {
            if state.has_fresh() {
                let newest = state.waiting.pop_back();
                let stale = mem::take(&mut state.waiting);
                state.dropped += stale.len() as u64;
                state.wake(Nobody, All); // the worker waits for room if another caller reads in order
                drop(stale); // not under the lock: it gives memory back
                return Some(Ok(newest));
            }
            if state.is_over() {
                return state.answer_at_end();
            }
            if passed(deadline) {
                return None;
            }
            state = state.wait(Takers, deadline);
        }
    }

    /// Makes everybody return, and drops the frames.
    pub(crate) fn close(&self) {
        let mut state = self.monitor.lock();
        state.is_closed = true;
        let dropped = mem::take(&mut state.waiting);
        state.wake(All, All);
        drop(dropped); // not under the lock
    }

    /// Ends when a [`next`](Self::next) would not wait.
    pub(crate) fn ready(&self) -> Ticket {
        let mut state = self.monitor.lock();
        let later = (!state.is_ready()).then(|| state.ready(Takers));
        drop(state);
        later.unwrap_or_else(|| Ticket::ended(Ok(())))
    }

    /// The number of frames that wait, and of those that were dropped.
    pub(crate) fn load(&self) -> (usize, u64) {
        let state = self.monitor.lock();
        (state.waiting.len(), state.dropped)
    }
}

impl<T> State<T> {
    /// For how many frames there is room: all that fit, while the oldest make room for new ones.
    fn room(&self) -> usize {
        let waiting = if self.policy == Policy::InOrder { self.waiting.len() } else { 0 };
        self.depth.saturating_sub(waiting)
    }

    /// Whether no more frames will come.
    fn is_over(&self) -> bool {
        self.is_closed || self.end.is_some()
    }

    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() || self.is_over()
    }

    /// Whether the newest frame is fresh enough for `newest`. Always true at the end, and while another caller reads in
    /// order.
    fn has_fresh(&self) -> bool {
        let is_fresh = match self.policy {
            Policy::InOrder => true,
            Policy::GoingLive => false,
            Policy::Live { fresh_from } => self.put > fresh_from,
        };
        !self.waiting.is_empty() && (is_fresh || self.is_over())
    }

    /// The answer when nothing is left.
    fn answer_at_end(&self) -> Answer<T> {
        if self.is_closed { Some(Err(Error::Closed)) } else { self.end.clone().map(|end| end.map(|()| None)) }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, Condvar, Mutex, lock, spawn_with, wait_until};

    /// What a worker does with so many frames, of which none is stale.
    fn work(queue: &FrameQueue<u64>, frames: u64) {
        for frame in 0..frames {
            if queue.wait_for_room() == 0 {
                return;
            }
            if queue.is_going_live() {
                queue.go_live(0);
            }
            queue.put(vec![frame]);
        }
        queue.end(Ok(()));
    }

    fn worker(queue: &Arc<FrameQueue<u64>>, frames: u64) -> thread::JoinHandle<()> {
        spawn_with(queue, move |queue| work(queue, frames))
    }

    #[test]
    fn all_frames_come_in_order_and_then_the_end() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
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
    fn a_worker_that_waits_for_room_for_several_is_woken() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(3, 3));
            let worker = spawn_with(&queue, |queue| {
                let (mut next, end) = (0, 5);
                while next < end {
                    let frames = next..end.min(next + queue.wait_for_room() as u64);
                    next = frames.end;
                    queue.put(frames.collect());
                }
                queue.end(Ok(()));
            });
            for frame in 0..5 {
                assert_eq!(queue.next(None), Some(Ok(Some(frame))));
            }
            assert_eq!(queue.next(None), Some(Ok(None)));
            worker.join().unwrap();
        });
    }

    #[test]
    fn one_of_two_callers_gets_the_frame_and_the_other_gets_the_end() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
            let other = spawn_with(&queue, |queue| queue.next(None));
            let worker = worker(&queue, 1);
            let mut got = [queue.next(None), other.join().unwrap()];
            got.sort_by_key(|answer| *answer == Some(Ok(None)));
            assert_eq!(got, [Some(Ok(Some(0))), Some(Ok(None))]);
            worker.join().unwrap();
        });
    }

    #[test]
    fn close_wakes_caller_and_worker() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
            let worker = worker(&queue, 2); // for ever, if it were not woken from its wait for room
            let caller = spawn_with(&queue, |queue| queue.next(None));
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
            let shared = Arc::new((FrameQueue::new(1, 1), Mutex::new(false), Condvar::new()));
            let worker = spawn_with(&shared, |shared| {
                let (queue, is_woken, waker) = shared;
                while !queue.is_going_live() {
                    let mut woken = lock(is_woken);
                    while !*woken {
                        woken = wait_until(waker, woken, None); // for ever, if the wake had come before the question
                    }
                    *woken = false;
                }
                queue.go_live(1);
                (0..2).for_each(|frame| assert_eq!(queue.put(vec![frame]), vec![0; frame]));
                queue.end(Ok(()));
            });
            let (queue, is_woken, waker) = &*shared;
            let wake = || {
                *lock(is_woken) = true;
                waker.notify_one();
            };
            assert_eq!(queue.newest(None, wake), Some(Ok(Some(1))));
            worker.join().unwrap();
            assert_eq!(queue.load(), (0, 1));
        });
    }

    #[test]
    fn a_worker_that_waits_for_room_goes_on_when_the_newest_is_wanted() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
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
    fn newest_makes_room_for_a_caller_that_reads_in_order() {
        // Every order of three threads takes longer than three minutes.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
            let worker = worker(&queue, 2);
            let other = spawn_with(&queue, |queue| queue.next(None)); // for ever, if the worker waited for room
            assert!(matches!(queue.newest(None, || {}), Some(Ok(_))));
            assert!(matches!(other.join().unwrap(), Some(Ok(_))));
            queue.close();
            worker.join().unwrap();
        });
    }

    #[test]
    fn queue_ticket_ends_when_a_frame_arrives() {
        loom::model(|| {
            let queue = Arc::new(FrameQueue::new(1, 1));
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
        let queue = FrameQueue::new(2, 1);
        assert_eq!(queue.newest(now(), || {}), None);
        assert!(queue.is_going_live());
        queue.go_live(1);
        let dropped: Vec<_> = [vec![0, 1], vec![2], vec![3]].map(|frames| queue.put(frames)).to_vec();
        assert_eq!(dropped, [vec![], vec![0], vec![1]]);
        assert_eq!(queue.next(now()), Some(Ok(Some(2))));
        assert_eq!(queue.next(now()), Some(Ok(Some(3))));
        assert_eq!(queue.load(), (0, 2));
    }

    #[test]
    fn frames_that_waited_are_stale_except_the_last() {
        let queue = FrameQueue::new(4, 1);
        queue.put(vec!['a', 'b']);
        assert_eq!(queue.newest(now(), || {}), None);
        queue.go_live(1);
        queue.put(vec!['c']);
        assert_eq!(queue.newest(now(), || {}), None, "it was in the pipe already");
        queue.end(Err(Error::Closed));
        assert_eq!(queue.newest(now(), || {}), Some(Ok(Some('c'))));
        assert_eq!(queue.newest(now(), || {}), Some(Err(Error::Closed)));
        assert_eq!(queue.load(), (0, 2));
    }

    #[test]
    fn end_of_the_queue_is_the_same_at_each_call() {
        let queue = FrameQueue::<u8>::new(1, 1);
        queue.put(vec![1]);
        queue.end(Err(Error::Forked));
        queue.end(Ok(()));
        assert_eq!(queue.next(now()), Some(Ok(Some(1))));
        assert_eq!(queue.next(now()), Some(Err(Error::Forked)));
        assert_eq!(queue.newest(now(), || {}), Some(Err(Error::Forked)));
        queue.close();
        assert_eq!(queue.next(now()), Some(Err(Error::Closed)));
        assert_eq!(queue.put(vec![2]), [2]);
    }
}
