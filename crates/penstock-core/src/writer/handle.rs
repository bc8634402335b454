//! The writer: memory goes in, a ticket comes out.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::Error;
use crate::memory::region::Region;
use crate::memory::transform::Transform;
use crate::pipe::budget;
use crate::runtime::fork::{ForkTable, Order};
use crate::runtime::fork_fd::ForkFd;
use crate::sync::generation::fork_generation;
use crate::sync::queue::Limits;
use crate::sync::ticket::Ticket;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::pipe;
use crate::writer::by_descriptor;
use crate::writer::job::Mark;
use crate::writer::rejected::Rejected;
use crate::writer::stream::{DEFAULT_LIMITS, Stream};
use crate::writer::transport::choice::{Memory, Mode, ReaderKind, Reason, Transport, WriteOptions};
use crate::writer::worker::{self, WORKERS_LEAVE_WITHIN};
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Options of a [`Writer`]. The defaults suit a pipe of which nothing is known.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The transport.
    pub mode: Mode,
    /// What is known of the reader.
    pub reader: ReaderKind,
    /// Bytes that the stream's queue holds before a write waits; 128 MiB by default.
    pub queue_bytes: Option<usize>,
    /// Writes that the stream's queue holds before the next one waits; 64 by default.
    pub queue_items: Option<usize>,
    /// The pipe size to ask for. By default, a pipe is grown to 1 MiB if the system grants it.
    pub capacity_bytes: Option<usize>,
    /// Priority and CPUs of the stream's worker.
    pub policy: Option<ThreadPolicy>,
    /// Applied to each write on its way. All sizes in bytes are those of its output.
    pub transform: Option<Arc<dyn Transform>>,
}

/// Writes memory to a descriptor from a native thread, in order and whole.
///
/// It owns a descriptor of its own, so every byte goes where the writer was opened, whatever happens to the
/// original number. The reader gets its end of file when the writer is closed and no other descriptor is left. Writers
/// on the same pipe share one ordered stream, with its queue and its failure.
///
/// If it is dropped without [`close`](Self::close), queued writes are still made, and their tickets report them.
pub struct Writer {
    stream: Arc<Stream>,
    options: WriteOptions,
    owner: u64,
    /// Of the process that opened it. In the child of a fork it is closed.
    generation: u32,
    /// Set first when the writer is closed: nothing of it is accepted any more.
    gone: AtomicBool,
    /// The state of the pipe when the writer was closed.
    last_look: OnceLock<PipeState>,
}

/// What a descriptor tells of a pipe.
#[derive(Clone, Copy)]
struct PipeState {
    capacity_bytes: Option<usize>,
    delivered_bytes: u64,
}

impl PipeState {
    fn of(stream: &Stream, fd: &ForkFd) -> Option<Self> {
        if stream.kind != Kind::Pipe {
            return None;
        }
        // In this order: otherwise bytes written in between would count as read.
        let written_bytes = stream.meter.written_bytes();
        let unread_bytes = pipe::unread_bytes(fd.as_fd()).unwrap_or(0);
        let delivered_bytes = written_bytes.saturating_sub(unread_bytes);
        Some(Self { capacity_bytes: pipe::capacity(fd.as_fd()).ok(), delivered_bytes })
    }
}

/// What is known of an open writer without itself.
struct OpenWriter {
    stream: StreamId,
    fd: Arc<ForkFd>,
}

/// All open writers, by owner. In the child of a fork no writer is open.
static OPEN: ForkTable<HashMap<u64, OpenWriter>> =
    ForkTable::new(Order::Writers, Mutex::default, HashMap::clear);

