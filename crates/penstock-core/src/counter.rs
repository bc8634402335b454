//! Counters that threads share: plain atomics, so that counting costs almost nothing and a fork cannot tear them.
//!
//! All orderings are `Relaxed`: each number stands for itself, and nothing is published through them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A number.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the number.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// Sets the number.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A sum of times.
#[derive(Debug, Default)]
pub struct Stopwatch(Counter);

impl Stopwatch {
    /// Adds a time to the sum.
    pub fn add(&self, time: Duration) {
        self.0.add(time.as_nanos() as u64);
    }

    /// Returns the sum.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.get())
    }
}
