//! The lock under the queues, and their waits: some threads wait for something to take, others for room. Checked with
//! loom.
//!
//! Whoever has changed the state wakes by giving the lock back: first it unlocks, then it notifies, and only who sleeps.
//! So nobody calls futex(2) for nothing, or wakes only to wait for the lock.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use crate::sync::ticket::{Completion, Ticket, ticket};
use crate::sync::{Condvar, Locked, Mutex, lock, wait_until};

/// A state that threads share, and wait for.
pub struct Monitor<S> {
    shared: Mutex<Shared<S>>,
    /// One for each side.
    condvars: [Condvar; 2],
}

struct Shared<S> {
    state: S,
    /// One for each side.
    sleepers: [Sleepers; 2],
    /// One for each side: ends when it is woken. All who ask share it, so that those who stop waiting leave nothing behind.
    ready: [Option<(Completion, Ticket)>; 2],
}

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    /// For something to take.
    Takers,
    /// For room, or for the end of what they put in.
    Putters,
}

/// How many of a side to wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Wakes no thread.
    Nobody,
    /// Wakes one thread. If items remain after it took one, it must wake another: two notifications may have woken the same
    /// thread.
    One,
    /// Wakes all threads that wait.
    All,
}

/// The threads of one side that wait.
#[derive(Default)]
struct Sleepers {
    all: usize,
    /// Those of them that have been notified, or are about to be, and do not have the lock yet. They need no second
    /// notification. A lower bound: a thread that wakes by itself takes one off, whether it was its own or not.
    notified: usize,
}

impl Sleepers {
    /// Notes whom the caller is about to notify. Nobody, if all have been.
    fn note(&mut self, wake: Wake) -> Wake {
        if self.notified == self.all {
            return Wake::Nobody;
        }
        match wake {
            Wake::Nobody => {}
            Wake::One => self.notified += 1,
            Wake::All => self.notified = self.all,
        }
        wake
    }

    fn note_awake(&mut self) {
        self.all -= 1;
        self.notified = self.notified.saturating_sub(1);
    }
}

impl<S> Monitor<S> {
    /// Puts the state under a lock.
    #[must_use]
    pub fn new(state: S) -> Self {
        let shared = Shared { state, sleepers: Default::default(), ready: Default::default() };
        Self { shared: Mutex::new(shared), condvars: [Condvar::new(), Condvar::new()] }
    }

    /// Locks the state.
    pub fn lock(&self) -> Guard<'_, S> {
        Guard { shared: lock(&self.shared), condvars: &self.condvars }
    }
}

/// Access to the state.
pub struct Guard<'a, S> {
    shared: Locked<'a, Shared<S>>,
    condvars: &'a [Condvar; 2],
}

impl<S> Guard<'_, S> {
    /// Unlocks, and waits until the side is woken or for the deadline. Sometimes returns early: the caller checks its
    /// condition again, then the clock.
    #[must_use]
    pub fn wait(mut self, side: Side, deadline: Option<Instant>) -> Self {
        let side = side as usize;
        self.shared.sleepers[side].all += 1;
        self.shared = wait_until(&self.condvars[side], self.shared, deadline);
        self.shared.sleepers[side].note_awake();
        self
    }

    /// Unlocks, and wakes those who sleep.
    #[inline(always)] // Whom it wakes is mostly constant. As a call, it costs a quarter of a put and a take (callgrind).
    pub fn wake(mut self, takers: Wake, putters: Wake) {
        let [ready_takers, ready_putters] = &mut self.shared.ready;
        let ready = [(takers, ready_takers), (putters, ready_putters)]
            .map(|(wake, ready)| if wake == Wake::Nobody { None } else { ready.take() });
        let [sleeping_takers, sleeping_putters] = &mut self.shared.sleepers;
        let wakes = [sleeping_takers.note(takers), sleeping_putters.note(putters)];
        drop(self.shared);
        for (condvar, wake) in self.condvars.iter().zip(wakes) {
            match wake {
                Wake::Nobody => {}
                Wake::One => condvar.notify_one(),
                Wake::All => condvar.notify_all(),
            }
        }
        for (completion, _) in ready.into_iter().flatten() {
            completion.end(Ok(())); // after the lock, because it runs callbacks
        }
    }

    /// Returns a ticket that ends when the side is woken next.
    pub(crate) fn ready(&mut self, side: Side) -> Ticket {
        self.shared.ready[side as usize].get_or_insert_with(ticket).1.clone()
    }
}

