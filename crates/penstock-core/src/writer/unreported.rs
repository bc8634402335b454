//! Failures that no call has reported. The exit of the program reports them.
//!
//! All orderings are `Relaxed`: the numbers are independent, and a program that exits has waited for its workers through the
//! queues' locks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::runtime::fork::PerProcess;

/// Bytes lost to such failures, of all streams.
static BYTES: PerProcess<AtomicU64> = PerProcess::new(|| AtomicU64::new(0));

/// The bytes that one stream's failure lost, until they are reported.
#[derive(Default)]
pub(crate) struct Unreported {
    bytes: AtomicU64,
    /// Everything in flight was discarded on request, so that its loss needs no report.
    is_discarded: AtomicBool,
}

impl Unreported {
    /// Called when the stream fails.
    pub(crate) fn add(&self, bytes_lost: u64) {
        if !self.is_discarded.load(Relaxed) {
            self.bytes.fetch_add(bytes_lost, Relaxed);
            BYTES.get().fetch_add(bytes_lost, Relaxed);
        }
    }

    /// Called when the failure is returned to a caller.
    pub(crate) fn note_reported(&self) {
        let bytes = self.bytes.swap(0, Relaxed);
        // Saturating: an exit may have taken the sum.
        let _ = BYTES.get().fetch_update(Relaxed, Relaxed, |all| Some(all.saturating_sub(bytes)));
    }

    pub(crate) fn set_discarded(&self, is_discarded: bool) {
        self.is_discarded.store(is_discarded, Relaxed);
        if is_discarded {
            self.note_reported();
        }
    }
}

/// Returns the bytes lost to failures that no call has reported, and resets the count. The caller reports them.
#[must_use]
pub fn take_unreported_bytes() -> u64 {
    BYTES.get().swap(0, Relaxed)
}
