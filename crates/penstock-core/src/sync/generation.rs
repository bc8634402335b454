//! Distinguishes what a process made from what it inherited by a fork.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many forks led to this process.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Called in the child of a fork: everything made so far belongs to the parent.
pub(crate) fn begin_generation() {
    // Relaxed: the child of a fork has one thread.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks that led to this process.
pub(crate) fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
