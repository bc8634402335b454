//! Statistics of a pipeline.

use crate::latency::Latency;
use penstock_cpu::AppliedPolicy;

/// Statistics of a pipeline, up to now or to its end.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Stats {
    /// The source, the stages and the sink, in this order.
    pub stages: Vec<StageStats>,
    /// Time from the beginning of a chunk's reading until the sink had it.
    pub end_to_end: Latency,
    /// Time since the pipeline started.
    pub elapsed_ns: u64,
    /// Unused memory in its pool.
    pub pool_free_bytes: usize,
}

/// Statistics of one part, all its workers together.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StageStats {
    /// Its name.
    pub name: String,
    /// Number of threads. For iteration, the caller counts as one.
    pub workers: usize,
    /// Bytes taken.
    pub bytes_in: u64,
    /// Bytes passed on.
    pub bytes_out: u64,
    /// Chunks that failed in it.
    pub failed: u64,
    /// Time worked on a chunk, without waits.
    pub work: Latency,
    /// Time that chunks waited for it, since the part before had finished with them.
    pub queued: Latency,
    /// Time that it waited for a lock that its code needs to run, as a Python callable does for the GIL. Its count is 0
    /// where there is none.
    pub lock: Latency,
    /// Time that its workers waited for chunks, added up; for a source, for its descriptor.
    pub input_blocked_ns: u64,
    /// Time that its workers waited for room after them, added up.
    pub output_blocked_ns: u64,
    /// Chunks that wait for it now.
    pub queue_items: usize,
    /// Memory of the chunks that wait for it now.
    pub queue_bytes: usize,
    /// The policies that its workers run with, where one was asked for.
    pub policies: Vec<AppliedPolicy>,
}

impl StageStats {
    /// The share of its workers' time in which they worked. Time after their end does not count, so that a part which
    /// ended long ago does not look idle.
    #[must_use]
    pub fn busy(&self) -> f64 {
        let [work_ns, lock_ns] = [&self.work, &self.lock].map(total_ns);
        let all = work_ns + lock_ns + (self.input_blocked_ns + self.output_blocked_ns) as f64;
        if all > 0.0 { work_ns / all } else { 0.0 }
    }

    /// How long each of its workers worked. The share says little of a part that has ended: it may never have waited.
    fn work_of_each_ns(&self) -> f64 {
        total_ns(&self.work) / self.workers as f64
    }
}

fn total_ns(times: &Latency) -> f64 {
    times.mean_ns * times.count as f64
}

/// With a smaller share of the time than this, no part is the slowest. Chosen, as for encoders and decoders.
const CLEAR_SHARE: f64 = 0.2;

impl Stats {
    /// The slowest part: the one whose workers worked the longest. None if that was hardly any of the time, as when all wait for a
    /// source's descriptor.
    #[must_use]
    pub fn bottleneck(&self) -> Option<&StageStats> {
        let slowest = |a: &&StageStats, b: &&StageStats| a.work_of_each_ns().total_cmp(&b.work_of_each_ns());
        let clear_ns = CLEAR_SHARE * self.elapsed_ns as f64;
        self.stages.iter().max_by(slowest).filter(|part| part.work_of_each_ns() > clear_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, workers: usize, work_ns: u64, input_blocked_ns: u64) -> StageStats {
        let none = Latency::default();
        let work = Latency { count: 1, mean_ns: work_ns as f64, ..none };
        StageStats {
            name: name.to_owned(),
            workers,
            bytes_in: 0,
            bytes_out: 0,
            failed: 0,
            work,
            queued: none,
            lock: none,
            input_blocked_ns,
            output_blocked_ns: 0,
            queue_items: 0,
            queue_bytes: 0,
            policies: Vec::new(),
        }
    }

    #[test]
    fn bottleneck_is_the_part_that_takes_the_longest() {
        let done_at_once = part("source", 1, 100, 0);
        let slow = part("slow", 1, 5_000_000, 200_000);
        let on_two_threads = part("on two threads", 2, 6_000_000, 4_000_000);
        let stages = vec![done_at_once, slow, on_two_threads];
        let mut stats =
            Stats { stages, end_to_end: Latency::default(), elapsed_ns: 5_200_000, pool_free_bytes: 0 };
        assert_eq!(stats.bottleneck().map(|part| &*part.name), Some("slow"));
        stats.elapsed_ns *= 10;
        assert!(stats.bottleneck().is_none(), "each waited for most of the time");
    }
}
