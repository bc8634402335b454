//! The options of a tee's outputs, and their reports.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::relay::report::{Method, MethodReason, RelayReport};
use crate::sys::SysError;

/// What happens when an output takes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeePolicy {
    /// All others wait for it.
    #[default]
    Block,
    /// It is removed when it has taken nothing at all for `after`, while there was something to take. A slow one stays.
    Evict {
        /// How long it may take nothing.
        after: Duration,
    },
}

/// Why an output gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TeeEnd {
    /// The source has ended, and everything was delivered.
    SourceEnded,
    /// The source has failed, and everything before was delivered.
    SourceFailed,
    /// It was removed, and what it had taken was delivered.
    Removed,
    /// Its reader is gone.
    Broken,
    /// It took nothing for longer than its policy allows.
    Evicted,
    /// The system refused, as for a full disk.
    Failed,
    /// The tee was cancelled.
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

/// What became of one output so far.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OutputReport {
    /// Where in the stream it began: 0 unless it was added after the start.
    pub start: u64,
    /// Bytes that it has taken; if its reader is gone, those that the reader had taken.
    pub bytes_delivered: u64,
    /// Bytes taken for it that did not arrive.
    pub bytes_lost: u64,
    /// How bytes leave for an output that is no pipe; none for a pipe.
    pub through: Option<RelayReport>,
    /// The error number by which the system refused tee(2), where bytes are read and written instead.
    pub refused: Option<i32>,
    /// Why it ended; none while it runs.
    pub end: Option<TeeEnd>,
    /// Its failure.
    pub error: Option<Error>,
}

impl OutputReport {
    /// A file reported at its close that what it had accepted was not written: nobody knows which bytes arrived.
    pub(super) fn fail_at_close(&mut self, errno: SysError) {
        self.bytes_lost += std::mem::take(&mut self.bytes_delivered);
        self.end = Some(TeeEnd::Failed);
        self.error = Some(Error::of_stream(errno, 0, self.bytes_lost));
    }

    /// The method: tee(2), or read(2) and write(2); then another if its bytes go through a pipe of ours.
    #[must_use]
    pub fn method(&self) -> &'static str {
        // What is relayed is a pipe of the tee's, from which the kernel only splices, or refuses to.
        match (self.refused.is_some(), self.through.map(|through| through.method)) {
            (false, None) => "tee",
            (true, None) => "read-write",
            (false, Some(Method::ReadWrite)) => "tee, read-write",
            (true, Some(Method::ReadWrite)) => "read-write, read-write",
            (false, Some(_)) => "tee, splice",
            (true, Some(_)) => "read-write, splice",
        }
    }

    /// Why that method.
    #[must_use]
    pub fn reason(&self) -> OutputReason {
        match (self.refused, self.through.map(|through| through.reason)) {
            (Some(os_error), _) => OutputReason::TeeRefused { os_error },
            (None, None) => OutputReason::APipe,
            (None, Some(MethodReason::APipe)) => OutputReason::NotAPipe,
            (None, Some(through)) => OutputReason::Through(through),
        }
    }
}

/// Why an output is served by its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputReason {
    /// The output is a pipe.
    APipe,
    /// The output is no pipe: its bytes go through one of the tee's.
    NotAPipe,
    /// The same, and why bytes leave that pipe as they do.
    Through(MethodReason),
    /// The system refused tee(2).
    TeeRefused {
        /// Its error number.
        os_error: i32,
    },
}

impl fmt::Display for OutputReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::APipe => f.write_str("the output is a pipe"),
            Self::NotAPipe => f.write_str("the output is no pipe"),
            Self::Through(reason) => reason.fmt(f),
            Self::TeeRefused { os_error } => {
                write!(f, "the system refused tee(2): {}", io::Error::from_raw_os_error(*os_error))
            }
        }
    }
}
