//! A queue between the stages of a pipeline, apart from the reader's because its items have several producers, who bring
//! them in any order, and none is ever dropped. Checked with loom.
//!
//! It is bounded in bytes and items. Every item has a number, and comes out after all items with smaller numbers. The
//! item that is due next is always accepted, whatever the limits: otherwise the queue deadlocks: full of later
//! items, it has no room for the next one.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::sync::monitor::Side::{Putters, Takers};
use crate::sync::monitor::Wake::{All, Nobody, One};
use crate::sync::monitor::{Monitor, Wake};
use crate::sync::passed;
use crate::sync::queue::Limits;
use crate::sync::ticket::Ticket;

/// The channel was stopped: nothing goes in or out any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// The answer to [`Channel::take`].
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The next item, with its number. Numbers have no gaps.
    Item(u64, T),
    /// No item came before the deadline.
    NotYet,
    /// No item will come.
    Ended,
    /// The channel was stopped.
    Stopped,
}

/// A place in the order.
enum Place<T> {
    /// Its item has not come yet.
    Awaited,
    /// Its item was left out.
    LeftOut,
    Filled(T, usize),
}

/// A queue of numbered items, which come out in the order of their numbers.
pub struct Channel<T>(Monitor<State<T>>);

opaque!("Channel", impl<T> std::fmt::Debug for Channel<T>);

struct State<T> {
    limits: Limits,
    places: VecDeque<Place<T>>,
    /// The number of the first place.
    first: u64,
    items: usize,
    bytes: usize,
    /// Items taken so far.
    given: u64,
    /// The number of the last item that is wanted.
    last: u64,
    has_ended: bool,
    is_stopped: bool,
}

impl<T> Channel<T> {
    /// Creates an empty channel.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let state = State {
            limits,
            places: VecDeque::new(),
            first: 0,
            items: 0,
            bytes: 0,
            given: 0,
            last: u64::MAX,
            has_ended: false,
            is_stopped: false,
        };
        Self(Monitor::new(state))
    }

    /// Puts an item into its place, or leaves the place out if there is none. Waits for room.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if the channel was stopped, or the item is not wanted any more, before or while this waited.
    pub fn put(&self, number: u64, item: Option<T>, bytes: usize) -> Result<(), Stopped> {
        let mut state = self.0.lock();
        while state.wants(number) && !state.admits(number, bytes) {
            state = state.wait(Putters, None);
        }
        if !state.wants(number) {
            return Err(Stopped);
        }
        // If it is left out, the next item is due without a `take`; its producer may sleep.
        let putters = if item.is_none() { All } else { Nobody };
        state.fill(number, item, bytes);
        let takers = state.takers_to_wake();
        state.wake(takers, putters);
        Ok(())
    }

    /// Takes the next item in order. Waits for it until the deadline.
    pub fn take(&self, deadline: Option<Instant>) -> Taken<T> {
        let mut state = self.0.lock();
        loop {
            if state.is_stopped {
                return Taken::Stopped;
            }
            if let Some((number, item)) = state.pop() {
                let (takers, putters) = (state.takers_to_wake(), state.putters_to_wake());
                state.wake(takers, putters);
                return Taken::Item(number, item);
            }
            if state.has_ended && state.places.is_empty() {
                return Taken::Ended;
            }
            if passed(deadline) {
                return Taken::NotYet;
            }
            state = state.wait(Takers, deadline);
        }
    }

    /// Whether a `take` would wait.
    #[must_use]
    pub fn would_wait(&self) -> bool {
        !self.0.lock().is_ready()
    }

    /// Called by a producer before it puts the item of that number: no later one is wanted. Drops those that have come.
    pub fn end_after(&self, number: u64) {
        let mut state = self.0.lock();
        state.last = state.last.min(number);
        let dropped = state.take_unwanted();
        state.wake(Nobody, All);
        drop(dropped); // not under the lock: it gives memory back
    }

    /// Called by the last producer: everything is in.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        state.wake(All, Nobody);
    }

    /// Makes everybody return, and drops the contents.
    pub fn stop(&self) {
        let mut state = self.0.lock();
        state.is_stopped = true;
        let dropped = mem::take(&mut state.places);
        state.items = 0;
        state.bytes = 0;
        state.wake(All, All);
        drop(dropped); // not under the lock: it gives memory back
    }

    /// Returns a ticket that ends when `take` would not wait.
    #[must_use]
    pub fn ready(&self) -> Ticket {
        let mut state = self.0.lock();
        let later = (!state.is_ready()).then(|| state.ready(Takers));
        drop(state);
        later.unwrap_or_else(|| Ticket::ended(Ok(())))
    }

    /// Returns the number of items in the channel, and their bytes.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.items, state.bytes)
    }
}

