//! The policy of a stream's worker.

use std::sync::Mutex;

use crate::sync::lock;
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// What owners want, and what came of it.
#[derive(Default)]
pub(super) struct WorkerPolicy(Mutex<State>);

#[derive(Default)]
struct State {
    wanted: Option<ThreadPolicy>,
    applied: Option<AppliedPolicy>,
}

impl WorkerPolicy {
    /// The worker applies it before its next write.
    pub(super) fn want(&self, wanted: Option<ThreadPolicy>) {
        *lock(&self.0) = State { wanted, applied: None };
    }

    pub(super) fn is_wanted(&self) -> bool {
        lock(&self.0).wanted.is_some()
    }

    /// What the worker runs with.
    pub(super) fn applied(&self) -> Option<AppliedPolicy> {
        lock(&self.0).applied.clone()
    }

    /// Called by a new worker, which has the process's.
    pub(super) fn begin(&self) {
        lock(&self.0).applied = None;
    }

    /// Called by the worker between writes, so that a later policy is applied too.
    pub(super) fn apply(&self) {
        let policy = lock(&self.0);
        let unapplied = if policy.applied.is_some() { None } else { policy.wanted.clone() };
        drop(policy);
        let Some(wanted) = unapplied else { return };
        // Without the lock: this may read the machine's topology, and readers of statistics must not wait for that.
        let applied = wanted.apply();
        let mut state = lock(&self.0);
        if state.wanted.as_ref() == Some(&wanted) {
            state.applied = Some(applied);
        }
    }
}
