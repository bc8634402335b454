//! What a reader counts.

use crate::counter::{Counter, Stopwatch};

#[derive(Default)]
pub(super) struct Meter {
    pub(super) frames_read: Counter,
    pub(super) frames_delivered: Counter,
    pub(super) bytes_read: Counter,
    /// Time that callers waited for frames.
    pub(super) caller_blocked: Stopwatch,
    /// Time that the worker waited for the source.
    pub(super) worker_blocked: Stopwatch,
    /// Time that the worker waited for room.
    pub(super) worker_full: Stopwatch,
    /// Time spent in the transform.
    pub(super) transforming: Stopwatch,
}
