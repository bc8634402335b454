//! How threads wait for each other: tickets, queues and the locks under them. Checked with loom.
//!
//! Under `--cfg loom` the locks are loom's, otherwise those of `std`.

pub(crate) mod channel;
pub(crate) mod frame_queue;
pub(crate) mod gate;
pub(crate) mod generation;
#[cfg(all(debug_assertions, not(loom)))]
mod lock_order;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod queue;
pub(crate) mod ticket;

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc, Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Access to what a lock protects.
pub struct Locked<'a, T> {
    // Dropped in this order.
    guard: MutexGuard<'a, T>,
    _held: Held,
}

opaque!("Locked", impl<T> std::fmt::Debug for Locked<'_, T>);

#[cfg(all(debug_assertions, not(loom)))]
use lock_order::{Held, check_none_is_held};

/// See `lock_order`, which debug builds have.
#[cfg(not(all(debug_assertions, not(loom))))]
struct Held;

#[cfg(not(all(debug_assertions, not(loom))))]
impl Held {
    fn note<T>() -> Self {
        Self
    }
}

#[cfg(not(all(debug_assertions, not(loom))))]
fn check_none_is_held() {}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Locks. A panic elsewhere does not matter: every critical section leaves a consistent state behind.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let _held = Held::note::<T>();
    Locked { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _held }
}

/// Waits for a notification until the deadline, or without a limit if there is none.
///
/// Returns the guard in every case. The caller checks its condition again, then the clock.
pub fn wait_until<'a, T>(
    condvar: &Condvar,
    Locked { guard, _held }: Locked<'a, T>,
    deadline: Option<Instant>,
) -> Locked<'a, T> {
    let guard = match deadline {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(deadline) => {
            let left = deadline.saturating_duration_since(Instant::now());
            condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
        }
    };
    Locked { guard, _held }
}

/// The deadline of a timeout; none if the clock cannot represent it.
pub fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Whether the deadline has passed.
pub fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// Runs code of a caller, under no lock: it may take any. Its panic ends there: what follows must happen all the same.
pub(crate) fn run_callers_code(call: impl FnOnce()) {
    check_none_is_held();
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Starts a thread that works on what is shared.
#[cfg(all(test, loom))]
pub(crate) fn spawn_with<T: 'static, R: 'static>(
    shared: &Arc<T>,
    work: impl FnOnce(&T) -> R + 'static,
) -> loom::thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    loom::thread::spawn(move || work(&shared))
}
