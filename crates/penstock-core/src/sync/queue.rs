//! A queue bounded in bytes and in items, with a worker that comes and goes. Checked with loom.
//!
//! Items never leave the queue before they have ended: the worker looks at them where they are. So whoever
//! holds the lock sees every byte in flight, which is what `fork`, `abort` and `sync(data)` stand on.

use std::collections::VecDeque;
use std::time::Instant;

use crate::error::Error;
#[cfg(not(loom))]
use crate::sync::MutexGuard;
use crate::sync::{Condvar, Mutex, lock, passed, wait_until};

/// How much a queue holds before it makes its callers wait. One item always fits, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all items together.
    pub bytes: usize,
    /// Number of items.
    pub items: usize,
}

/// Totals since the queue was made, and what is in it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) accepted_bytes: u64,
    pub(crate) accepted_items: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) pending_items: u64,
}

/// An item that was not taken, given back with the reason.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    pub(crate) value: T,
    pub(crate) reason: Refusal,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// No room came up in time.
    Full { pending_bytes: u64 },
    /// The stream failed before.
    Failed(Error),
    /// Who wanted to push it is gone.
    Gone,
}

/// What a worker is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<R> {
    /// Write the item at the cursor, of which this is the view.
    Write(R),
    /// Nothing to write, but some that is written has not ended yet.
    Reap,
    /// Nothing at all: the worker has been signed off and must return.
    Leave,
}

struct Item<T> {
    value: T,
    bytes: usize,
}

struct State<T> {
    items: VecDeque<Item<T>>,
    /// Items in front of this one are in the stream and wait for their reader; this one is the next to write.
    cursor: usize,
    /// Whether the worker is at the item under the cursor.
    writing: bool,
    /// Whether a worker is signed on. Set by the push that finds none, cleared by the worker that leaves.
    worker: bool,
    /// Whether more is to be expected after the first item, which otherwise may be the only one.
    expects_more: bool,
    /// Whether an idle worker may stay for a while, in case more comes.
    linger: bool,
    limits: Limits,
    pending_bytes: usize,
    accepted_bytes: u64,
    accepted_items: u64,
    ended_items: u64,
    failure: Option<Error>,
}

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// Something was pushed, or the queue failed.
    work: Condvar,
    /// Something ended, or the queue failed.
    room: Condvar,
}

