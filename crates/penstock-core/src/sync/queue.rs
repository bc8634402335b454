//! The queue of a stream, apart from the pipeline's because an item stays in it until it has ended. Checked with loom.
//!
//! It is bounded in bytes and items. Its worker starts when needed, leaves when idle, and looks at each item in place. So
//! whoever holds the lock sees every byte in flight, on which `abort` and `sync(data)` depend.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::error::Error;
use crate::sync::monitor::Monitor;
use crate::sync::monitor::Side::{Putters, Takers};
use crate::sync::monitor::Wake::{All, Nobody, One};
use crate::sync::passed;
use crate::sync::ticket::Ticket;

/// How much a queue holds before a push waits. One item always fits, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all items together.
    pub bytes: usize,
    /// Number of items.
    pub items: usize,
}

/// Totals since the queue was made, and its present contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) accepted_bytes: u64,
    pub(crate) accepted_items: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) pending_items: u64,
}

/// An item that was refused, with the reason.
#[derive(Debug)]
pub(crate) struct Refused<T> {
    pub(crate) value: T,
    pub(crate) reason: Refusal,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Refusal {
    /// There was no room before the deadline.
    Full { pending_bytes: u64 },
    /// The stream had failed.
    Failed(Error),
    /// The item's owner was closed meanwhile.
    Gone,
}

/// What became of a value that was pushed.
#[derive(Debug, PartialEq)]
pub(crate) enum Pushed<T> {
    /// It is an item.
    Queued { start_worker: bool },
    /// The last item has its content; this is the rest.
    Joined(T),
    /// It was done at once, and counts as an item that has ended.
    Ended(T),
}

/// What the worker is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<R> {
    /// Write the item under the cursor; this is its view.
    Write(R),
    /// Nothing to write, but written items have not ended yet.
    Reap,
    /// Nothing at all: the worker is signed off and must return.
    Leave,
}

/// Items that were taken out of the queue. Until [`Queue::end`] has ended them, they count as in flight.
#[derive(Debug)]
#[must_use = "a flush waits until they have ended"]
pub(crate) struct Removed<T> {
    items: Vec<T>,
    /// The position of the oldest; none if there is none.
    first: Option<u64>,
}

struct Item<T> {
    value: T,
    bytes: usize,
    /// How many items were accepted before it.
    position: u64,
}

struct State<T> {
    items: VecDeque<Item<T>>,
    /// Items before this one are in the stream and wait for their reader; this one is the next to write.
    cursor: usize,
    /// Whether the worker writes the item under the cursor now.
    writing: bool,
    /// Whether a worker is signed on. Set by a push that finds none, cleared by the worker when it leaves.
    worker: bool,
    /// Whether more items are expected after the first, which otherwise may be the only one.
    expects_more: bool,
    /// Whether an idle worker may stay for a while.
    linger: bool,
    limits: Limits,
    pending_bytes: usize,
    accepted_bytes: u64,
    accepted_items: u64,
    /// The oldest positions of what was removed and has not ended.
    removed: Vec<u64>,
    failure: Option<Error>,
}

