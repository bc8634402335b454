//! What becomes of chunks that fail.

use std::sync::{Arc, Mutex};

use penstock_core::Error;
use penstock_core::engine::lock;

use super::chunk::ChunkError;

/// What becomes of a pipeline when one of its chunks fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It ends there.
    #[default]
    Raise,
    /// It goes on with the next chunk, and the failure is on a list: see [`Pipeline::skipped`](crate::Pipeline::skipped).
    Skip,
}

/// A pipeline's failures so far.
pub(super) struct Failures {
    on_error: OnError,
    skipped: Mutex<Vec<Arc<ChunkError>>>,
}

impl Failures {
    pub(super) fn new(on_error: OnError) -> Self {
        Self { on_error, skipped: Mutex::default() }
    }

    /// Adds a failure to those that were skipped, or returns it as the error to end with.
    pub(super) fn settle(&self, fault: Arc<ChunkError>) -> Option<Error> {
        match self.on_error {
            OnError::Skip => {
                lock(&self.skipped).push(fault);
                None
            }
            OnError::Raise => Some(Error::custom(fault)),
        }
    }

    /// Those that were skipped, in order.
    pub(super) fn skipped(&self) -> Vec<Arc<ChunkError>> {
        lock(&self.skipped).clone()
    }
}
