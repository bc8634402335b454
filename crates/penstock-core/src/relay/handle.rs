//! A relay on its caller's thread.

use std::time::{Duration, Instant};

use super::report::{Method, RelayError, RelayOptions, RelayReport};
use super::transfer::{Transfer, Watch};
use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::deadline_after;
use crate::sys::AsHandle;
use crate::sys::fd::{self, Kind};
use crate::sys::signals::WithoutWriteSignals;

/// Moves bytes from one descriptor to the other until the source ends or `options.count` bytes have moved.
///
/// Accepts any pair of file, pipe, FIFO, socket and character device. A source file's position is set after the last
/// byte that was moved, also after a failure, so that nothing is skipped. A pipe that is the bottleneck is grown. Holes of a sparse file
/// stay holes beyond the end of a destination file; they count as bytes moved.
///
/// ```
/// use std::io::{Read, Write};
/// let (mut theirs, ours) = std::io::pipe()?;
/// let (source, mut producer) = std::io::pipe()?;
/// producer.write_all(b"frame")?;
/// drop(producer);
/// let relayed = penstock_core::relay(&source, &ours, &Default::default())?;
/// assert_eq!((relayed.bytes, relayed.method.name()), (5, "splice"));
/// # drop(ours); let mut got = String::new(); theirs.read_to_string(&mut got)?; assert_eq!(got, "frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Error::Unsuitable`]: the two are the same pipe or file, or `offset` was given for a source without positions.
/// [`Error::Broken`]: the destination's reader is gone. [`Error::Stalled`]: no byte moved for `timeout`. [`Error::Io`]:
/// what the system reports, such as `ENOSPC`, with the bytes delivered, and those taken from the source and lost.
pub fn relay(
    src: impl AsHandle,
    dst: impl AsHandle,
    options: &RelayOptions,
) -> std::result::Result<RelayReport, RelayError> {
    let (src, dst) = (src.as_handle(), dst.as_handle());
    let mut transfer =
        Transfer::plan(src, dst, options).map_err(|error| RelayError::before(error, options))?;
    let quiet = WithoutWriteSignals::new();
    let outcome = loop {
        // Returns without an outcome when a signal came, whose handler has run by now.
        if let Some(outcome) = transfer.run(src, dst, None, None) {
            break outcome;
        }
    };
    end_quiet(quiet, &transfer, outcome.is_err());
    outcome
}

/// Lets signals through again. A write to a pipe makes one only if it fails. One to a socket or a file may make one after the
/// first bytes.
fn end_quiet(quiet: WithoutWriteSignals, transfer: &Transfer, has_failed: bool) {
    if !has_failed && transfer.kinds()[1] == Kind::Pipe {
        quiet.end_clear();
    }
}

/// A relay that is run in slices or piece by piece, on descriptors of its own: closing the caller's, or reusing their numbers,
/// changes nothing.
///
/// For many small pieces between the same two, [`run_to`](Self::run_to) is quicker than [`relay`] for each: it asks nothing of the
/// system that it knows.
///
/// ```
/// use std::io::{Read, Write};
/// use penstock_core::{Relay, RelayOptions};
/// let (source, mut producer) = std::io::pipe()?;
/// let (mut theirs, ours) = std::io::pipe()?;
/// producer.write_all(b"onetwo")?;
/// let mut relay = Relay::new(&source, &ours, &RelayOptions::default())?;
/// let mut got = [0; 3];
/// for (frames, frame) in [(1, b"one"), (2, b"two")] {
///     while relay.run_to(3 * frames, None).transpose()?.is_none() {} // a signal came
///     theirs.read_exact(&mut got)?;
///     assert_eq!(&got, frame);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it moves nothing until it is run"]
pub struct Relay {
    /// Source and destination. Closed when everything was relayed.
    ends: Option<[ForkFd; 2]>,
    transfer: Transfer,
}

