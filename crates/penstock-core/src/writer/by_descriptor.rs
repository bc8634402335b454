//! `pipe`, `sync` and `close`: writes by descriptor, for programs that keep no writer.
//!
//! Each write holds a duplicate of the descriptor and closes it when it ends. So the reader gets its end of file once the last
//! byte is out and the program has closed its own end.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::region::Region;
use crate::pipe::budget;
use crate::runtime::fork::Own;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::deadline_after;
use crate::sync::ticket::Ticket;
use crate::sys::AsHandle;
use crate::sys::fd::Kind;
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
/// [`Rejected`] gives the region back, with the reason:
///
/// - [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, or another error of the system.
/// - [`Error::Stalled`]: the queue was full until the timeout.
/// - The failure of the stream, at each call until [`sync`], [`close`] or a ticket has reported it.
pub fn pipe<R: Region>(
    region: R,
    fd: impl AsHandle,
    mode: Mode,
    timeout: Option<Duration>,
) -> Result<Ticket, Rejected<R>> {
    match Target::open(fd) {
        Ok(mut target) => target.submit(region, mode, timeout),
        Err(error) => Err(Rejected { region, error }),
    }
}

/// The destination of a descriptor, held open between the lookup and the write.
pub struct Target {
    stream: Own<Arc<Stream>>,
    /// None after the write.
    destination: Option<Arc<Destination>>,
}

opaque!("Target", impl std::fmt::Debug for Target);

impl Target {
    /// Looks up the destination of the descriptor, which may be closed or reused afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, or another error of the system.
    pub fn open(fd: impl AsHandle) -> Result<Self, Error> {
        let fd = fd.as_handle();
        let (stream, is_first) = Stream::by_descriptor(fd).map_err(Error::of_system)?;
        let kind = stream.kind;
        let destination = stream
            .share(|| ForkFd::of_destination(fd, kind).map(Destination::new))
            .map_err(Error::of_system)?;
        if is_first {
            stream.queue.expect_more();
            if kind == Kind::Pipe {
                budget::grow(destination.fd.as_handle(), stream.id);
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
    /// - The failure of the stream, at each call until a [`Ticket`], [`sync`] or [`close`] has reported it.
    pub fn submit<R: Region>(
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

opaque!("Marks", impl std::fmt::Debug for Marks);

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
        self.others.iter().try_for_each(|other| write!(f, ". Another stream failed as well: {other}"))
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
    let deadline = deadline_after(timeout);
    let flushed = marks.0.get().into_iter().flatten().map(|(stream, mark)| {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        (stream, stream.flush(*mark, left))
    });
    let failed = all_failures(flushed)?;
    first_of(failed.into_iter().map(|(stream, failure)| {
        stream.forget_failure();
        failure
    }))
}

/// Waits until all the writes have ended, such as those that [`tickets_of`] finds.
///
/// # Errors
///
/// As [`sync`], for the failures of these writes.
pub fn sync_writes(tickets: &[Ticket], timeout: Option<Duration>) -> Result<(), SyncError> {
    let deadline = deadline_after(timeout);
    let ended = tickets.iter().map(|ticket| {
        let stalled = Error::Stalled { waited: Duration::ZERO, bytes_pending: ticket.bytes() as u64 };
        (ticket, ticket.wait_silently(deadline).unwrap_or(Err(stalled)))
    });
    let mut failed = all_failures(ended)?;
    // A stream's writes fail alike, but for those that were aborted before.
    failed.dedup_by(|(ticket, failure), (before, its)| ticket.is_of_stream_of(before) && failure == its);
    first_of(failed.into_iter().map(|(ticket, failure)| {
        ticket.note_report(&failure);
        failure
    }))
}

/// Waits for all of them, then returns the failures, which the caller reports. While something is in flight, whose memory
/// nobody must touch, it returns that alone.
fn all_failures<T>(
    outcomes: impl Iterator<Item = (T, Result<(), Error>)>,
) -> Result<Vec<(T, Error)>, SyncError> {
    let start = Instant::now();
    let mut failed = Vec::new();
    let mut pending = None;
    for (of, outcome) in outcomes {
        match outcome {
            Ok(()) => {}
            // `bytes_pending` may be 0: a write that has delivered all its bytes may not have ended yet.
            Err(Error::Stalled { bytes_pending, .. }) => *pending.get_or_insert(0) += bytes_pending,
            Err(failure) => failed.push((of, failure)),
        }
    }
    match pending {
        None => Ok(failed),
        Some(bytes_pending) => {
            let first = Error::Stalled { waited: start.elapsed(), bytes_pending };
            Err(SyncError { first, others: Vec::new() })
        }
    }
}

fn first_of(mut failures: impl Iterator<Item = Error>) -> Result<(), SyncError> {
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
