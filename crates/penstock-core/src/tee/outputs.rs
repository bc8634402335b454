//! The outputs of a tee, on their owners' side.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::report::{OutputReport, TeeEnd, TeePolicy};
use crate::error::Error;
use crate::runtime::task::Live;
use crate::sys::fd::{Kind, StreamId};

/// Ended outputs that a tee remembers, so that one that runs for months does not grow. Guessed: more than anybody
/// reads.
const REMEMBERED: usize = 1000;

/// One output of a [`Tee`](crate::Tee), and its report.
#[derive(Clone, Debug)]
pub struct TeeOutput(pub(super) Arc<Output>);

#[derive(Debug)]
pub(super) struct Output {
    pub(super) number: i32,
    pub(super) id: StreamId,
    pub(super) policy: TeePolicy,
    /// Whether it was asked to be removed: it may be added again, even if it has not ended yet.
    pub(super) leaves: AtomicBool,
    pub(super) report: Live<OutputReport>,
}

impl TeeOutput {
    /// The number of the descriptor that it was added by.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number
    }

    /// Its policy.
    #[must_use]
    pub fn policy(&self) -> TeePolicy {
        self.0.policy
    }

    /// What became of it so far.
    #[must_use]
    pub fn report(&self) -> OutputReport {
        self.0.report.get()
    }

    /// Whether the two are the same output.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A summary of outputs that ended so long ago that they are not listed any more.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Forgotten {
    /// How many.
    pub outputs: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How many of these were evicted.
    pub evictions: u64,
    /// The first of their failures.
    pub first_error: Option<Error>,
    /// Bytes taken for them that did not arrive.
    pub bytes_lost: u64,
}

/// The outputs of a tee, running and ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Outputs {
    added: u64,
    /// Those that had not ended when the last one was added.
    running: Vec<Listed>,
    /// The last ones that had, oldest first.
    ended: VecDeque<Listed>,
    forgotten: Forgotten,
}

#[derive(Clone, Debug)]
struct Listed {
    /// When it was added, counted from 0.
    index: u64,
    output: TeeOutput,
}

impl Listed {
    fn has_ended(&self) -> bool {
        self.output.report().end.is_some()
    }

    fn leads_to(&self, id: StreamId) -> bool {
        self.output.0.id == id
    }
}

impl Outputs {
    /// Adds an output. Returns false if it is there already.
    pub(super) fn add(&mut self, new: &TeeOutput, kind: Kind) -> bool {
        self.ended.extend(self.running.extract_if(.., |listed| listed.has_ended()));
        while self.ended.len() > REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forgotten.note(&oldest.output);
        }
        // Relaxed: whoever adds it again does that after the removal, which set it.
        let stays = |listed: &Listed| !listed.output.0.leaves.load(Ordering::Relaxed);
        if kind != Kind::Other && self.running.iter().any(|other| other.leads_to(new.0.id) && stays(other)) {
            return false;
        }
        self.running.push(Listed { index: self.added, output: new.clone() });
        self.added += 1;
        true
    }

    /// Removes an output that could not be handed to the thread.
    pub(super) fn withdraw(&mut self, output: &TeeOutput) {
        self.running.retain(|listed| !listed.output.is(output));
    }

    /// The last added of those that lead there.
    pub(super) fn find(&self, id: StreamId) -> Option<TeeOutput> {
        let there = self.running.iter().chain(&self.ended).filter(|listed| listed.leads_to(id));
        there.max_by_key(|listed| listed.index).map(|listed| listed.output.clone())
    }

    /// All listed ones in the order in which they were added, and the summary of the others.
    pub(super) fn report(self) -> (Vec<TeeOutput>, Forgotten) {
        let mut listed: Vec<_> = self.ended.into_iter().chain(self.running).collect();
        listed.sort_unstable_by_key(|listed| listed.index);
        (listed.into_iter().map(|listed| listed.output).collect(), self.forgotten)
    }
}

impl Forgotten {
    fn note(&mut self, output: &TeeOutput) {
        let report = output.report();
        self.outputs += 1;
        self.bytes_lost += report.bytes_lost;
        self.failures += u64::from(report.error.is_some());
        self.evictions += u64::from(report.end == Some(TeeEnd::Evicted));
        self.first_error = self.first_error.take().or(report.error);
    }
}