/// Statistics of a stream.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct Stats {
    /// The transport of the last write, and the reason for it; none before the first.
    pub choice: Option<(Transport, Reason)>,
    /// The pipe's size in bytes; none if it is not a pipe.
    pub capacity_bytes: Option<usize>,
    /// Bytes accepted into the queue since the stream began.
    pub accepted_bytes: u64,
    /// Bytes that the reader has taken (pipes) or the kernel has accepted (all else).
    pub delivered_bytes: u64,
    /// Bytes of writes in flight that are neither delivered nor lost.
    pub pending_bytes: u64,
    /// Writes accepted into the queue.
    pub accepted_items: u64,
    /// Writes in flight.
    pub pending_items: u64,
    /// Bytes that the destination has taken, by transport.
    pub written_by: Vec<(Transport, u64)>,
    /// Time that callers spent queueing writes, waiting for room included.
    pub caller_blocked: Duration,
    /// Time that the worker waited for the reader: for room, and, with nothing else to write, for zero-copy pages to be
    /// read.
    pub worker_blocked: Duration,
    /// Time that the worker spent on writes, waiting for the reader included.
    pub worker_busy: Duration,
    /// Time spent in transforms.
    pub transforming: Duration,
    /// The policy that the worker runs with; none before it has started with one.
    pub policy: Option<AppliedPolicy>,
}

/// Numbers the writers, so that each can discard its own writes. Relaxed: only uniqueness counts.
static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);

impl Writer {
    /// Opens a writer on what the descriptor leads to. The caller keeps the descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, `EINVAL` for a limit
    /// of 0, or what the system reports.
    pub fn new(fd: impl AsFd, options: &Options) -> Result<Self, Error> {
        let fd = fd.as_fd();
        fd::check_writable(fd)?;
        if [options.queue_bytes, options.queue_items, options.capacity_bytes].contains(&Some(0)) {
            return Err(Errno::INVAL.into());
        }
        let stream = Stream::of(fd)?;
        let own = ForkFd::of_destination(fd, stream.kind)?;
        if stream.kind == Kind::Pipe {
            match options.capacity_bytes {
                Some(bytes) => budget::set(own.as_fd(), stream.id, bytes),
                None => budget::grow(own.as_fd(), stream.id),
            }
        }
        let owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
        let mut open = OPEN.lock();
        // Those of writers that are closed are not the next one's.
        let is_first = !open.values().any(|writer| writer.stream == stream.id);
        if is_first || options.queue_bytes.is_some() || options.queue_items.is_some() {
            stream.queue.set_limits(Limits {
                bytes: options.queue_bytes.unwrap_or(DEFAULT_LIMITS.bytes),
                items: options.queue_items.unwrap_or(DEFAULT_LIMITS.items),
            });
        }
        if is_first || options.policy.is_some() {
            stream.set_policy(options.policy.clone());
        }
        stream.queue.expect_more();
        open.insert(owner, OpenWriter { stream: stream.id, fd: Arc::new(own) });
        drop(open);
        let transform = options.transform.clone();
        let options =
            WriteOptions { mode: options.mode, reader: options.reader, transform, ..WriteOptions::default() };
        let generation = fork_generation();
        Ok(Self {
            stream,
            options,
            owner,
            generation,
            gone: AtomicBool::new(false),
            last_look: OnceLock::new(),
        })
    }

    /// Queues the region to be written.
    ///
    /// Returns at once unless the queue is full. The region stays in use until the ticket has ended.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the region back, with the reason:
    ///
    /// - [`Error::Closed`], [`Error::Forked`].
    /// - [`Error::Stalled`]: the queue was full until the timeout.
    /// - [`Error::Io`] with `EINVAL`: the region does not have the input size of the writer's transform.
    /// - The failure of the stream.
    pub fn write<R: Region>(&self, region: R, timeout: Option<Duration>) -> Result<Ticket, Rejected<R>> {
        let takes_bytes = self.options.transform.as_ref().map(|transform| transform.input_bytes());
        self.push(region, takes_bytes, self.options.clone(), timeout)
    }

