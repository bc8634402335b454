//! What the exit of a program waits for.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::task;

/// Waits for relays and tees in the background while any of them makes progress, and cancels `Reader`s and waits for
/// FIFOs. To be called last in a program. Returns the number of relays and tees that it cut off: after `stall` without
/// progress, or when `keep_on`, called every 20 ms, returns false.
#[must_use]
pub fn drain_tasks(stall: Duration, keep_on: impl FnMut() -> bool) -> usize {
    let (mut unfinished, waiting) = task::running();
    waiting.iter().for_each(|task| task.cancel());
    drain(stall, keep_on, || {
        let (running, _) = task::running();
        unfinished.retain(|task| running.iter().any(|other| Arc::ptr_eq(other, task)));
        let moved: u64 = unfinished.iter().map(|task| task.moved_bytes.get()).sum();
        (unfinished.len() as u64, moved)
    });
    unfinished.iter().for_each(|task| task.cancel());
    unfinished.len()
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
