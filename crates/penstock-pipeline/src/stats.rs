//! What a pipeline says of itself.

use crate::latency::Latency;
use penstock_cpu::AppliedPolicy;

/// How a pipeline fares, from its beginning to the moment of asking or to its end.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Stats {
    /// The source, the stages and the sink, in this order.
    pub stages: Vec<StageStats>,
    /// From when the source began a chunk to when the sink had it.
    pub end_to_end: Latency,
    /// How long the pipeline has been at it.
    pub elapsed_ns: u64,
    /// Memory that its pool keeps and nobody uses.
    pub pool_free_bytes: usize,
}

/// How one part of a pipeline fares, all its workers together.
#[derive(Clone, Debug, PartialEq)]
pub struct StageStats {
    /// Its name.
    pub name: String,
    /// How many threads work on it; for a sink that is iteration, the caller counts as one.
    pub workers: usize,
    /// Bytes that it took.
    pub bytes_in: u64,
    /// Bytes that it gave.
    pub bytes_out: u64,
    /// Chunks that failed in it.
    pub failed: u64,
    /// How long it worked on a chunk, waits left out.
    pub work: Latency,
    /// How long chunks waited for it, from when the part before was done with them.
    pub queued: Latency,
    /// How long it waited for leave to run, as a Python callable does for the GIL; without a count where nothing does.
    pub lock: Latency,
    /// Time that its workers waited for chunks, added up; a source's, for its descriptor to have something.
    pub input_blocked_ns: u64,
    /// Time that its workers waited for room behind them, added up.
    pub output_blocked_ns: u64,
    /// Chunks that are waiting for it now.
    pub queue_items: usize,
    /// The memory of the chunks that are waiting for it now.
    pub queue_bytes: usize,
    /// What its workers run with, where a policy was asked for.
    pub policies: Vec<AppliedPolicy>,
}

impl StageStats {
    /// The time that its workers worked, added up.
    #[must_use]
    pub fn work_ns(&self) -> f64 {
        self.work.mean_ns * self.work.count as f64
    }

    /// The part of its workers' time in which they worked: of what they worked and waited, so that a part which ended long ago
    /// is not taken for idle.
    fn busy(&self) -> f64 {
        let lock_ns = self.lock.mean_ns * self.lock.count as f64;
        let all = self.work_ns() + lock_ns + (self.input_blocked_ns + self.output_blocked_ns) as f64;
        if all > 0.0 { self.work_ns() / all } else { 0.0 }
    }
}

impl Stats {
    /// Who is slow, in one graph, with the figures that say so.
    #[must_use]
    pub fn bottleneck(&self) -> String {
        let slowest = self.stages.iter().filter(|stage| stage.work.count > 0);
        let Some(stage) = slowest.max_by(|a, b| a.busy().total_cmp(&b.busy())) else {
            return "nothing has come through yet".into();
        };
        let workers =
            if stage.workers == 1 { String::new() } else { format!(" on {} threads", stage.workers) };
        let others: Vec<_> = self
            .stages
            .iter()
            .filter(|other| other.work.count > 0 && other.name != stage.name)
            .map(|other| format!("{} {:.0} %", other.name, 100.0 * other.busy()))
            .collect();
        let beside = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
        format!(
            "{}: busy {:.0} % of its time{workers}, {:.1} µs a chunk (median){beside}",
            stage.name,
            100.0 * stage.busy(),
            stage.work.p50_ns as f64 / 1000.0,
        )
    }
}
