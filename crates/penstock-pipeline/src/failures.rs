//! Failed chunks: whether they end the pipeline.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use penstock_core::Error;
use penstock_core::engine::lock;

use super::chunk::ChunkError;

/// What happens when a chunk fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The pipeline ends there.
    #[default]
    Raise,
    /// The pipeline continues with the next chunk. The failure is listed in
    /// [`Pipeline::skipped`](crate::Pipeline::skipped).
    Skip,
}

/// The failures of a pipeline.
pub(super) struct Failures {
    on_error: OnError,
    skipped: Mutex<Vec<Arc<ChunkError>>>,
    /// With `Raise`, the first of those that the last stage gave, and its place in the order.
    first: Mutex<Option<(u64, Arc<ChunkError>)>>,
    /// The last place that is wanted. Relaxed: the channel's lock orders it for whoever finds the end.
    last: AtomicU64,
}

impl Failures {
    pub(super) fn new(on_error: OnError) -> Self {
        Self { on_error, skipped: Mutex::default(), first: Mutex::default(), last: u64::MAX.into() }
    }

    /// Notes a failure, before it goes to where the consumers take it: all of them learn of it, not only the one who takes it.
    pub(super) fn note(&self, place: u64, fault: &Arc<ChunkError>) {
        let mut first = lock(&self.first);
        if self.on_error == OnError::Raise && first.as_ref().is_none_or(|(before, _)| place < *before) {
            *first = Some((place, Arc::clone(fault)));
        }
    }

    /// Notes that nothing after that place is wanted, so that it cannot fail either.
    pub(super) fn end_after(&self, place: u64) {
        self.last.fetch_min(place, Relaxed);
    }

    /// Fails if a failure before that place ends the pipeline.
    pub(super) fn check(&self, place: u64) -> Result<(), Error> {
        let is_wanted = |before| before < place && before <= self.last.load(Relaxed);
        match &*lock(&self.first) {
            Some((before, fault)) if is_wanted(*before) => Err(Error::custom(Arc::clone(fault))),
            _ => Ok(()),
        }
    }

    /// Lists a failure if the pipeline skips failures. Returns whether it does.
    pub(super) fn skip(&self, fault: &Arc<ChunkError>) -> bool {
        let skips = self.on_error == OnError::Skip;
        if skips {
            lock(&self.skipped).push(Arc::clone(fault));
        }
        skips
    }

    /// The skipped failures, in order.
    pub(super) fn skipped(&self) -> Vec<Arc<ChunkError>> {
        lock(&self.skipped).clone()
    }
}