impl<T> Queue<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            items: VecDeque::new(),
            cursor: 0,
            writing: false,
            worker: false,
            expects_more: false,
            linger: false,
            limits,
            pending_bytes: 0,
            accepted_bytes: 0,
            accepted_items: 0,
            ended_items: 0,
            failure: None,
        };
        Self { state: Mutex::new(state), work: Condvar::new(), room: Condvar::new() }
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        lock(&self.state).limits = limits;
        self.room.notify_all();
    }

    /// Says that the first item will not be the only one.
    pub(crate) fn expect_more(&self) {
        lock(&self.state).expects_more = true;
    }

    /// Appends the item, waiting for room until the deadline. Says whether the caller must start a worker.
    ///
    /// `is_gone` is asked under the lock: what was pushed before somebody is said to be gone, a [`Queue::cancel`] after
    /// that word finds.
    pub(crate) fn push(
        &self,
        value: T,
        bytes: usize,
        deadline: Option<Instant>,
        is_gone: impl Fn() -> bool,
    ) -> Result<bool, Refused<T>> {
        let mut state = lock(&self.state);
        loop {
            if is_gone() {
                return Err(Refused { value, reason: Refusal::Gone });
            }
            if let Some(failure) = &state.failure {
                let reason = Refusal::Failed(failure.clone());
                return Err(Refused { value, reason });
            }
            if state.has_room_for(bytes) {
                let start_worker = state.append(value, bytes);
                self.work.notify_one();
                return Ok(start_worker);
            }
            if passed(deadline) {
                let reason = Refusal::Full { pending_bytes: state.pending_bytes as u64 };
                return Err(Refused { value, reason });
            }
            state = wait_until(&self.room, state, deadline);
        }
    }

    /// How many items were accepted so far: what a flush that begins now waits for.
    pub(crate) fn accepted_items(&self) -> u64 {
        lock(&self.state).accepted_items
    }

    /// Waits until that many items have ended, or the deadline. Then: the failure, if there is one.
    pub(crate) fn flush(&self, items: u64, deadline: Option<Instant>) -> Result<Result<(), Error>, Load> {
        let mut state = lock(&self.state);
        while state.ended_items < items {
            if passed(deadline) {
                return Err(state.load());
            }
            state = wait_until(&self.room, state, deadline);
        }
        Ok(state.failure.clone().map_or(Ok(()), Err))
    }

    /// Of that many items, those that have not ended.
    pub(crate) fn pending_of(&self, items: u64) -> u64 {
        items.saturating_sub(lock(&self.state).ended_items)
    }

    /// Has those who wait look again at what they wait for.
    pub(crate) fn wake(&self) {
        // Under the lock: nobody is between having looked and waiting.
        let _state = lock(&self.state);
        self.room.notify_all();
    }

    pub(crate) fn load(&self) -> Load {
        lock(&self.state).load()
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.state).failure.clone()
    }

    /// Whether nothing is queued and nothing failed.
    pub(crate) fn is_at_rest(&self) -> bool {
        let state = lock(&self.state);
        state.items.is_empty() && state.failure.is_none()
    }

    /// Looks at every item in flight, in order.
    pub(crate) fn select<R>(&self, mut pick: impl FnMut(&T) -> Option<R>) -> Vec<R> {
        lock(&self.state).items.iter().filter_map(|item| pick(&item.value)).collect()
    }

    /// The worker's question: the next item to write, waited for until the deadline.
    pub(crate) fn next<R>(&self, deadline: Option<Instant>, view: impl Fn(&T) -> R) -> Next<R> {
        let mut state = lock(&self.state);
        loop {
            if let Some(item) = state.items.get(state.cursor) {
                let view = view(&item.value);
                state.writing = true;
                return Next::Write(view);
            }
            let dismissed = (!state.linger || state.failure.is_some()) && state.items.is_empty();
            if dismissed || passed(deadline) {
                let next = state.leave_or_reap();
                self.room.notify_all();
                return next;
            }
            state = wait_until(&self.work, state, deadline);
        }
    }

    /// Lets the worker leave as soon as nothing is queued, and waits until it has, or for the deadline.
    pub(crate) fn dismiss_worker(&self, deadline: Option<Instant>) {
        let mut state = lock(&self.state);
        state.linger = false;
        self.work.notify_all();
        while state.worker && state.items.is_empty() && !passed(deadline) {
            state = wait_until(&self.room, state, deadline);
        }
    }

    /// The worker's word: the item under the cursor is in the stream, and waits for its reader.
    pub(crate) fn advance(&self, mark: impl FnOnce(&mut T)) {
        let mut state = lock(&self.state);
        let cursor = state.cursor;
        mark(&mut state.items[cursor].value);
        state.cursor += 1;
        state.writing = false;
    }

    /// The worker's look into the item that it is at.
    pub(crate) fn current<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mut state = lock(&self.state);
        let cursor = state.cursor;
        look(&mut state.items[cursor].value)
    }

    /// The worker's look into the item behind the one that it is at. Nobody can take it out meanwhile.
    pub(crate) fn following<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = lock(&self.state);
        let following = state.cursor + usize::from(state.writing);
        state.items.get_mut(following).map(|item| look(&mut item.value))
    }

    /// Looks into the first item if it is in the stream already.
    pub(crate) fn front<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = lock(&self.state);
        if state.cursor == 0 {
            return None;
        }
        state.items.front_mut().map(|item| look(&mut item.value))
    }

    /// The worker's word: the first item has ended, its memory is free and its ticket says so.
    pub(crate) fn retire_front(&self) {
        let mut state = lock(&self.state);
        let item = state.items.pop_front().expect("only an item that is there can end");
        state.cursor -= 1;
        state.pending_bytes -= item.bytes;
        state.ended_items += 1;
        self.room.notify_all();
    }

    /// The worker's word: the queue takes nothing any more, and all that it holds is given back to be ended,
    /// after which [`Queue::retire`] is due.
    pub(crate) fn fail(&self, failure: impl FnOnce(Load) -> Error) -> Vec<T> {
        let mut state = lock(&self.state);
        let load = state.load();
        state.failure.get_or_insert_with(|| failure(load));
        state.cursor = 0;
        state.writing = false;
        state.pending_bytes = 0;
        self.room.notify_all();
        state.items.drain(..).map(|item| item.value).collect()
    }

    /// The same from outside of the worker, which is only right while nothing is in flight: else it does nothing.
    pub(crate) fn fail_at_rest(&self, failure: impl FnOnce(Load) -> Error) {
        let mut state = lock(&self.state);
        let at_rest = state.items.is_empty();
        if at_rest && state.failure.is_none() {
            state.failure = Some(failure(state.load()));
        }
    }

    /// Signs the worker off that could not be started, or that did not end as it should.
    pub(crate) fn sign_off(&self) {
        lock(&self.state).worker = false;
        self.room.notify_all();
    }

    /// Takes out what the worker has not begun and the test picks; to be ended, after which
    /// [`Queue::retire`] is due. If the test picks the item that is being written, `cut` gets to see it.
    pub(crate) fn cancel(&self, mut test: impl FnMut(&T) -> bool, cut: impl FnOnce(&T)) -> Vec<T> {
        let mut state = lock(&self.state);
        if state.writing && test(&state.items[state.cursor].value) {
            cut(&state.items[state.cursor].value);
        }
        let begun = state.cursor + usize::from(state.writing);
        let (cancelled, kept): (Vec<_>, Vec<_>) =
            state.items.drain(begun..).partition(|item| test(&item.value));
        state.items.extend(kept);
        state.pending_bytes -= cancelled.iter().map(|item| item.bytes).sum::<usize>();
        cancelled.into_iter().map(|item| item.value).collect()
    }

    /// So many items that were taken out have ended.
    pub(crate) fn retire(&self, items: usize) {
        lock(&self.state).ended_items += items as u64;
        self.room.notify_all();
    }

    /// Holds the queue still while the process forks.
    #[cfg(not(loom))]
    pub(crate) fn hold(&self) -> HeldQueue<'_, T> {
        HeldQueue(lock(&self.state))
    }
}

