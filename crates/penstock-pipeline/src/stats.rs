//! Statistics of a pipeline.

use std::fmt;
use std::ptr;

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

/// Which part is the slowest. As text, one sentence with its figures.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Bottleneck<'a> {
    /// Nothing has come through yet.
    Unknown,
    /// A part that has worked.
    Part {
        /// The one whose workers worked the longest.
        slowest: &'a StageStats,
        /// The others that have worked.
        others: Vec<&'a StageStats>,
    },
}

impl Stats {
    /// Finds the slowest part.
    pub fn bottleneck(&self) -> Bottleneck<'_> {
        let at_work = || self.stages.iter().filter(|stage| stage.work.count > 0);
        match at_work().max_by(|a, b| a.work_of_each_ns().total_cmp(&b.work_of_each_ns())) {
            None => Bottleneck::Unknown,
            Some(slowest) => {
                let others = at_work().filter(|other| !ptr::eq(*other, slowest)).collect();
                Bottleneck::Part { slowest, others }
            }
        }
    }
}

impl fmt::Display for Bottleneck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Part { slowest, others } = self else { return f.write_str("nothing has come through yet") };
        write!(f, "{}: busy {:.0} % of its time", slowest.name, 100.0 * slowest.busy())?;
        if slowest.workers != 1 {
            write!(f, " on {} threads", slowest.workers)?;
        }
        write!(f, ", {:.1} µs a chunk (median)", slowest.work.p50_ns as f64 / 1000.0)?;
        for (index, other) in others.iter().enumerate() {
            let before = if index == 0 { ";" } else { "," };
            write!(f, "{before} {} {:.0} %", other.name, 100.0 * other.busy())?;
        }
        Ok(())
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
    fn the_slowest_part_is_the_one_that_takes_the_longest() {
        let done_at_once = part("source", 1, 100, 0);
        let slow = part("slow", 1, 5_000_000, 200_000);
        let on_two_threads = part("on two threads", 2, 6_000_000, 4_000_000);
        let stages = vec![done_at_once, slow, on_two_threads];
        let stats =
            Stats { stages, end_to_end: Latency::default(), elapsed_ns: 5_200_000, pool_free_bytes: 0 };
        let said = stats.bottleneck().to_string();
        assert!(said.starts_with("slow: busy 96 % of its time"), "{said}");
        assert!(said.contains("source 100 %"), "{said}");
    }
}