impl<T> State<T> {
    fn wants(&self, number: u64) -> bool {
        !self.is_stopped && number <= self.last
    }

    fn take_unwanted(&mut self) -> VecDeque<Place<T>> {
        let wanted = (self.last + 1).saturating_sub(self.first).min(self.places.len() as u64);
        let unwanted = self.places.split_off(wanted as usize);
        for place in &unwanted {
            if let Place::Filled(_, bytes) = place {
                self.items -= 1;
                self.bytes -= bytes;
            }
        }
        unwanted
    }

    fn admits(&self, number: u64, bytes: usize) -> bool {
        // Counts places, not items: otherwise a producer that leaves everything out could run ahead without end.
        let is_near = number - self.first < self.limits.items as u64;
        let fits = is_near && self.bytes.saturating_add(bytes) <= self.limits.bytes;
        fits || number == self.first
    }

    fn fill(&mut self, number: u64, item: Option<T>, bytes: usize) {
        let place = (number - self.first) as usize;
        while self.places.len() <= place {
            self.places.push_back(Place::Awaited);
        }
        self.places[place] = match item {
            Some(item) => {
                self.items += 1;
                self.bytes += bytes;
                Place::Filled(item, bytes)
            }
            None => Place::LeftOut,
        };
        while let Some(Place::LeftOut) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }

    fn is_ready(&self) -> bool {
        let has_next = matches!(self.places.front(), Some(Place::Filled(..)));
        has_next || self.is_stopped || (self.has_ended && self.places.is_empty())
    }

    fn pop(&mut self) -> Option<(u64, T)> {
        match self.places.front() {
            Some(Place::Filled(..)) => {}
            _ => return None,
        }
        let Some(Place::Filled(item, bytes)) = self.places.pop_front() else { unreachable!("it was seen") };
        self.first += 1;
        self.items -= 1;
        self.bytes -= bytes;
        while let Some(Place::LeftOut) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        self.given += 1;
        Some((self.given - 1, item))
    }

    fn takers_to_wake(&self) -> Wake {
        if self.is_ready() { One } else { Nobody }
    }

    /// Producers are woken when the channel is half empty, or when the next item is due from one that may sleep: waking
    /// costs more than putting.
    fn putters_to_wake(&self) -> Wake {
        let is_half_empty = self.places.len() <= self.limits.items / 2 && self.bytes <= self.limits.bytes / 2;
        let is_next_due = !matches!(self.places.front(), Some(Place::Filled(..)));
        if is_half_empty || is_next_due { All } else { Nobody }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, spawn_with};

    const ONE: Limits = Limits { bytes: 8, items: 1 };

    fn take_all(channel: &Channel<u64>) -> Vec<u64> {
        let mut got = Vec::new();
        loop {
            match channel.take(None) {
                Taken::Item(number, item) => {
                    assert_eq!(number, got.len() as u64);
                    got.push(item);
                }
                Taken::Ended | Taken::Stopped => return got,
                Taken::NotYet => unreachable!("there is no deadline"),
            }
        }
    }