/// Its worker waits as a taker; all others wait as putters.
pub(crate) struct Queue<T>(Monitor<State<T>>);

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
            removed: Vec::new(),
            failure: None,
        };
        Self(Monitor::new(state))
    }

    /// Sets the limits. The caller [wakes](Queue::wake) those who wait for room, once it holds no lock.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.0.lock().limits = limits;
    }

    /// Announces that more items will follow the first.
    pub(crate) fn expect_more(&self) {
        self.0.lock().expects_more = true;
    }

    /// Appends the item, has the last one take its content over, or does what the worker would. Waits for room until the deadline.
    ///
    /// `is_gone` is called under the lock. So [`Queue::cancel`] finds every item of an owner that was pushed before it
    /// was closed. `join` is called under it too, if the worker has not begun the last item, and returns whether that has taken
    /// the content. `do_at_once` is called under it if nothing is in flight, and learns whether this is the first item ever. It may do a part
    /// of the item, and returns whether it has done all.
    pub(crate) fn push(
        &self,
        mut value: T,
        bytes: usize,
        deadline: Option<Instant>,
        is_gone: impl Fn(&T) -> bool,
        mut join: impl FnMut(&mut T, &T) -> bool,
        mut do_at_once: impl FnMut(&mut T, bool) -> bool,
    ) -> Result<Pushed<T>, Refused<T>> {
        let mut state = self.0.lock();
        loop {
            if is_gone(&value) {
                return Err(Refused { value, reason: Refusal::Gone });
            }
            if let Some(failure) = &state.failure {
                let reason = Refusal::Failed(failure.clone());
                return Err(Refused { value, reason });
            }
            if state.items.is_empty() && do_at_once(&mut value, state.accepted_items == 0) {
                state.count(bytes);
                state.pending_bytes -= bytes;
                state.accepted_items += 1;
                return Ok(Pushed::Ended(value));
            }
            if state.joins(&value, bytes, &mut join) {
                return Ok(Pushed::Joined(value)); // its worker knows of the last item
            }
            if state.has_room_for(bytes) {
                let start_worker = state.append(value, bytes);
                state.wake(One, Nobody);
                return Ok(Pushed::Queued { start_worker });
            }
            if passed(deadline) {
                let reason = Refusal::Full { pending_bytes: state.pending_bytes as u64 };
                return Err(Refused { value, reason });
            }
            state = state.wait(Putters, deadline);
        }
    }

    /// The bytes in flight, if a push of that size would find no room now, nor an item to join: for a caller who would have to copy it
    /// first.
    pub(crate) fn is_full_for(&self, bytes: usize, joins: bool) -> Option<u64> {
        let state = self.0.lock();
        let takes = state.failure.is_some() || state.has_room_for(bytes) || (joins && state.may_join(bytes));
        (!takes).then_some(state.pending_bytes as u64)
    }

    /// The number of items accepted so far: what a flush that begins now waits for.
    pub(crate) fn accepted_items(&self) -> u64 {
        self.0.lock().accepted_items
    }

    /// Waits until the first `items` items have ended, after a failure all, or for the deadline. Then returns the failure, if
    /// there is one: whoever reports it may forget the queue, and a later flush would not find what is still in flight.
    pub(crate) fn flush(&self, items: u64, deadline: Option<Instant>) -> Result<Result<(), Error>, Load> {
        let mut state = self.0.lock();
        while state.oldest() < items || (state.failure.is_some() && !state.removed.is_empty()) {
            if passed(deadline) {
                return Err(state.load());
            }
            state = state.wait(Putters, deadline);
        }
        Ok(state.failure.clone().map_or(Ok(()), Err))
    }

    /// How many of the first `items` items have not ended. What was removed together counts as one.
    pub(crate) fn pending_of(&self, items: u64) -> usize {
        let state = self.0.lock();
        let queued = state.items.partition_point(|item| item.position < items);
        queued + state.removed.iter().filter(|first| **first < items).count()
    }

    /// Returns a ticket that ends at the next change that a push or a flush may wait for.
    pub(crate) fn changed(&self) -> Ticket {
        self.0.lock().ready(Putters)
    }

    /// Makes all waiting threads check their condition again.
    pub(crate) fn wake(&self) {
        // With the lock, so that no thread is between its check and its wait.
        self.0.lock().wake(Nobody, All);
    }

    pub(crate) fn load(&self) -> Load {
        self.0.lock().load()
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.0.lock().failure.clone()
    }

    /// Applies `pick` to every item in flight, in order.
    pub(crate) fn select<R>(&self, mut pick: impl FnMut(&mut T) -> Option<R>) -> Vec<R> {
        self.0.lock().items.iter_mut().filter_map(|item| pick(&mut item.value)).collect()
    }

    /// Returns a ticket that ends when the worker is to look for its [next](Queue::next) item again: for a worker that waits for
    /// something else beside.
    pub(crate) fn arrival(&self) -> Ticket {
        self.0.lock().ready(Takers)
    }

    /// Called by the worker: waits for the next item to write until the deadline.
    pub(crate) fn next<R>(&self, deadline: Option<Instant>, view: impl Fn(&T) -> R) -> Next<R> {
        let mut state = self.0.lock();
        loop {
            if let Some(item) = state.items.get(state.cursor) {
                let view = view(&item.value);
                state.writing = true;
                return Next::Write(view);
            }
            let dismissed = (!state.linger || state.failure.is_some()) && state.items.is_empty();
            if dismissed || passed(deadline) {
                let next = state.leave_or_reap();
                state.wake(Nobody, All);
                return next;
            }
            state = state.wait(Takers, deadline);
        }
    }

    /// Lets the worker leave as soon as the queue is empty. Waits until it has left, or for the deadline.
    pub(crate) fn dismiss_worker(&self, deadline: Option<Instant>) {
        let mut state = self.0.lock();
        state.linger = false;
        state.wake(One, Nobody);
        state = self.0.lock();
        while state.worker && state.items.is_empty() && !passed(deadline) {
            state = state.wait(Putters, deadline);
        }
    }

    /// Called by the worker once the item under the cursor has been written.
    pub(crate) fn advance<R>(&self, mark: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.0.lock();
        let cursor = state.cursor;
        state.cursor += 1;
        state.writing = false;
        mark(&mut state.items[cursor].value)
    }

    /// Lets the worker look at the item that it writes.
    pub(crate) fn current<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.0.lock();
        let cursor = state.cursor;
        look(&mut state.items[cursor].value)
    }

    /// Lets the worker look at the item after the one that it writes. Nobody can take it out meanwhile.
    pub(crate) fn following<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = self.0.lock();
        let following = state.begun();
        state.items.get_mut(following).map(|item| look(&mut item.value))
    }

    /// Looks at the first item if it has been written.
    pub(crate) fn front<R>(&self, look: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut state = self.0.lock();
        if state.cursor == 0 {
            return None;
        }
        state.items.front_mut().map(|item| look(&mut item.value))
    }

    /// Called by the worker when the first item has ended: its memory is released and its ticket has ended.
    pub(crate) fn retire_front(&self) {
        let mut state = self.0.lock();
        let item = state.items.pop_front().expect("only an item that is there can end");
        state.cursor -= 1;
        state.pending_bytes -= item.bytes;
        state.wake(Nobody, All);
    }

    /// Called by the worker: the queue accepts nothing more and returns all items. The caller [ends](Queue::end) them,
    /// once it holds no lock, which wakes those who wait.
    pub(crate) fn fail(&self, failure: impl FnOnce(Load) -> Error) -> Removed<T> {
        let mut state = self.0.lock();
        let load = state.load();
        state.failure.get_or_insert_with(|| failure(load));
        state.cursor = 0;
        state.writing = false;
        let items = state.items.drain(..).collect();
        state.remove(items)
    }

    /// As `fail`, called by others than the worker. Does nothing while items are in flight.
    pub(crate) fn fail_at_rest(&self, failure: impl FnOnce(Load) -> Error) {
        let mut state = self.0.lock();
        let at_rest = state.items.is_empty();
        if at_rest && state.failure.is_none() {
            state.failure = Some(failure(state.load()));
        }
    }

    /// Signs off a worker that did not start, or that panicked.
    pub(crate) fn sign_off(&self) {
        let mut state = self.0.lock();
        state.worker = false;
        state.wake(Nobody, All);
    }

    /// Takes out the items that `test` picks and the worker has not begun, and calls `count` with each. The caller
    /// [ends](Queue::end) them. If `test` picks the item that is being written, `cut` is called with it.
    pub(crate) fn cancel(
        &self,
        mut test: impl FnMut(&T) -> bool,
        cut: impl FnOnce(&T),
        count: impl Fn(&T),
    ) -> Removed<T> {
        let mut state = self.0.lock();
        if state.writing && test(&state.items[state.cursor].value) {
            cut(&state.items[state.cursor].value);
        }
        let begun = state.begun();
        let (cancelled, kept): (Vec<_>, Vec<_>) =
            state.items.drain(begun..).partition(|item| test(&item.value));
        state.items.extend(kept);
        cancelled.iter().for_each(|item| count(&item.value));
        state.remove(cancelled)
    }

    /// Ends items that were removed, one after another.
    pub(crate) fn end(&self, removed: Removed<T>, end: impl FnMut(T)) {
        let Removed { items, first } = removed;
        items.into_iter().for_each(end);
        let mut state = self.0.lock();
        state.removed.retain(|other| Some(*other) != first);
        state.wake(Nobody, All);
    }
}

