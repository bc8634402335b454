//! What is between a reader's worker and its callers: frames in order, at most so many of them. Checked with loom.
//!
//! In order, the worker waits for room before it begins a frame, so that nothing is ever dropped. Live, from the first
//! [`newest`](Handover::newest) to the next [`next`](Handover::next), it never waits: the oldest frame makes room.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::completion::{Completion, Ticket, ticket};
use crate::error::Error;
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, lock, passed, wait_until};

/// What one who asks for a frame gets: none if there was none in time, and at the end always the same.
pub(crate) type Answer<T> = Option<Result<Option<T>, Error>>;

pub(crate) struct Handover<T> {
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

impl<T> Handover<T> {
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
