//! Failures that no call has reported. The exit of the program reports them.
//!
//! Plain atomics, which a fork cannot tear. All orderings are `Relaxed`: the numbers are independent, and a program
//! that exits has waited for its workers through the queues' locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes lost to such failures, of all streams.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The bytes that one stream's failure lost, until they are reported.
#[derive(Default)]
pub(crate) struct Unheard {
    bytes: AtomicU64,
    /// Everything in flight was discarded on request, so that its loss needs no report.
    is_discarded: AtomicBool,
}

impl Unheard {
    /// Called when the stream fails.
    pub(crate) fn add(&self, bytes_lost: u64) {
        if !self.is_discarded.load(Relaxed) {
            self.bytes.fetch_add(bytes_lost, Relaxed);
            BYTES.fetch_add(bytes_lost, Relaxed);
        }
    }

    /// Called when the failure is returned to a caller.
    pub(crate) fn note_heard(&self) {
        let bytes = self.bytes.swap(0, Relaxed);
        // Saturating: in the child of a fork, the parent's failures are not counted.
        let _ = BYTES.fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(bytes)));
    }

    pub(crate) fn set_discarded(&self, is_discarded: bool) {
        self.is_discarded.store(is_discarded, Relaxed);
        if is_discarded {
            self.note_heard();
        }
    }
}

/// Returns the bytes lost to failures that no call has reported, and resets the count. The caller reports them.
#[must_use]
pub fn take_unheard_bytes() -> u64 {
    BYTES.swap(0, Relaxed)
}
