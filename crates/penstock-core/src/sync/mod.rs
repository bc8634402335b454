//! Who waits for whom: tickets, queues, and the locks under them. Checked with loom.
//!
//! The locks are loom's under `--cfg loom`, and those of `std` otherwise.

pub(crate) mod channel;
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

/// Locks, also after a panic elsewhere: all our critical sections leave whole states behind.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification until the deadline, or for as long as it takes when there is none.
///
/// Gives the guard back in every case; the caller looks at the state again, then at the clock.
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

/// The moment after which to give up; none for a wait so long that the clock cannot name its end.
pub fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Whether a deadline lies behind us.
pub fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
