//! `pipe`, `sync` and `close`: writes by descriptor, for programs that keep no writer.
//!
//! Each write holds a duplicate of the descriptor and closes it when it ends. So the reader gets its end of file once the last
//! byte is out and the program has closed its own end.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::region::Region;
use crate::pipe::budget;
use crate::runtime::fork::{ForkTable, Order};
use crate::runtime::fork_fd::ForkFd;
use crate::sync::deadline_after;
use crate::sync::ticket::Ticket;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::span::Span;
use crate::writer::job::Mark;
use crate::writer::rejected::Rejected;
use crate::writer::stream::Stream;
use crate::writer::transport::choice::{Mode, WriteOptions};
use crate::writer::worker::{self, WORKERS_LEAVE_WITHIN};

/// The owner of all writes by descriptor.
const OWNER: u64 = 0;

/// How many idle streams the table holds. A stream that was removed is looked up again at its next write.
const REMEMBERED: usize = 256;

struct Entry {
    stream: Arc<Stream>,
    /// The descriptor of the last write, shared by the next one while it is in flight.
    fd: Weak<ForkFd>,
    /// Shared with every [`Outlet`], whose owner is about to write.
    open: Arc<()>,
}

impl Entry {
    /// Whether the entry can be removed: no outlet is open, nothing is queued, and no failure waits to be reported.
    fn is_at_rest(&self) -> bool {
        Arc::strong_count(&self.open) == 1 && self.stream.queue.is_at_rest()
    }
}

static PIPES: ForkTable<HashMap<StreamId, Entry>> =
    ForkTable::new(Order::Pipes, Mutex::default, HashMap::clear);

/// Queues the region to be written to what the descriptor leads to now.
///
/// Returns at once unless the queue is full. The descriptor may be closed or reused as soon as this returns.
///
/// # Errors
///
/// [`Rejected`] gives the region back, with a reason of [`Outlet::open`] or [`Outlet::write`].
pub fn pipe<R: Region>(
    region: R,
    fd: impl AsFd,
    mode: Mode,
    timeout: Option<Duration>,
) -> Result<Ticket, Rejected<R>> {
    match Outlet::open(fd) {
        Ok(outlet) => outlet.write(region, mode, timeout),
        Err(error) => Err(Rejected { region, error }),
    }
}

/// The destination of a descriptor, held open between the lookup and the write.
pub struct Outlet {
    stream: Arc<Stream>,
    fd: Arc<ForkFd>,
    /// Keeps the table's entry, so that [`sync`] finds what is written.
    _open: Arc<()>,
}

impl Outlet {
    /// Looks up the destination of the descriptor, which may be closed or reused afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, or another error of the system.
    pub fn open(fd: impl AsFd) -> Result<Self, Error> {
        let fd = fd.as_fd();
        fd::check_writable(fd)?;
        let stream = Stream::of(fd)?;
        let mut pipes = PIPES.lock();
        let known = pipes.get(&stream.id).filter(|entry| Arc::ptr_eq(&entry.stream, &stream));
        // Any descriptor of a pipe or socket serves. Those of a file may have different positions.
        let shareable = matches!(stream.kind, Kind::Pipe | Kind::StreamSocket | Kind::Messages);
        if let Some(known) = known.filter(|_| shareable)
            && let Some(own) = known.fd.upgrade()
        {
            return Ok(Self { stream, fd: own, _open: Arc::clone(&known.open) });
        }
        let open = known.map(|entry| Arc::clone(&entry.open));
        let is_new = open.is_none();
        let own = Arc::new(ForkFd::of_destination(fd, stream.kind)?);
        if is_new && stream.kind == Kind::Pipe {
            budget::grow(own.as_fd(), stream.id);
        }
        let open = open.unwrap_or_default();
        let entry = Entry { stream: Arc::clone(&stream), fd: Arc::downgrade(&own), open: Arc::clone(&open) };
        let replaced = pipes.insert(stream.id, entry);
        let forgotten = if pipes.len() > REMEMBERED { take_at_rest(&mut pipes) } else { Vec::new() };
        drop(pipes);
        // Streams end outside of the table's lock.
        drop((replaced, forgotten));
        Ok(Self { stream, fd: own, _open: open })
    }

