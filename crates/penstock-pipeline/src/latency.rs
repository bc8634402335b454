//! Latencies: each thread records its own; statistics merge them.

use std::sync::{Mutex, TryLockError};

use hdrhistogram::Histogram;
use penstock_core::engine::lock;

/// The longest distinguishable time, an hour. Longer times count as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Two digits: values are accurate to 1 %, and a histogram takes 35 KiB. Three digits would take eight times as much,
/// and displace the chunks from the nearest cache.
const DIGITS: u8 = 2;

/// The distribution of a duration.
///
/// All values are accurate to 1 %. They are 0 while the count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Latency {
    /// Number of measurements.
    pub count: u64,
    /// The shortest time in nanoseconds. All following values are in nanoseconds.
    pub min_ns: u64,
    /// Half of the times were no longer than this.
    pub p50_ns: u64,
    /// 95 % of the times were no longer than this.
    pub p95_ns: u64,
    /// 99 % of the times were no longer than this.
    pub p99_ns: u64,
    /// The longest time.
    pub max_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds and digits are allowed ones")
}

/// The times of one thread. Others lock it only to read it.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Histogram<u64>>);

impl Default for Recorder {
    fn default() -> Self {
        Self(Mutex::new(histogram()))
    }
}

impl Recorder {
    pub(crate) fn record(&self, ns: u64) {
        lock(&self.0).saturating_record(ns);
    }
}

/// The merged distribution of all recorders.
pub(crate) fn merged<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Latency {
    let mut all = histogram();
    for recorder in recorders {
        // Not awaited: in the child of a fork the lock may be held for ever.
        let own = match recorder.0.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(own)) => own.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        all.add(&*own).expect("all have the same bounds");
    }
    if all.is_empty() {
        return Latency::default();
    }
    Latency {
        count: all.len(),
        min_ns: all.min(),
        p50_ns: all.value_at_quantile(0.50),
        p95_ns: all.value_at_quantile(0.95),
        p99_ns: all.value_at_quantile(0.99),
        max_ns: all.max(),
        mean_ns: all.mean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_of_two_threads_become_one_distribution() {
        let recorders = [Recorder::default(), Recorder::default()];
        (1..=50).for_each(|us| recorders[0].record(us * 1000));
        (51..=100).for_each(|us| recorders[1].record(us * 1000));
        let latency = merged(&recorders);
        let near = |ns: u64, us: f64| (ns as f64 / 1000.0 - us).abs() <= 0.01 * us;
        assert_eq!(latency.count, 100);
        assert!(near(latency.min_ns, 1.0) && near(latency.max_ns, 100.0), "{latency:?}");
        assert!(
            near(latency.p50_ns, 50.0) && near(latency.p95_ns, 95.0) && near(latency.p99_ns, 99.0),
            "{latency:?}"
        );
        assert!((latency.mean_ns / 1000.0 - 50.5).abs() < 0.5, "{latency:?}");
    }

    #[test]
    fn no_time_is_too_long_or_too_short() {
        let recorder = Recorder::default();
        recorder.record(0);
        recorder.record(u64::MAX);
        let latency = merged([&recorder]);
        assert_eq!((latency.count, latency.min_ns), (2, 0));
        assert!(latency.max_ns >= LONGEST_NS);
    }
}
