//! Delays a fork until no thread is inside a short critical step. Checked with loom.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering};

/// Lets many threads pass at once. A fork waits until none is inside.
///
/// One atomic word and no lock: the child of a fork would find a lock as other threads left it. There the gate is
/// [reset](Gate::reset).
#[derive(Debug)]
pub struct Gate(AtomicU32);

/// What one fork adds. The bits below count the threads inside.
const FORK: u32 = 1 << 16;

/// How often a waiting thread looks again. A fork takes some 100 µs to some ms.
const PAUSE: Duration = Duration::from_micros(50);

impl Gate {
    /// Creates an open gate.
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    #[cfg(loom)]
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Runs a short step, with no fork during it. The step must not wait for anything that a forking thread may hold.
    pub fn pass<T>(&self, step: impl FnOnce() -> T) -> T {
        while !self.try_enter() {
            pause();
        }
        let _leaving = Leaving(self);
        step()
    }

    /// Waits until no thread is inside, and keeps all out until [`Gate::open`]. Several forks may be under way.
    pub fn close(&self) {
        // Acquire: pairs with the Release of the threads that leave.
        let mut state = self.0.fetch_add(FORK, Ordering::Acquire);
        while !state.is_multiple_of(FORK) {
            pause();
            state = self.0.load(Ordering::Acquire);
        }
    }

    /// Called by the parent after its fork.
    pub fn open(&self) {
        self.0.fetch_sub(FORK, Ordering::Release);
    }

    /// Called by the child, in which no other thread is inside or forks.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn try_enter(&self) -> bool {
        let state = self.0.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `open`.
        state < FORK
            && self.0.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

struct Leaving<'a>(&'a Gate);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(not(loom))]
fn pause() {
    std::thread::sleep(PAUSE);
}

#[cfg(loom)]
fn pause() {
    loom::thread::yield_now();
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, AtomicBool, spawn_with};

    #[test]
    fn closed_gate_has_no_thread_inside() {
        loom::model(|| {
            let shared = Arc::new((Gate::new(), AtomicBool::new(false)));
            let passer = spawn_with(&shared, |shared| {
                shared.0.pass(|| {
                    shared.1.swap(true, Ordering::Relaxed);
                    shared.1.swap(false, Ordering::Relaxed);
                });
            });
            shared.0.close();
            // A swap, because loom lets a load see what was stored before.
            assert!(!shared.1.swap(false, Ordering::Relaxed), "somebody is inside");
            shared.0.open();
            passer.join().unwrap();
        });
    }
}