    /// Queues a region that already holds the output of the writer's transform: it enters the stream as it is.
    ///
    /// Keeps the order with [`Writer::write`]. Nobody may write to the memory again before the region is dropped.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`], with `EINVAL` for a region that does not have the output size of the transform.
    pub fn write_transformed<R: Region>(
        &self,
        region: R,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        let takes_bytes = self.options.transform.as_ref().map(|transform| transform.output_bytes());
        let options = WriteOptions { transform: None, memory: Memory::Ours, ..self.options.clone() };
        self.push(region, takes_bytes, options, timeout)
    }

    fn push<R: Region>(
        &self,
        region: R,
        takes_bytes: Option<usize>,
        options: WriteOptions,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        if takes_bytes.is_some_and(|bytes| bytes != region.len()) {
            return Err(Rejected { region, error: Errno::INVAL.into() });
        }
        let Some(fd) = self.fd() else {
            return Err(Rejected { region, error: self.closed() });
        };
        // Relaxed: this runs under the queue's lock, which orders it.
        let is_gone = || self.gone.load(Ordering::Relaxed);
        worker::push(&self.stream, region, fd, options, self.owner, timeout, is_gone)
    }

    /// The ticket of the oldest write in flight. When it ends, a full queue has room.
    #[must_use]
    pub fn oldest(&self) -> Option<Ticket> {
        let tickets = self.stream.queue.select(|job| Some(job.ticket.clone()));
        tickets.into_iter().find(|ticket| !ticket.has_ended())
    }

