//! Failures that no call has reported yet, so that a program can report them when it ends.
//!
//! Plain atomics, which a fork cannot tear. All orderings are `Relaxed`: the numbers are independent, and a program
//! that exits has waited for its workers through the queues' locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The bytes that such failures have lost, of all streams.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The bytes that one stream's failure has lost, until a call reports it.
#[derive(Default)]
pub(crate) struct Unheard {
    bytes: AtomicU64,
    /// The owner discarded everything in flight, so the loss needs no report.
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

/// Returns how many bytes were lost to failures that no call has reported, and resets the count to 0.
#[must_use]
pub fn take_unheard_bytes() -> u64 {
    BYTES.swap(0, Relaxed)
}
