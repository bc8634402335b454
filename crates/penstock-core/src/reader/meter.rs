//! What a reader counts: plain atomics, so that reading them costs the worker nothing.
//!
//! All orderings are `Relaxed`: each number stands for itself, and nothing is published through them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Meter {
    frames_read: AtomicU64,
    frames_delivered: AtomicU64,
    bytes_read: AtomicU64,
    caller_blocked_ns: AtomicU64,
    worker_blocked_ns: AtomicU64,
    full_ns: AtomicU64,
    transforming_ns: AtomicU64,
}

fn add(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(time.as_nanos() as u64, Relaxed);
}

fn time(counter: &AtomicU64) -> Duration {
    Duration::from_nanos(counter.load(Relaxed))
}

impl Meter {
    pub(super) fn add_frame_read(&self) {
        self.frames_read.fetch_add(1, Relaxed);
    }

    pub(super) fn frames_read(&self) -> u64 {
        self.frames_read.load(Relaxed)
    }

    pub(super) fn add_frame_delivered(&self) {
        self.frames_delivered.fetch_add(1, Relaxed);
    }

    pub(super) fn frames_delivered(&self) -> u64 {
        self.frames_delivered.load(Relaxed)
    }

    pub(super) fn add_read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Relaxed)
    }

    /// Time that callers waited for frames.
    pub(super) fn add_caller_blocked(&self, waited: Duration) {
        add(&self.caller_blocked_ns, waited);
    }

    pub(super) fn caller_blocked(&self) -> Duration {
        time(&self.caller_blocked_ns)
    }

    /// Time that the worker waited for the source.
    pub(super) fn add_worker_blocked(&self, waited: Duration) {
        add(&self.worker_blocked_ns, waited);
    }

    pub(super) fn worker_blocked(&self) -> Duration {
        time(&self.worker_blocked_ns)
    }

    /// Time that the worker waited for room.
    pub(super) fn add_full(&self, waited: Duration) {
        add(&self.full_ns, waited);
    }

    pub(super) fn full(&self) -> Duration {
        time(&self.full_ns)
    }

    /// Time that went into the transform.
    pub(super) fn add_transforming(&self, spent: Duration) {
        add(&self.transforming_ns, spent);
    }

    pub(super) fn transforming(&self) -> Duration {
        time(&self.transforming_ns)
    }
}