    /// Queues the region to be written.
    ///
    /// Returns at once unless the queue is full. The region stays in use until the ticket has ended.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the region back, with the reason:
    ///
    /// - [`Error::Stalled`]: the queue was full until the timeout.
    /// - The failure of the stream, at each call until [`sync`] or [`close`] has reported it.
    pub fn write<R: Region>(
        &self,
        region: R,
        mode: Mode,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        let options = WriteOptions { mode, ..WriteOptions::default() };
        worker::push(&self.stream, region, Arc::clone(&self.fd), options, OWNER, timeout, || false)
    }
}

fn take_at_rest(pipes: &mut HashMap<StreamId, Entry>) -> Vec<Entry> {
    pipes.extract_if(|_, entry| entry.is_at_rest()).map(|(_, entry)| entry).collect()
}

/// Whether [`sync`] has yet to report a failure of the stream.
pub(crate) fn has_to_report(stream: &Arc<Stream>) -> bool {
    PIPES.lock().get(&stream.id).is_some_and(|entry| Arc::ptr_eq(&entry.stream, stream))
}

/// Everything that [`pipe`] had queued at one moment.
///
/// A caller that waits in slices uses the same marks for each, so that it does not wait for later writes.
pub struct Marks(Vec<(Arc<Stream>, Mark)>);

/// Marks the present end of every stream that [`pipe`] writes to.
#[must_use]
pub fn marks() -> Marks {
    let pipes = PIPES.lock();
    let streams = pipes.values().map(|entry| Arc::clone(&entry.stream));
    Marks(streams.map(|stream| (Arc::clone(&stream), stream.mark())).collect())
}

/// Waits until everything that [`pipe`] has queued so far has ended.
///
/// # Errors
///
/// - One failure for each stream that has failed since the last report. Each is reported once.
/// - [`Error::Stalled`] alone if the wait takes longer than the timeout. Failures are then kept for the next report.
pub fn sync(timeout: Option<Duration>) -> Result<(), Vec<Error>> {
    sync_to(&marks(), timeout)
}

/// Waits as [`sync`] does, for everything before the marks.
///
/// # Errors
///
/// As [`sync`].
pub fn sync_to(marks: &Marks, timeout: Option<Duration>) -> Result<(), Vec<Error>> {
    let start = Instant::now();
    let deadline = deadline_after(timeout);
    let mut failed = Vec::new();
    let mut pending = None;
    for (stream, mark) in &marks.0 {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match stream.flush(*mark, left) {
            Ok(()) => {}
            // `bytes_pending` may be 0: a write that has delivered all its bytes may not have ended yet.
            Err(Error::Stalled { bytes_pending, .. }) => *pending.get_or_insert(0) += bytes_pending,
            Err(failure) => failed.push((stream, failure)),
        }
    }
    if let Some(bytes_pending) = pending {
        return Err(vec![Error::Stalled { waited: start.elapsed(), bytes_pending }]);
    }
    for (stream, _) in &failed {
        stream.unheard.note_heard();
        forget(stream);
    }
    let failures: Vec<_> = failed.into_iter().map(|(_, failure)| failure).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// Removes a failed stream from the tables, so that the next write to the same pipe begins a new one.
fn forget(stream: &Arc<Stream>) {
    stream.forget();
    // Only the failed stream: another thread may have begun a new one since.
    let mut pipes = PIPES.lock();
    let is_ours = pipes.get(&stream.id).is_some_and(|entry| Arc::ptr_eq(&entry.stream, stream));
    let entry = is_ours.then(|| pipes.remove(&stream.id));
    drop(pipes);
    drop(entry); // outside of the table's lock
}

/// Waits as [`sync`] does, then ends all idle worker threads. [`pipe`] may be used again afterwards.
///
/// # Errors
///
/// As [`sync`].
pub fn close(timeout: Option<Duration>) -> Result<(), Vec<Error>> {
    close_at(&marks(), timeout)
}

/// Waits and ends threads as [`close`] does, for everything before the marks.
///
/// # Errors
///
/// As [`sync`].
pub fn close_at(marks: &Marks, timeout: Option<Duration>) -> Result<(), Vec<Error>> {
    let outcome = sync_to(marks, timeout);
    let is_stalled =
        outcome.as_ref().is_err_and(|errors| matches!(errors.as_slice(), [Error::Stalled { .. }]));
    if !is_stalled {
        worker::dismiss_all(Instant::now() + WORKERS_LEAVE_WITHIN);
        let forgotten = take_at_rest(&mut PIPES.lock());
        drop(forgotten);
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