/// A queue that nobody else can touch, because the process is forking.
#[cfg(not(loom))]
pub(crate) struct HeldQueue<'a, T>(MutexGuard<'a, State<T>>);

#[cfg(not(loom))]
impl<T> HeldQueue<'_, T> {
    /// Makes the queue as new, in a child that has no worker, and gives back what the parent will write.
    pub(crate) fn empty(&mut self) -> Vec<T> {
        let state = &mut *self.0;
        state.cursor = 0;
        state.writing = false;
        state.worker = false;
        state.pending_bytes = 0;
        state.accepted_bytes = 0;
        state.accepted_items = 0;
        state.ended_items = 0;
        state.failure = None;
        state.items.drain(..).map(|item| item.value).collect()
    }
}

impl<T> State<T> {
    fn has_room_for(&self, bytes: usize) -> bool {
        let fits = self.items.len() < self.limits.items
            && self.pending_bytes.saturating_add(bytes) <= self.limits.bytes;
        fits || self.items.is_empty()
    }

    fn append(&mut self, value: T, bytes: usize) -> bool {
        self.items.push_back(Item { value, bytes });
        self.pending_bytes += bytes;
        self.accepted_bytes += bytes as u64;
        self.accepted_items += 1;
        self.linger = self.expects_more || self.accepted_items > 1;
        !std::mem::replace(&mut self.worker, true)
    }

    fn leave_or_reap<R>(&mut self) -> Next<R> {
        if self.items.is_empty() {
            self.worker = false;
            Next::Leave
        } else {
            Next::Reap
        }
    }

    fn load(&self) -> Load {
        Load {
            accepted_bytes: self.accepted_bytes,
            accepted_items: self.accepted_items,
            pending_bytes: self.pending_bytes as u64,
            pending_items: self.items.len() as u64,
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    fn queue(bytes: usize, items: usize) -> Queue<u8> {
        Queue::new(Limits { bytes, items })
    }

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(5))
    }

    #[test]
    fn both_limits_hold_and_one_item_always_fits() {
        let by_items = queue(100, 2);
        assert!(by_items.push(1, 1, None, || false).unwrap());
        assert!(!by_items.push(2, 1, None, || false).unwrap());
        let refused = by_items.push(3, 1, soon(), || false).unwrap_err();
        assert_eq!((refused.value, refused.reason), (3, Refusal::Full { pending_bytes: 2 }));

        let by_bytes = queue(10, 9);
        assert!(
            by_bytes.push(1, 1000, None, || false).is_ok(),
            "an item above the limit fits into an empty queue"
        );
        assert!(by_bytes.push(2, 1, soon(), || false).is_err());
    }

    #[test]
    fn cancelled_items_leave_and_the_one_in_work_is_shown() {
        let queue = queue(100, 9);
        for item in 1..=4 {
            queue.push(item, 10, None, || false).unwrap();
        }
        assert_eq!(queue.next(None, |item| *item), Next::Write(1));
        let mut in_work = None;
        let cancelled = queue.cancel(|item| *item != 3, |item| in_work = Some(*item));
        assert_eq!((cancelled, in_work), (vec![2, 4], Some(1)));
        queue.retire(2);
        assert_eq!(queue.load().pending_bytes, 20);
        queue.advance(|_| {});
        queue.retire_front();
        assert_eq!(queue.next(None, |item| *item), Next::Write(3));
    }

    #[test]
    fn a_flush_waits_only_for_what_was_there() {
        let queue = queue(100, 9);
        queue.push(1, 10, None, || false).unwrap();
        assert_eq!(queue.flush(1, soon()).unwrap_err().pending_bytes, 10);
        queue.next(None, |_| ());
        queue.advance(|_| {});
        queue.retire_front();
        queue.push(2, 10, None, || false).unwrap();
        assert_eq!(queue.flush(1, None), Ok(Ok(())), "whatever came later");
    }
}