    #[test]
    fn channel_orders_the_items_of_two_workers() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(ONE));
            let other = spawn_with(&channel, |channel| channel.put(1, Some(1), 8).unwrap());
            let ended = spawn_with(&channel, |channel| {
                channel.put(0, Some(0), 8).unwrap();
                other.join().unwrap();
                channel.end();
            });
            assert_eq!(take_all(&channel), [0, 1]);
            ended.join().unwrap();
        });
    }

    #[test]
    fn channel_wakes_a_putter_that_waits_for_room() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(Limits { bytes: 8, items: 2 }));
            let putter = spawn_with(&channel, |channel| {
                (0..3).for_each(|number| channel.put(number, Some(number), 4).unwrap());
                channel.end();
            });
            assert_eq!(take_all(&channel), [0, 1, 2]);
            putter.join().unwrap();
        });
    }

    #[test]
    fn two_takers_share_the_items_and_both_see_the_end() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(Limits { bytes: 8, items: 2 }));
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    spawn_with(&channel, |channel| {
                        let mut got = Vec::new();
                        while let Taken::Item(_, item) = channel.take(None) {
                            got.push(item);
                        }
                        got
                    })
                })
                .collect();
            // The second fills the gap, so that both can be taken at once.
            channel.put(1, Some(1u64), 1).unwrap();
            channel.put(0, Some(0), 1).unwrap();
            channel.end();
            let mut got: Vec<_> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
            got.sort_unstable();
            assert_eq!(got, [0, 1]);
        });
    }

    #[test]
    fn a_place_that_is_left_out_holds_nobody_up() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(Limits { bytes: 8, items: 3 }));
            channel.put(2, Some(2), 8).unwrap();
            let other = spawn_with(&channel, |channel| {
                channel.put(1, Some(1), 8).unwrap(); // for ever, if its turn came unseen
                channel.end();
            });
            channel.put(0, None, 0).unwrap();
            assert_eq!(take_all(&channel), [1, 2]);
            other.join().unwrap();
        });
    }

    #[test]
    fn nothing_comes_out_after_the_last_item_that_is_wanted() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(ONE));
            let later = spawn_with(&channel, |channel| {
                let _ = channel.put(1, Some(1), 8); // for ever, if its refusal came unseen
            });
            let ended = spawn_with(&channel, |channel| {
                channel.end_after(0);
                channel.put(0, Some(0), 8).unwrap();
                later.join().unwrap();
                channel.end();
            });
            assert_eq!(take_all(&channel), [0]);
            ended.join().unwrap();
            assert_eq!(channel.load(), (0, 0));
        });
    }

    #[test]
    fn a_stop_reaches_everybody() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(ONE));
            let putter = spawn_with(&channel, |channel| {
                (0..2).try_for_each(|number| channel.put(number, Some(number), 8))
            });
            let stopper = spawn_with(&channel, |channel| channel.stop());
            let _ = take_all(&channel);
            let _ = putter.join().unwrap();
            stopper.join().unwrap();
            assert_eq!(channel.put(9, Some(9), 1), Err(Stopped));
            assert_eq!(channel.load(), (0, 0));
        });
    }

    #[test]
    fn channel_ticket_ends_when_an_item_arrives() {
        loom::model(|| {
            let channel = Arc::new(Channel::new(ONE));
            let putter = spawn_with(&channel, |channel| channel.put(0, Some(0), 1).unwrap());
            assert_eq!(channel.ready().wait(), Ok(())); // for ever, if it were forgotten
            assert!(!channel.would_wait());
            putter.join().unwrap();
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
    fn later_items_are_bounded_and_the_one_whose_turn_it_is_never_waits() {
        let channel = Channel::new(Limits { bytes: 100, items: 3 });
        channel.put(1, Some("b"), 60).unwrap();
        assert_eq!(channel.take(now()), Taken::NotYet);
        channel.put(2, Some("c"), 40).unwrap();
        channel.put(0, Some("a"), 1000).unwrap(); // for ever, if it waited for room
        channel.end();
        assert_eq!(channel.load(), (3, 1100));
        let got: Vec<_> = std::iter::from_fn(|| match channel.take(now()) {
            Taken::Item(number, item) => Some((number, item)),
            _ => None,
        })
        .collect();
        assert_eq!(got, [(0, "a"), (1, "b"), (2, "c")]);
        assert_eq!(channel.take(None), Taken::Ended);
    }

    #[test]
    fn items_after_the_last_that_is_wanted_are_refused_and_dropped() {
        let channel = Channel::new(Limits { bytes: 100, items: 9 });
        for number in [0, 1, 3, 5] {
            channel.put(number, Some(number), 1).unwrap();
        }
        assert_eq!(channel.take(None), Taken::Item(0, 0));
        channel.end_after(2);
        channel.end_after(4); // the first that ends it stays
        assert_eq!(channel.load(), (1, 1));
        assert_eq!(channel.put(4, Some(4), 1), Err(Stopped));
        channel.put(2, None, 0).unwrap();
        channel.end();
        assert_eq!(channel.take(None), Taken::Item(1, 1));
        assert_eq!(channel.take(None), Taken::Ended);
    }

    #[test]
    fn numbers_of_taken_items_have_no_gaps() {
        let channel = Channel::new(Limits { bytes: 100, items: 9 });
        for (number, item) in [(0, None), (1, Some('b')), (2, None), (3, None), (4, Some('e'))] {
            channel.put(number, item, 1).unwrap();
        }
        channel.put(5, None, 0).unwrap();
        channel.end();
        assert_eq!(channel.take(None), Taken::Item(0, 'b'));
        assert_eq!(channel.take(None), Taken::Item(1, 'e'));
        assert_eq!(channel.take(None), Taken::Ended);
    }
}
