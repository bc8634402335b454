//! What a stream counts: plain atomics, so that reading them costs the worker nothing and a fork cannot tear them.
//!
//! All orderings are `Relaxed`: each number stands for itself, and nothing is published through them.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::writer::transport::choice::{Reason, Transport};

#[derive(Default)]
pub(crate) struct Meter {
    /// Bytes that the destination has taken, by transport.
    written: [AtomicU64; 3],
    /// Accepted bytes that will not arrive: discarded, or lost to a failure.
    lost: AtomicU64,
    caller_blocked_ns: AtomicU64,
    worker_blocked_ns: AtomicU64,
    worker_busy_ns: AtomicU64,
    transforming_ns: AtomicU64,
    /// The last transport and its reason, each plus one; zero before the first write.
    transport: AtomicU8,
    reason: AtomicU8,
}

const TRANSPORTS: [Transport; 3] = [Transport::Write, Transport::Staged, Transport::ZeroCopy];

impl Meter {
    pub(crate) fn add_written(&self, transport: Transport, bytes: usize) {
        self.written[transport as usize].fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.iter().map(|bytes| bytes.load(Relaxed)).sum()
    }

    pub(crate) fn written_by(&self) -> [(Transport, u64); 3] {
        TRANSPORTS.map(|transport| (transport, self.written[transport as usize].load(Relaxed)))
    }

    pub(crate) fn set_lost(&self, bytes: u64) {
        self.lost.store(bytes, Relaxed);
    }

    pub(crate) fn add_lost(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    pub(crate) fn add_caller_blocked(&self, time: Duration) {
        self.caller_blocked_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn caller_blocked(&self) -> Duration {
        Duration::from_nanos(self.caller_blocked_ns.load(Relaxed))
    }

    pub(crate) fn add_worker_blocked(&self, time: Duration) {
        self.worker_blocked_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn worker_blocked(&self) -> Duration {
        Duration::from_nanos(self.worker_blocked_ns.load(Relaxed))
    }

    /// Adds time that the worker spent on a write, waiting included.
    pub(crate) fn add_worker_busy(&self, time: Duration) {
        self.worker_busy_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn worker_busy(&self) -> Duration {
        Duration::from_nanos(self.worker_busy_ns.load(Relaxed))
    }

    /// Adds time spent in a transform.
    pub(crate) fn add_transforming(&self, time: Duration) {
        self.transforming_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    pub(crate) fn transforming(&self) -> Duration {
        Duration::from_nanos(self.transforming_ns.load(Relaxed))
    }

    pub(crate) fn set_choice(&self, transport: Transport, reason: Reason) {
        self.transport.store(transport as u8 + 1, Relaxed);
        self.reason.store(reason as u8 + 1, Relaxed);
    }

    pub(crate) fn choice(&self) -> Option<(Transport, Reason)> {
        let transport = self.transport.load(Relaxed).checked_sub(1)?;
        let reason = self.reason.load(Relaxed).checked_sub(1)?;
        Some((*TRANSPORTS.get(usize::from(transport))?, Reason::from_index(reason)?))
    }

    /// Resets all counts, in the child of a fork.
    pub(crate) fn reset(&self) {
        self.written.iter().for_each(|bytes| bytes.store(0, Relaxed));
        let times =
            [&self.caller_blocked_ns, &self.worker_blocked_ns, &self.worker_busy_ns, &self.transforming_ns];
        for counter in times.into_iter().chain([&self.lost]) {
            counter.store(0, Relaxed);
        }
        self.transport.store(0, Relaxed);
        self.reason.store(0, Relaxed);
    }
}