impl Relay {
    /// Prepares a relay; nothing is moved yet.
    ///
    /// # Errors
    ///
    /// Those of [`relay`] that are known before the first byte.
    pub fn new(
        src: impl AsHandle,
        dst: impl AsHandle,
        options: &RelayOptions,
    ) -> std::result::Result<Self, RelayError> {
        let build = || {
            let [mut src, mut dst] =
                ForkFd::make_all(|| Ok([fd::duplicate(src.as_handle())?, fd::duplicate(dst.as_handle())?]))
                    .map_err(Error::of_system)?;
            let transfer = Transfer::plan(src.as_handle(), dst.as_handle(), options)?;
            if transfer.relayed().method == Method::ReadWrite && transfer.kinds()[1] == Kind::Pipe {
                dst = ForkFd::of_destination(dst.as_handle(), Kind::Pipe).map_err(Error::of_system)?;
            }
            for (fd, kind) in [&mut src, &mut dst].into_iter().zip(transfer.kinds()) {
                fd.note_kind(kind);
            }
            Ok(Self { ends: Some([src, dst]), transfer })
        };
        build().map_err(|error| RelayError::before(error, options))
    }

    /// Sends these bytes first: the caller has read them from the source before. [`relayed`](Self::relayed) counts
    /// those of them that were delivered; the others are still the caller's, however the relay ends.
    pub fn after(mut self, ahead: Vec<u8>) -> Self {
        self.transfer.begin_with(ahead);
        self
    }

    /// Goes on for at most that long, or until a signal comes; none if it is not at its end then.
    pub fn run(&mut self, at_most: Option<Duration>) -> Option<std::result::Result<RelayReport, RelayError>> {
        let quiet = WithoutWriteSignals::new();
        let outcome = self.run_watched(None, deadline_after(at_most));
        end_quiet(quiet, &self.transfer, matches!(outcome, Some(Err(_))));
        outcome
    }

    /// As [`run`](Self::run), until so many bytes in all have been moved, of which [`relayed`](Self::relayed) tells. It then keeps
    /// its descriptors, also if the source has ended, to go on with more.
    pub fn run_to(
        &mut self,
        bytes: u64,
        at_most: Option<Duration>,
    ) -> Option<std::result::Result<RelayReport, RelayError>> {
        let quiet = WithoutWriteSignals::new();
        let later = self.transfer.stop_at(bytes);
        let outcome = self.advance(None, deadline_after(at_most));
        self.transfer.go_on_with(later);
        end_quiet(quiet, &self.transfer, matches!(outcome, Some(Err(_))));
        outcome
    }

    /// What has been moved so far.
    #[must_use]
    pub fn relayed(&self) -> RelayReport {
        self.transfer.relayed()
    }

    /// Bytes that have been taken from the source, cannot be put back, and are not delivered yet: lost if it does not go on.
    #[must_use]
    pub fn bytes_held(&self) -> u64 {
        self.transfer.unreturnable_bytes()
    }

    pub(super) fn run_watched(
        &mut self,
        watch: Option<&Watch<'_>>,
        deadline: Option<Instant>,
    ) -> Option<std::result::Result<RelayReport, RelayError>> {
        let outcome = self.advance(watch, deadline)?;
        Some(outcome.and_then(|relayed| self.close_ends().map(|()| relayed)))
    }

    fn advance(
        &mut self,
        watch: Option<&Watch<'_>>,
        deadline: Option<Instant>,
    ) -> Option<std::result::Result<RelayReport, RelayError>> {
        let Some([src, dst]) = &self.ends else { return Some(Ok(self.relayed())) };
        if src.is_inherited() {
            return Some(Err(self.transfer.ended_by(Error::Forked)));
        }
        self.transfer.run(src.as_handle(), dst.as_handle(), watch, deadline)
    }

    /// Ends it, and waits until its descriptors are closed: a dropped relay leaves the close of a file to a thread.
    ///
    /// # Errors
    ///
    /// A file may report only now that what it had accepted was not written.
    pub fn close(mut self) -> std::result::Result<RelayReport, RelayError> {
        self.close_ends().map(|()| self.relayed())
    }

    fn close_ends(&mut self) -> std::result::Result<(), RelayError> {
        let Some([src, dst]) = self.ends.take() else { return Ok(()) };
        let _ = src.close(); // nothing was written to it
        dst.close().map_err(|errno| {
            let bytes_lost = self.relayed().bytes; // nobody knows which of them
            self.transfer.ended_by(Error::of_stream(errno, 0, bytes_lost))
        })
    }
}
