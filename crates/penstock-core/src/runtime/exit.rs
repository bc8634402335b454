//! What the exit of a program waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys::process;

/// How long a program that ends waits without any progress. Guessed; the Python package waits as long.
pub(crate) const STALL: Duration = Duration::from_secs(5);

/// The host sees to the drains itself: an interpreter, which ends long before the process.
static HOST_DRAINS: AtomicBool = AtomicBool::new(false);

/// Leaves the end of the program to the host: it calls [`drain_tasks`](crate::process::drain_tasks) and [`drain_streams`](crate::process::drain_streams).
/// To be called before anything is written.
pub fn leave_exit_to_host() {
    HOST_DRAINS.store(true, Ordering::Relaxed);
}

/// A function that the process runs when it ends, once it is armed.
pub(crate) struct ProcessEnd {
    is_armed: AtomicBool,
    run: extern "C" fn(),
}

impl ProcessEnd {
    pub(crate) const fn new(run: extern "C" fn()) -> Self {
        Self { is_armed: AtomicBool::new(false), run }
    }

    pub(crate) fn arm(&self) {
        // Relaxed: nothing is published with either. A child of a fork inherits what is armed.
        if !HOST_DRAINS.load(Ordering::Relaxed) && !self.is_armed.swap(true, Ordering::Relaxed) {
            process::at_exit(self.run);
        }
    }
}

/// Reports on stderr what the end of the program lost.
pub(crate) fn report(loss: &str) {
    process::complain(&format!("penstock: {loss}\n"));
}

/// Waits until `look` returns no pending items, or until it has returned the same items and bytes for `stall`, or until
/// `keep_on` returns false.
pub(crate) fn drain(
    stall: Duration,
    mut keep_on: impl FnMut() -> bool,
    mut look: impl FnMut() -> (u64, u64),
) {
    const LOOK: Duration = Duration::from_millis(20);
    let (mut seen, mut since) = (look(), Instant::now());
    while seen.0 > 0 && since.elapsed() < stall && keep_on() {
        thread::sleep(LOOK);
        let now = look();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}
