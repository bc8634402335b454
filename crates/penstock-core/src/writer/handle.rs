//! The writer: memory goes in, a ticket comes out.

use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::pool::{Buffer, Pool};
use crate::memory::region::Region;
use crate::memory::transform::Transform;
use crate::pipe::budget;
use crate::runtime::fork::Own;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::lock;
use crate::sync::queue::Limits;
use crate::sync::ticket::Ticket;
use crate::sys::AsHandle;
use crate::sys::fd::Kind;
use crate::writer::job::{Destination, Mark};
use crate::writer::rejected::Rejected;
use crate::writer::state::{State, WriterStats};
use crate::writer::stream::{DEFAULT_LIMITS, Stream};
use crate::writer::transport::choice::{MemoryOwner, Mode, ReaderKind, When, WriteOptions};
use crate::writer::worker::{self, WORKERS_LEAVE_WITHIN};
use penstock_cpu::ThreadPolicy;

/// Options of a [`Writer`]. The defaults suit a pipe of which nothing is known.
///
/// ```
/// use penstock_core::{Mode, WriterOptions};
/// let options = WriterOptions::default().mode(Mode::ZeroCopy).queue_items(3);
/// assert_eq!(options.queue_items, Some(3));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WriterOptions {
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

setters!(WriterOptions:
    mode: Mode, reader: ReaderKind, queue_bytes: usize, queue_items: usize, capacity_bytes: usize,
    policy: ThreadPolicy, transform: Arc<dyn Transform>
);

/// Copies of up to so many bytes may become one write. Guessed: twice what file buffers usually hold. They are copied under the lock
/// of the queue, which takes some microseconds.
const SMALL_BYTES: usize = 16 << 10;

/// The memory of such a write. Chosen: with the page that the pool adds, it is less than `auto` stages.
const BLOCK_BYTES: usize = 32 << 10;

/// Writes memory to a descriptor from a native thread, in order and whole.
///
/// It owns a descriptor of its own, so every byte goes where the writer was opened, whatever happens to the
/// original number. The reader gets its end of file when the writer is closed and no other descriptor is left. Writers
/// on the same pipe share one ordered stream, with its queue and its failure.
///
/// If it is dropped without [`close`](Self::close), queued writes are still made, and their tickets report them.
pub struct Writer {
    state: Own<State>,
    options: WriteOptions,
    /// Of copies: the stream's.
    pool: Pool,
}

opaque!("Writer", impl std::fmt::Debug for Writer);

impl Writer {
    /// Opens a writer on what the descriptor leads to. The caller keeps the descriptor.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`]: `EBADF` if the descriptor is not open for writing, `EISDIR` for a directory, or what the system
    ///   reports.
    /// - [`Error::Unsuitable`]: a limit or size of 0.
    pub fn new(fd: impl AsHandle, options: &WriterOptions) -> Result<Self, Error> {
        let fd = fd.as_handle();
        Error::refuse_zeros([
            ("queue_bytes", options.queue_bytes),
            ("queue_items", options.queue_items),
            ("capacity_bytes", options.capacity_bytes),
        ])?;
        let stream = Stream::of(fd).map_err(Error::of_system)?;
        let own = ForkFd::of_destination(fd, stream.kind).map_err(Error::of_system)?;
        if stream.kind == Kind::Pipe {
            match options.capacity_bytes {
                Some(bytes) => budget::set(own.as_handle(), stream.id, bytes),
                None => budget::grow(own.as_handle(), stream.id),
            }
        }
        let destination = Destination::new(own);
        stream.join(&destination, |is_first| {
            // Settings of closed writers do not apply to a new one.
            if is_first || options.queue_bytes.is_some() || options.queue_items.is_some() {
                stream.queue.set_limits(Limits {
                    bytes: options.queue_bytes.unwrap_or(DEFAULT_LIMITS.bytes),
                    items: options.queue_items.unwrap_or(DEFAULT_LIMITS.items),
                });
            }
            if is_first || options.policy.is_some() {
                stream.policy.want(options.policy.clone());
            }
        });
        stream.queue.wake(); // who waits may have room by the new limits
        stream.queue.expect_more();
        if options.transform.is_some() {
            stream.expect_transforms();
        }
        let transform = options.transform.clone();
        let options = WriteOptions {
            mode: options.mode,
            reader: options.reader,
            at_once: When::Idle,
            transform,
            ..WriteOptions::default()
        };
        let pool = stream.copies.clone();
        Ok(Self { state: Own::new(State::new(stream, destination)), options, pool })
    }

