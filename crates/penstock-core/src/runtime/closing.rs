//! Closes that nobody waits for but the end of the program.
//!
//! close(2) of a file may write it to a network, and that of a serial line waits until everything is sent. Whoever drops a
//! value does not expect to wait, and may hold what others need: Python's interpreter, for instance.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::runtime::exit::{self, ProcessEnd, STALL};
use crate::runtime::fork::PerProcess;
use crate::runtime::thread::{Signals, is_worker, spawn};

/// Closes on threads of their own that have not ended.
static PENDING: PerProcess<AtomicUsize> = PerProcess::new(AtomicUsize::default);

/// Whether the end of the program waits for them, or has waited. It does so once: several functions may run at the exit.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

static DRAIN: ProcessEnd = ProcessEnd::new(run_at_exit);

extern "C" fn run_at_exit() {
    drain(STALL, || true);
}

/// Calls the function, which closes what may take long, where that keeps nobody waiting: here if this is a worker or the
/// program is ending, and otherwise on a thread, for which the end of the program waits.
pub(super) fn apart(close: impl FnOnce() + Send + 'static) {
    if is_worker() || IS_ENDING.load(Ordering::Relaxed) {
        return close();
    }
    DRAIN.arm();
    // Relaxed: publishes nothing.
    PENDING.get().fetch_add(1, Ordering::Relaxed);
    on_a_thread(|| {
        close();
        PENDING.get().fetch_sub(1, Ordering::Release); // see `drain`
    });
}

/// Calls the function on a thread of its own, so that no close waits for another; here if the system refuses a thread.
pub(super) fn on_a_thread(close: impl FnOnce() + Send + 'static) {
    let close = AtDrop(Some(close));
    let _ = spawn(Signals::Blocked, || drop(close)); // which drops refused work
}

struct AtDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        if let Some(close) = self.0.take() {
            close();
        }
    }
}

/// Waits at the end of a program for these closes: until `stall` has passed without the end of one, or `keep_on` returns
/// false.
pub(super) fn drain(stall: Duration, keep_on: impl FnMut() -> bool) {
    // Relaxed, here and in `apart`: nothing is published with the flag.
    if IS_ENDING.swap(true, Ordering::Relaxed) {
        return;
    }
    // Acquire: pairs with the Release in `apart`, so that what a close has reported is found.
    let pending = || PENDING.get().load(Ordering::Acquire);
    exit::drain(stall, keep_on, || (pending() as u64, 0));
    let cut_off = pending();
    if cut_off > 0 {
        exit::report(&format!(
            "the program ended while {cut_off} files were being closed. Their last bytes may be lost"
        ));
    }
}