impl<S> Deref for Guard<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.shared.state
    }
}

impl<S> DerefMut for Guard<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.shared.state
    }
}

opaque!("Monitor", impl<S> std::fmt::Debug for Monitor<S>);
opaque!("Guard", impl<S> std::fmt::Debug for Guard<'_, S>);

#[cfg(all(test, loom))]
mod loom_tests {
    use super::Side::{Putters, Takers};
    use super::Wake::{All, Nobody, One};
    use super::*;
    use crate::sync::{Arc, spawn_with};

    /// Waits for a number, and takes it down by one. Wakes the next.
    fn take(monitor: &Monitor<u32>) {
        let mut left = monitor.lock();
        while *left == 0 {
            left = left.wait(Takers, None);
        }
        *left -= 1;
        let takers = if *left > 0 { One } else { Nobody };
        left.wake(takers, Nobody);
    }

    #[test]
    fn threads_wake_while_there_is_something_for_them() {
        loom::model(|| {
            let monitor = Arc::new(Monitor::new(0));
            let takers: Vec<_> = (0..2).map(|_| spawn_with(&monitor, take)).collect();
            for _ in 0..2 {
                let mut left = monitor.lock();
                *left += 1;
                left.wake(One, Nobody);
            }
            takers.into_iter().for_each(|taker| taker.join().unwrap());
        });
    }

    #[test]
    fn threads_that_wait_for_different_things_are_woken_together() {
        loom::model(|| {
            let monitor = Arc::new(Monitor::new(0));
            let waiters: Vec<_> = (1..3)
                .map(|wanted| {
                    spawn_with(&monitor, move |monitor| {
                        let mut number = monitor.lock();
                        while *number < wanted {
                            number = number.wait(Putters, None);
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                let mut number = monitor.lock();
                *number += 1;
                number.wake(Nobody, All);
            }
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        });
    }

    #[test]
    fn takers_and_putters_wake_each_other() {
        loom::model(|| {
            let monitor = Arc::new(Monitor::new(false));
            let putter = spawn_with(&monitor, |monitor| {
                for _ in 0..2 {
                    let mut is_full = monitor.lock();
                    while *is_full {
                        is_full = is_full.wait(Putters, None);
                    }
                    *is_full = true;
                    is_full.wake(One, Nobody);
                }
            });
            for _ in 0..2 {
                let mut is_full = monitor.lock();
                while !*is_full {
                    is_full = is_full.wait(Takers, None);
                }
                *is_full = false;
                is_full.wake(Nobody, All);
            }
            putter.join().unwrap();
        });
    }

    #[test]
    fn monitor_ticket_ends_at_a_wake() {
        loom::model(|| {
            let monitor = Arc::new(Monitor::new(false));
            let putter = spawn_with(&monitor, |monitor| {
                let mut is_full = monitor.lock();
                *is_full = true;
                is_full.wake(One, Nobody);
            });
            let mut is_full = monitor.lock();
            let ready = (!*is_full).then(|| is_full.ready(Takers));
            drop(is_full);
            if let Some(ready) = ready {
                assert_eq!(ready.wait(), Ok(())); // for ever, if it were forgotten
            }
            putter.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::Side::{Putters, Takers};
    use super::Wake::{All, Nobody, One};
    use super::*;

    #[test]
    fn threads_that_stopped_waiting_are_not_notified() {
        let monitor = Monitor::new(());
        let mut guard = monitor.lock();
        for side in [Takers, Takers, Putters, Putters] {
            guard = guard.wait(side, Some(Instant::now()));
        }
        assert!(guard.shared.sleepers.iter_mut().all(|sleepers| sleepers.note(All) == Nobody));
    }

    #[test]
    fn all_watchers_share_one_ticket_which_ends_without_the_lock() {
        let monitor = Arc::new(Monitor::new(()));
        let mut guard = monitor.lock();
        let (first, second, putter) = (guard.ready(Takers), guard.ready(Takers), guard.ready(Putters));
        first.on_end({
            let monitor = Arc::clone(&monitor);
            move || drop(monitor.lock()) // for ever, if it were held
        });
        guard.wake(Nobody, All);
        assert_eq!((first.outcome(), second.outcome(), putter.outcome()), (None, None, Some(Ok(()))));
        monitor.lock().wake(One, Nobody);
        assert_eq!((first.outcome(), second.outcome()), (Some(Ok(())), Some(Ok(()))));
    }
}