    /// Marks the present end of the queue, so that a wait in several steps waits for nothing later.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.stream.mark()
    }

    /// Waits until everything queued so far has ended.
    ///
    /// # Errors
    ///
    /// The stream's failure; [`Error::Stalled`] if it takes longer than the timeout; [`Error::Closed`].
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.flush_to(self.mark(), timeout)
    }

    /// Waits until everything before the mark has ended.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`].
    pub fn flush_to(&self, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        self.fd().ok_or_else(|| self.closed()).and_then(|fd| self.drain(&fd, mark, timeout))
    }

    /// Waits as `flush` does, then closes. Closing again does nothing.
    ///
    /// # Errors
    ///
    /// The stream's failure: the writer is closed all the same. [`Error::Stalled`] if it takes longer than the timeout:
    /// the writer is still open.
    pub fn close(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.close_at(self.mark(), timeout)
    }

    /// Waits until everything before the mark has ended, then closes.
    ///
    /// # Errors
    ///
    /// As [`Writer::close`].
    pub fn close_at(&self, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        let Some(fd) = self.fd() else { return Ok(()) };
        let outcome = self.drain(&fd, mark, timeout);
        drop(fd);
        if !matches!(outcome, Err(Error::Stalled { .. })) {
            self.retire();
            self.stream.queue.dismiss_worker(Some(Instant::now() + WORKERS_LEAVE_WITHIN));
        }
        outcome
    }

    /// Discards what this writer has queued, and closes it. The tickets end with [`Error::Aborted`].
    ///
    /// A write in progress is cut short. Pages that zero-copy has put into the pipe cannot be taken back: their memory
    /// stays in use until the reader has read them or is gone, and only then their ticket ends.
    pub fn abort(&self) {
        if !self.is_closed() {
            self.abort_now();
            self.stream.queue.dismiss_worker(Some(Instant::now() + WORKERS_LEAVE_WITHIN));
        }
    }

    /// As [`abort`](Self::abort), for a thread that must not wait for the worker to leave.
    pub fn abort_now(&self) {
        if !self.is_closed() {
            self.gone.store(true, Ordering::Relaxed); // see `write`
            self.stream.abort(self.owner);
            self.retire();
        }
    }

    /// Whether `close` or `abort` has been called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.fd().is_none()
    }

    fn fd(&self) -> Option<Arc<ForkFd>> {
        OPEN.lock().get(&self.owner).map(|writer| Arc::clone(&writer.fd))
    }

    /// The error for a use after the close.
    fn closed(&self) -> Error {
        if self.generation == fork_generation() { Error::Closed } else { Error::Forked }
    }

    /// The statistics of the stream; of a closed writer, those of its closing.
    pub fn stats(&self) -> Stats {
        let stream = &self.stream;
        let pipe = match self.fd() {
            Some(fd) => PipeState::of(stream, &fd),
            None => self.last_look.get().copied(),
        };
        let delivered = pipe.map_or_else(|| stream.meter.written_bytes(), |pipe| pipe.delivered_bytes);
        let lost = stream.meter.lost_bytes.get();
        let load = stream.queue.load();
        // After a failure the pipe is emptied: it holds nothing, although nobody read its content.
        let delivered = delivered.min(load.accepted_bytes.saturating_sub(lost));
        let settled = delivered + lost;
        Stats {
            choice: stream.meter.choice(),
            capacity_bytes: pipe.and_then(|pipe| pipe.capacity_bytes),
            accepted_bytes: load.accepted_bytes,
            delivered_bytes: delivered,
            // What has ended and waits in the pipe for its reader does not count as pending.
            pending_bytes: load.accepted_bytes.saturating_sub(settled).min(load.pending_bytes),
            accepted_items: load.accepted_items,
            pending_items: load.pending_items,
            written_by: stream.meter.written_by().into(),
            caller_blocked: stream.meter.caller_blocked.sum(),
            worker_blocked: stream.meter.worker_blocked.sum(),
            worker_busy: stream.meter.worker_busy.sum(),
            transforming: stream.meter.transforming.sum(),
            policy: stream.applied_policy(),
        }
    }

    fn drain(&self, fd: &ForkFd, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        let outcome = self.stream.flush(mark, timeout).and_then(|()| check_reader(&self.stream, fd));
        if outcome.as_ref().is_err_and(|error| !matches!(error, Error::Stalled { .. })) {
            self.stream.unheard.note_heard();
        }
        outcome
    }

    fn retire(&self) {
        self.gone.store(true, Ordering::Relaxed); // see `write`
        self.stream.queue.wake();
        let fd = OPEN.lock().remove(&self.owner).map(|writer| writer.fd);
        if let Some(look) = fd.as_ref().and_then(|fd| PipeState::of(&self.stream, fd)) {
            let _ = self.last_look.set(look); // only the first closing closes
        }
        drop(fd); // outside of the table's lock
        self.forget_failure();
    }

    /// A reported failure is not the next writer's, which may find room or another reader.
    fn forget_failure(&self) {
        if self.stream.queue.failure().is_some() && !by_descriptor::has_to_report(&self.stream) {
            self.stream.forget();
        }
    }
}

impl Drop for Writer {
    /// Writes in flight have their own reference to the descriptor.
    fn drop(&mut self) {
        let writer = OPEN.lock().remove(&self.owner);
        drop(writer); // outside of the table's lock
        self.stream.queue.dismiss_worker(Some(Instant::now())); // who leaves by itself when it is through
        self.forget_failure();
    }
}

/// Fails the stream if its pipe has bytes and no reader: they arrive nowhere, although the kernel accepted them.
fn check_reader(stream: &Stream, fd: &ForkFd) -> Result<(), Error> {
    if stream.kind == Kind::Pipe && fd::peer_is_gone(fd.as_fd()) {
        let unread = pipe::unread_bytes(fd.as_fd()).unwrap_or(0);
        if unread > 0 {
            stream.fail_at_rest(Errno::PIPE, unread);
            return stream.queue.failure().map_or(Ok(()), Err);
        }
    }
    Ok(())
}

/// As [`check_reader`], for all open writers. The failures still count as not reported.
pub(crate) fn check_readers() {
    let open: Vec<_> = OPEN.lock().values().map(|writer| Arc::clone(&writer.fd)).collect();
    for fd in open {
        if let Ok(stream) = Stream::of(fd.as_fd()) {
            let _ = check_reader(&stream, &fd);
        }
    }
}
