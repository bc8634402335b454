//! `pipe`, `sync` and `close`: writes by descriptor, for programs that keep no writer.
//!
//! Each write holds a duplicate of the descriptor and closes it when it ends. So the reader gets its end of file once the last
//! byte is out and the program has closed its own end.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::region::Region;
use crate::pipe::budget;
use crate::runtime::fork::Own;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::deadline_after;
use crate::sync::ticket::Ticket;
use crate::sys::fd::{self, Kind};
use crate::sys::span::Span;
use crate::writer::job::{Destination, Mark};
use crate::writer::rejected::Rejected;
use crate::writer::stream::Stream;
use crate::writer::transport::choice::{Mode, WriteOptions};
use crate::writer::worker::{self, WORKERS_LEAVE_WITHIN};

/// Queues the region to be written to what the descriptor leads to now.
///
/// Returns at once unless the queue is full. The descriptor may be closed or reused as soon as this returns.
///
/// # Errors
///
/// [`Rejected`] gives the region back, with a reason of [`Target::open`] or [`Target::write`].
pub fn pipe<R: Region>(
    region: R,
    fd: impl AsFd,
    mode: Mode,
    timeout: Option<Duration>,
) -> Result<Ticket, Rejected<R>> {
    match Target::open(fd) {
        Ok(mut target) => target.write(region, mode, timeout),
        Err(error) => Err(Rejected { region, error }),
    }
}

/// The destination of a descriptor, held open between the lookup and the write.
pub struct Target {
    stream: Own<Arc<Stream>>,
    /// None after the write.
    destination: Option<Arc<Destination>>,
}

impl Target {
    /// Looks up the destination of the descriptor, which may be closed or reused afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, or another error of the system.
    pub fn open(fd: impl AsFd) -> Result<Self, Error> {
        let fd = fd.as_fd();
        fd::check_writable(fd)?;
        let (stream, is_first) = Stream::by_descriptor(fd).map_err(Error::of_system)?;
        let kind = stream.kind;
        let destination = stream
            .share(|| ForkFd::of_destination(fd, kind).map(Destination::new))
            .map_err(Error::of_system)?;
        if is_first {
            stream.queue.expect_more();
            if kind == Kind::Pipe {
                budget::grow(destination.fd.as_fd(), stream.id);
            }
        }
        Ok(Self { stream: Own::new(stream), destination: Some(destination) })
    }

    /// Queues the region to be written. After a success, the target is used up.
    ///
    /// Returns at once unless the queue is full. The region stays in use until the ticket has ended.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the region back, with the reason:
    ///
    /// - [`Error::Stalled`]: the queue was full until the timeout.
    /// - [`Error::Closed`]: it is used up.
    /// - [`Error::Forked`]: the parent process opened it.
    /// - The failure of the stream, at each call until [`sync`] or [`close`] has reported it.
    pub fn write<R: Region>(
        &mut self,
        region: R,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        let Some(stream) = self.stream.get() else { return Err(Rejected { region, error: Error::Forked }) };
        let options = WriteOptions { mode, ..WriteOptions::default() };
        worker::push(stream, region, &mut self.destination, options, timeout)
    }
}

/// Everything that [`pipe`] had queued at one moment.
///
/// A caller that waits in slices uses the same marks for each, so that it does not wait for later writes.
///
/// In the child of a fork, they mark nothing.
pub struct Marks(Own<Vec<(Arc<Stream>, Mark)>>);

/// Marks the present end of every stream that [`pipe`] writes to.
#[must_use]
pub fn marks() -> Marks {
    let streams = Stream::all_by_descriptor().into_iter();
    Marks(Own::new(streams.map(|stream| (Arc::clone(&stream), stream.mark())).collect()))
}

/// Why [`sync`] or [`close`] failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SyncError {
    /// The failure of a stream, or [`Error::Stalled`].
    pub first: Error,
    /// The failures of further streams.
    pub others: Vec<Error>,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.others.iter().try_for_each(|other| write!(f, "; another stream failed as well: {other}"))
    }
}

impl std::error::Error for SyncError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.first)
    }
}

/// Keeps all failures: `downcast` returns the `SyncError`. The kind is that of the first.
impl From<SyncError> for io::Error {
    fn from(error: SyncError) -> Self {
        Self::new(Self::from(error.first.clone()).kind(), error)
    }
}

/// Waits until everything that [`pipe`] has queued so far has ended.
///
/// # Errors
///
/// - One failure for each stream that has failed since the last report. Each is reported once.
/// - [`Error::Stalled`] alone if the wait takes longer than the timeout. Failures are then kept for the next report.
pub fn sync(timeout: Option<Duration>) -> Result<(), SyncError> {
    sync_to(&marks(), timeout)
}

/// Waits as [`sync`] does, for everything before the marks.
///
/// # Errors
///
/// As [`sync`].
pub fn sync_to(marks: &Marks, timeout: Option<Duration>) -> Result<(), SyncError> {
    let start = Instant::now();
    let deadline = deadline_after(timeout);
    let mut failed = Vec::new();
    let mut pending = None;
    for (stream, mark) in marks.0.get().into_iter().flatten() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match stream.flush(*mark, left) {
            Ok(()) => {}
            // `bytes_pending` may be 0: a write that has delivered all its bytes may not have ended yet.
            Err(Error::Stalled { bytes_pending, .. }) => *pending.get_or_insert(0) += bytes_pending,
            Err(failure) => failed.push((stream, failure)),
        }
    }
    if let Some(bytes_pending) = pending {
        let first = Error::Stalled { waited: start.elapsed(), bytes_pending };
        return Err(SyncError { first, others: Vec::new() });
    }
    let mut failures = failed.into_iter().map(|(stream, failure)| {
        stream.forget_failure();
        failure
    });
    match failures.next() {
        Some(first) => Err(SyncError { first, others: failures.collect() }),
        None => Ok(()),
    }
}

/// Waits as [`sync`] does, then ends all idle worker threads. [`pipe`] may be used again afterwards.
///
/// # Errors
///
/// As [`sync`].
pub fn close(timeout: Option<Duration>) -> Result<(), SyncError> {
    close_at(&marks(), timeout)
}

/// Waits and ends threads as [`close`] does, for everything before the marks.
///
/// # Errors
///
/// As [`sync`].
pub fn close_at(marks: &Marks, timeout: Option<Duration>) -> Result<(), SyncError> {
    let outcome = sync_to(marks, timeout);
    if !matches!(outcome, Err(SyncError { first: Error::Stalled { .. }, .. })) {
        worker::dismiss_all(Instant::now() + WORKERS_LEAVE_WITHIN);
    }
    outcome
}

/// The tickets of all writes in flight that read any byte of the memory, including those of writers.
#[must_use]
pub fn tickets_of(start: *const u8, len: usize) -> Vec<Ticket> {
    let span = Span::at(start, len);
    let find =
        |stream: &Arc<Stream>| stream.queue.select(|job| job.span.overlaps(span).then(|| job.ticket.clone()));
    Stream::all().iter().flat_map(find).collect()
}
