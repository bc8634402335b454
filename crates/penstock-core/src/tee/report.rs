//! What a tee is asked to do about its destinations, and what became of them.

use std::time::Duration;

use crate::error::Error;
use crate::relay::report::{Method, MethodReason, Relayed};

/// What is done about a destination that takes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeePolicy {
    /// All wait for it.
    #[default]
    Block,
    /// It is given up when it has taken nothing at all for so long while there was something to take. One that is merely slow
    /// stays.
    Evict {
        /// How long it may take nothing.
        after: Duration,
    },
}

/// Why a destination gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeeEnd {
    /// The source has ended, and all of it was delivered.
    SourceEnded,
    /// The source has failed, and all before that was delivered.
    SourceFailed,
    /// It was removed, after what it had taken was delivered.
    Removed,
    /// Its reader went away.
    Broken,
    /// It took nothing for longer than its policy allows.
    Evicted,
    /// The system refused, as a full disk does.
    Failed,
    /// The whole was cancelled.
    Cancelled,
}

impl TeeEnd {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceEnded => "source-ended",
            Self::SourceFailed => "source-failed",
            Self::Removed => "removed",
            Self::Broken => "broken",
            Self::Evicted => "evicted",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What became of one destination so far.
#[derive(Clone, Debug, PartialEq)]
pub struct OutletReport {
    /// Where in the stream it began: 0 unless it was added later.
    pub start: u64,
    /// Bytes that it has taken; after its reader went away, those that the reader had taken.
    pub bytes_delivered: u64,
    /// Bytes that were taken for it and did not arrive.
    pub bytes_lost: u64,
    /// How bytes leave for a destination that is no pipe; none for a pipe.
    pub through: Option<Relayed>,
    /// Why it ended; none while it runs.
    pub end: Option<TeeEnd>,
    /// What it failed of.
    pub error: Option<Error>,
}

impl OutletReport {
    /// The name of the method: tee(2) alone, or through a pipe of ours and out of it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self.through {
            None => "tee",
            Some(through) if through.method == Method::ReadWrite => "tee, read-write",
            Some(_) => "tee, splice",
        }
    }

    /// Why that method.
    #[must_use]
    pub fn reason(&self) -> String {
        match self.through {
            None => "the destination is a pipe".into(),
            Some(Relayed { reason: MethodReason::APipe, .. }) => "the destination is no pipe".into(),
            Some(through) => through.reason.to_string(),
        }
    }
}
