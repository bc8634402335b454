//! What the exit of a program waits for.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::task;

/// Waits for relays and tees in the background while any of them makes progress, and cancels waits for FIFOs. To be
/// called last in a program. Returns the number of relays and tees that it cut off: after `stall` without progress, or
/// when `keep_on`, called every 20 ms, returns false.
#[must_use]
pub fn drain_tasks(stall: Duration, mut keep_on: impl FnMut() -> bool) -> usize {
    const LOOK: Duration = Duration::from_millis(20);
    let (draining, waiting) = task::running();
    waiting.iter().for_each(|task| task.cancel());
    let mut seen = (usize::MAX, 0);
    let mut since = Instant::now();
    loop {
        let (running, _) = task::running();
        let unfinished: Vec<_> =
            draining.iter().filter(|task| running.iter().any(|other| Arc::ptr_eq(other, task))).collect();
        let moved = draining.iter().map(|task| task.moved_bytes.get()).sum();
        if unfinished.is_empty() {
            return 0;
        }
        if (unfinished.len(), moved) != seen {
            seen = (unfinished.len(), moved);
            since = Instant::now();
        }
        if since.elapsed() >= stall || !keep_on() {
            unfinished.iter().for_each(|task| task.cancel());
            return unfinished.len();
        }
        thread::sleep(LOOK);
    }
}
