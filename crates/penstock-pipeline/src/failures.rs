//! Failed chunks: whether they end the pipeline.

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
}

impl Failures {
    pub(super) fn new(on_error: OnError) -> Self {
        Self { on_error, skipped: Mutex::default() }
    }

    /// Lists a skipped failure, or returns the error that ends the pipeline.
    pub(super) fn settle(&self, fault: Arc<ChunkError>) -> Option<Error> {
        match self.on_error {
            OnError::Skip => {
                lock(&self.skipped).push(fault);
                None
            }
            OnError::Raise => Some(Error::custom(fault)),
        }
    }

    /// The skipped failures, in order.
    pub(super) fn skipped(&self) -> Vec<Arc<ChunkError>> {
        lock(&self.skipped).clone()
    }
}
