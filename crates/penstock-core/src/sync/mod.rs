//! How threads wait for each other: tickets, queues and the locks under them. Checked with loom. And what they count.
//!
//! Under `--cfg loom` the locks are loom's, otherwise those of `std`.

pub(crate) mod channel;
pub(crate) mod counter;
pub(crate) mod generation;
pub(crate) mod mailbox;
pub(crate) mod queue;
pub(crate) mod ticket;
pub(crate) mod unheard;

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

use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Locks. A panic elsewhere does not matter: every critical section leaves a consistent state behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification until the deadline, or without a limit if there is none.
///
/// Returns the guard in every case. The caller checks its condition again, then the clock.
pub fn wait_until<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> MutexGuard<'a, T> {
    match deadline {
        None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(deadline) => {
            let left = deadline.saturating_duration_since(Instant::now());
            condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
        }
    }
}

/// The deadline of a timeout; none if the clock cannot represent it.
pub fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Whether the deadline has passed.
pub fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
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