    /// Queues a copy of the bytes, all of them or, after an error, none. Returns their number.
    ///
    /// Returns at once unless the queue is full. While the worker is busy, small copies are gathered into one write, unless the
    /// destination keeps messages. See [`submit`](Self::submit) for memory that is not to be copied, and
    /// [`ByteWriter`](crate::ByteWriter) for an [`io::Write`](std::io::Write).
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`], and [`Error::Io`]: `ENOMEM`.
    pub fn write(&self, bytes: &[u8], timeout: Option<Duration>) -> Result<usize, Error> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.check_room_for(bytes.len())?; // who does not wait asks often: a copy each time would cost more than the write
        }
        self.write_copy(self.copy(bytes)?, timeout)?;
        Ok(bytes.len())
    }

    /// Queues the region to be written.
    ///
    /// Returns at once unless the queue is full. If nothing else is in flight, up to 4 KiB for a pipe or socket are written on the
    /// calling thread, as far as they fit; up to 128 KiB if they are the stream's first. The region stays in use until the ticket has ended. See
    /// [`write`](Self::write) for slices.
    ///
    /// # Errors
    ///
    /// [`Rejected`] gives the region back, with the reason:
    ///
    /// - [`Error::Closed`], [`Error::Forked`].
    /// - [`Error::Stalled`]: the queue was full until the timeout.
    /// - [`Error::Unsuitable`]: the region does not have the input size of the writer's transform.
    /// - The failure of the stream.
    pub fn submit<R: Region>(&self, region: R, timeout: Option<Duration>) -> Result<Ticket, Rejected<R>> {
        self.push(region, self.input_bytes(), self.options.clone(), timeout)
    }

    /// Queues the region to be written. While the queue is full, the future is pending instead: for any async runtime.
    ///
    /// If it is dropped before its end, nothing is queued.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`], without [`Error::Stalled`].
    pub async fn submit_async<R: Region>(&self, region: R) -> Result<Ticket, Rejected<R>> {
        let (mut kept, mut awaited) = (Some(region), None);
        let mut attempt = || match self.submit(kept.take()?, Some(Duration::ZERO)) {
            Err(Rejected { region, error: Error::Stalled { .. } }) => {
                kept = Some(region);
                None
            }
            pushed => Some(pushed),
        };
        future::poll_fn(|context| self.poll_attempts(&mut awaited, context, &mut attempt)).await
    }

    /// Makes the attempt, and another one after each change of the queue, which wakes the task, until one gives something.
    pub(super) fn poll_attempts<T>(
        &self,
        awaited: &mut Option<Ticket>,
        context: &mut Context<'_>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        loop {
            if let Some(outcome) = attempt() {
                *awaited = None;
                return Poll::Ready(outcome);
            }
            if let Some(changed) = awaited {
                let _ = ready!(Pin::new(changed).poll(context));
            }
            // Before the next attempt, which finds what has changed until then.
            *awaited = self.state.get().map(|state| state.stream.queue.changed());
        }
    }

    /// The bytes in memory of the writer's, which [`write_copy`](Self::write_copy) queues.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `ENOMEM`.
    #[doc(hidden)]
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer, Error> {
        let is_small = bytes.len() <= SMALL_BYTES;
        let mut copy = self.pool.take(if is_small { BLOCK_BYTES } else { bytes.len() })?;
        copy.set_len(bytes.len());
        copy.copy_from_slice(bytes);
        Ok(copy)
    }

    /// As [`write`](Self::write), with what [`copy`](Self::copy) has made.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`].
    #[doc(hidden)]
    pub fn write_copy(&self, copy: Buffer, timeout: Option<Duration>) -> Result<Ticket, Rejected<Buffer>> {
        let joins = self.may_join(copy.len());
        let options =
            WriteOptions { memory: MemoryOwner::Ours, joins, at_once: When::First, ..self.options.clone() };
        self.push(copy, self.input_bytes(), options, timeout)
    }

    /// Fails if the queue is full. Whatever else keeps a write from being queued, the push says.
    fn check_room_for(&self, bytes: usize) -> Result<(), Error> {
        let queued_bytes = match &self.options.transform {
            Some(transform) if transform.input_bytes() != bytes => return Ok(()),
            transform => transform.as_ref().map_or(bytes, |transform| transform.output_bytes()),
        };
        let joins = self.may_join(bytes);
        let open = self.state.get().filter(|state| lock(&state.destination).is_some());
        match open.and_then(|state| state.stream.queue.is_full_for(queued_bytes, joins)) {
            Some(bytes_pending) => Err(Error::Stalled { waited: Duration::ZERO, bytes_pending }),
            None => Ok(()),
        }
    }

    /// Whether a copy of that size may become one write with others.
    fn may_join(&self, bytes: usize) -> bool {
        let is_alike = |state: &State| state.stream.kind.joins_writes();
        bytes <= SMALL_BYTES && self.options.transform.is_none() && self.state.get().is_some_and(is_alike)
    }

    /// What its transform takes; none without one.
    pub(super) fn input_bytes(&self) -> Option<usize> {
        self.options.transform.as_ref().map(|transform| transform.input_bytes())
    }

    /// Queues a region that already holds the output of the writer's transform: it enters the stream as it is.
    ///
    /// Keeps the order with [`Writer::submit`]. Nobody may write to the memory again before the region is dropped.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`]; [`Error::Unsuitable`] if the region does not have the output size of the transform.
    pub fn submit_transformed<R: Region>(
        &self,
        region: R,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        let takes_bytes = self.options.transform.as_ref().map(|transform| transform.output_bytes());
        let options = WriteOptions { transform: None, memory: MemoryOwner::Ours, ..self.options.clone() };
        self.push(region, takes_bytes, options, timeout)
    }

    fn push<R: Region>(
        &self,
        region: R,
        takes_bytes: Option<usize>,
        options: WriteOptions,
        timeout: Option<Duration>,
    ) -> Result<Ticket, Rejected<R>> {
        if let Some(bytes) = takes_bytes.filter(|bytes| *bytes != region.len()) {
            let why =
                format!("the region must have {bytes} bytes, as the transform takes, not {}", region.len());
            return Err(Rejected { region, error: Error::Unsuitable(why.into()) });
        }
        let (state, destination) = match self.open() {
            Ok(open) => open,
            Err(error) => return Err(Rejected { region, error }),
        };
        let mut destination = Some(destination);
        let pushed = worker::push(&state.stream, region, &mut destination, options, timeout);
        if let Some(unused) = destination {
            let _ = state.release(unused); // the last one, if the writer was closed meanwhile
        }
        pushed
    }

    /// The state and the descriptor, unless it is closed or the parent's.
    fn open(&self) -> Result<(&State, Arc<Destination>), Error> {
        let state = self.state.get().ok_or(Error::Forked)?;
        let destination = lock(&state.destination).clone();
        Ok((state, destination.ok_or(Error::Closed)?))
    }

    /// The ticket of the oldest write in flight. When it ends, a full queue has room.
    #[must_use]
    #[doc(hidden)]
    pub fn oldest(&self) -> Option<Ticket> {
        let tickets = self.state.get()?.stream.queue.select(|job| Some(job.ticket.clone()));
        tickets.into_iter().find(|ticket| !ticket.has_ended())
    }

    /// Marks the present end of the queue, so that a wait in several steps waits for nothing later.
    #[must_use]
    #[doc(hidden)]
    pub fn mark(&self) -> Mark {
        self.state.get().map_or(Mark(0), |state| state.stream.mark())
    }

    /// Waits until everything queued so far has ended.
    ///
    /// # Errors
    ///
    /// The stream's failure; [`Error::Stalled`] if it takes longer than the timeout; [`Error::Aborted`] if another thread
    /// discards some of it meanwhile; [`Error::Closed`], [`Error::Forked`].
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.flush_to(self.mark(), timeout)
    }

    /// Waits until everything before the mark has ended.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`].
    #[doc(hidden)]
    pub fn flush_to(&self, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        let (state, destination) = self.open()?;
        let outcome = state.drain(&destination, mark, timeout);
        // The last one, if the writer was closed meanwhile.
        state.report(outcome.and(state.release(destination)))
    }

    /// Waits as `flush` does, then closes. Closing again does nothing.
    ///
    /// # Errors
    ///
    /// As [`Writer::flush`], or what close(2) reports of a file. The writer is closed all the same, unless it is
    /// [`Error::Stalled`].
    pub fn close(&self, timeout: Option<Duration>) -> Result<(), Error> {
        if self.is_closed() {
            return Ok(());
        }
        self.close_at(self.mark(), timeout)
    }

    /// Waits until everything before the mark has ended, then closes.
    ///
    /// # Errors
    ///
    /// As [`Writer::close`]; [`Error::Closed`] if it has been aborted, for whoever closes in several steps.
    #[doc(hidden)]
    pub fn close_at(&self, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        let Ok((state, destination)) = self.open() else {
            let is_aborted = self.state.get().is_some_and(|state| state.is_aborted.load(Ordering::Relaxed));
            return if is_aborted { Err(Error::Closed) } else { Ok(()) };
        };
        let outcome = state.drain(&destination, mark, timeout);
        if matches!(outcome, Err(Error::Stalled { .. })) {
            return state.report(outcome.and(state.release(destination)));
        }
        let closed = state.retire().and(state.release(destination));
        state.stream.queue.dismiss_worker(Some(Instant::now() + WORKERS_LEAVE_WITHIN));
        state.report(outcome.and(closed))
    }

    /// Discards what this writer has queued, and closes it. The tickets end with [`Error::Aborted`].
    ///
    /// A write in progress is cut short. Pages that zero-copy has put into the pipe cannot be taken back: their memory
    /// stays in use until the reader has read them or is gone, and only then their ticket ends.
    pub fn abort(&self) {
        if let Some(state) = self.discard() {
            state.stream.queue.dismiss_worker(Some(Instant::now() + WORKERS_LEAVE_WITHIN));
        }
    }

    /// As [`abort`](Self::abort), for a thread that must not wait for the worker to leave.
    #[doc(hidden)]
    pub fn abort_now(&self) {
        self.discard();
    }

    fn discard(&self) -> Option<&State> {
        let (state, destination) = self.open().ok()?;
        destination.is_gone.store(true, Ordering::Relaxed); // see `Job::is_of_nobody`
        state.is_aborted.store(true, Ordering::Relaxed); // before the lock of the destination, which `open` takes
        state.stream.abort(&destination);
        state.retire_apart();
        state.release_apart(destination);
        Some(state)
    }

    /// Whether `close` or `abort` has been called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.open().is_err()
    }

    /// The statistics of the stream; of a closed writer, those of its closing.
    pub fn stats(&self) -> WriterStats {
        self.state.get().map_or_else(WriterStats::default, State::stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose queue is full, with none of its copies left over.
    fn full() -> (std::io::PipeReader, Writer) {
        let (reader, end) = std::io::pipe().unwrap();
        let options = WriterOptions::default().mode(Mode::Write).queue_items(1).capacity_bytes(4096);
        let writer = Writer::new(&end, &options).unwrap();
        writer.write(&[1; 20_000], None).unwrap();
        assert_eq!(writer.pool.free_bytes(), 0);
        (reader, writer)
    }

    #[test]
    fn a_write_that_finds_no_room_at_once_copies_nothing() {
        let (_reader, writer) = full();
        let refused = writer.write(&[2; 1 << 20], Some(Duration::ZERO));
        assert!(matches!(refused, Err(Error::Stalled { bytes_pending: 20_000, .. })), "{refused:?}");
        assert_eq!(writer.pool.free_bytes(), 0, "a copy would be there");
        writer.abort();
        assert_eq!(writer.write(&[2; 1 << 20], Some(Duration::ZERO)), Err(Error::Closed));
    }

    #[test]
    fn an_idle_writer_keeps_no_memory_once_its_worker_has_left() {
        let (mut reader, writer) = full();
        std::io::Read::read_exact(&mut reader, &mut [0; 20_000]).unwrap();
        writer.flush(None).unwrap();
        assert!(writer.pool.free_bytes() >= 20_000, "the next copy gets it");
        writer.state.get().unwrap().stream.queue.dismiss_worker(Some(Instant::now()));
        let deadline = Instant::now() + Duration::from_secs(10);
        while writer.pool.free_bytes() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(writer.pool.free_bytes(), 0);
        writer.write(&[3; 100], None).unwrap();
        writer.close(None).unwrap();
    }
}
