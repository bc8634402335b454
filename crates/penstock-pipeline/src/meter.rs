//! What the parts of a pipeline measure while they work.

use std::sync::OnceLock;

use super::stats::StageStats;
use crate::latency::{Recorder, merged};
use penstock_core::engine::Counter;
use penstock_cpu::AppliedPolicy;

/// The measurements of one worker.
#[derive(Default)]
pub(super) struct Meter {
    work: Recorder,
    queued: Recorder,
    /// Only for workers that wait for a lock to run their code, as Python's do for the GIL.
    lock: OnceLock<Recorder>,
    bytes_in: Counter,
    bytes_out: Counter,
    input_blocked_ns: Counter,
    output_blocked_ns: Counter,
    failed: Counter,
    pub(super) policy: OnceLock<AppliedPolicy>,
}

impl Meter {
    pub(super) fn worked(&self, ns: u64, bytes_out: usize) {
        self.work.record(ns);
        self.bytes_out.add(bytes_out as u64);
    }

    pub(super) fn took(&self, queued_ns: u64, bytes_in: usize) {
        self.queued.record(queued_ns);
        self.bytes_in.add(bytes_in as u64);
    }

    pub(super) fn waited_for_lock(&self, ns: u64) {
        self.lock.get_or_init(Recorder::default).record(ns);
    }

    pub(super) fn failed(&self) {
        self.failed.add(1);
    }

    pub(super) fn blocked(&self, input_ns: u64, output_ns: u64) {
        self.input_blocked_ns.add(input_ns);
        self.output_blocked_ns.add(output_ns);
    }
}

/// A part of a pipeline: its name, and its workers' measurements.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) workers: Vec<Meter>,
}

impl Part {
    pub(super) fn new(name: impl Into<String>, workers: usize) -> Self {
        Self { name: name.into(), workers: (0..workers).map(|_| Meter::default()).collect() }
    }

    pub(super) fn stats(&self, queue: (usize, usize)) -> StageStats {
        let sum = |pick: fn(&Meter) -> &Counter| self.workers.iter().map(|worker| pick(worker).get()).sum();
        let policies = self.workers.iter().filter_map(|worker| worker.policy.get().cloned());
        StageStats {
            name: self.name.clone(),
            workers: self.workers.len(),
            bytes_in: sum(|worker| &worker.bytes_in),
            bytes_out: sum(|worker| &worker.bytes_out),
            failed: sum(|worker| &worker.failed),
            work: merged(self.workers.iter().map(|worker| &worker.work)),
            queued: merged(self.workers.iter().map(|worker| &worker.queued)),
            lock: merged(self.workers.iter().filter_map(|worker| worker.lock.get())),
            input_blocked_ns: sum(|worker| &worker.input_blocked_ns),
            output_blocked_ns: sum(|worker| &worker.output_blocked_ns),
            queue_items: queue.0,
            queue_bytes: queue.1,
            policies: policies.collect(),
        }
    }
}