impl<T> State<T> {
    fn has_room_for(&self, bytes: usize) -> bool {
        let fits = self.items.len() < self.limits.items && self.has_bytes_for(bytes);
        fits || self.items.is_empty()
    }

    fn has_bytes_for(&self, bytes: usize) -> bool {
        self.pending_bytes.saturating_add(bytes) <= self.limits.bytes
    }

    /// How many items the worker has begun.
    fn begun(&self) -> usize {
        self.cursor + usize::from(self.writing)
    }

    fn may_join(&self, bytes: usize) -> bool {
        self.items.len() > self.begun() && self.has_bytes_for(bytes)
    }

    fn joins(&mut self, value: &T, bytes: usize, join: impl FnOnce(&mut T, &T) -> bool) -> bool {
        let is_possible = self.may_join(bytes);
        let Some(last) = self.items.back_mut().filter(|_| is_possible) else { return false };
        let joins = join(&mut last.value, value);
        if joins {
            last.bytes += bytes;
            self.count(bytes);
        }
        joins
    }

    fn count(&mut self, bytes: usize) {
        self.pending_bytes += bytes;
        self.accepted_bytes += bytes as u64;
    }

    fn append(&mut self, value: T, bytes: usize) -> bool {
        self.items.push_back(Item { value, bytes, position: self.accepted_items });
        self.count(bytes);
        self.accepted_items += 1;
        self.linger = self.expects_more || self.accepted_items > 1;
        !mem::replace(&mut self.worker, true)
    }

    /// The position of the oldest item that has not ended; that of the next one if all have.
    fn oldest(&self) -> u64 {
        let queued = self.items.front().map(|item| item.position);
        queued.into_iter().chain(self.removed.iter().copied()).min().unwrap_or(self.accepted_items)
    }

    fn remove(&mut self, items: Vec<Item<T>>) -> Removed<T> {
        let first = items.first().map(|item| item.position);
        self.removed.extend(first);
        self.pending_bytes -= items.iter().map(|item| item.bytes).sum::<usize>();
        Removed { items: items.into_iter().map(|item| item.value).collect(), first }
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

#[cfg(test)]
impl<T> Queue<T> {
    /// Pushes an item that joins no other. Returns whether the caller must start a worker.
    fn put(&self, value: T, bytes: usize, deadline: Option<Instant>) -> Result<bool, Refused<T>> {
        let pushed = self.push(value, bytes, deadline, |_| false, |_, _| false, |_, _| false)?;
        Ok(matches!(pushed, Pushed::Queued { start_worker: true }))
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests;
