//! The reader, on its callers' side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::worker::{Gathered, Meter, ReaderWorker, frames_together};
use crate::error::Error;
use crate::memory::pool::Pool;
use crate::pipe::budget;
use crate::runtime::fork::Own;
use crate::runtime::poll_source::PollSource;
use crate::runtime::task::{self, AtExit, Task};
use crate::sync::frame_queue::{Answer, FrameQueue};
use crate::sync::ticket::Ticket;
use crate::sync::{deadline_after, lock};
use crate::sys::fd::{self, Kind};
use crate::sys::{AsHandle, pipe};
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Frames read ahead by default: enough for a caller that occasionally takes longer. Guessed.
const DEFAULT_DEPTH: usize = 4;

/// The size to which a pipe is grown: the most that an unprivileged process may have (pipe(7)). Measured with frames of
/// 1080p that another process writes whole, against a pipe of 256 KiB: 1.6 times as fast on a 2-core EPYC VM (medians of
/// 7, 2026-11-26), 0.94 times on a 2-core Xeon VM that was busy (medians of 20, 2026-11-21).
const WANTED_PIPE_BYTES: usize = 1 << 20;

/// Unused buffers are kept for so many frames more than may wait: for the one that is being read, and one that the
/// caller has returned.
const SPARE_SLOTS: usize = 2;

/// Options of a [`Reader`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReaderOptions {
    /// Size of a frame in bytes.
    pub frame_bytes: usize,
    /// Frames read ahead at most; 4 by default.
    pub depth: usize,
    /// The pipe size to ask for. By default, a pipe is grown to 1 MiB if the system grants it.
    pub capacity_bytes: Option<usize>,
    /// Priority and CPUs of the worker.
    pub policy: Option<ThreadPolicy>,
    /// Bytes that come first: the caller has read them from the descriptor before.
    pub ahead: Vec<u8>,
}

setters!(ReaderOptions:
    depth: usize, capacity_bytes: usize, policy: ThreadPolicy, ahead: Vec<u8>
);

impl ReaderOptions {
    /// Options for frames of that size.
    #[must_use]
    pub fn new(frame_bytes: usize) -> Self {
        Self { frame_bytes, depth: DEFAULT_DEPTH, capacity_bytes: None, policy: None, ahead: Vec::new() }
    }

    fn check(&self) -> Result<(), Error> {
        Error::refuse_zeros([
            ("frame_bytes", Some(self.frame_bytes)),
            ("depth", Some(self.depth)),
            ("capacity_bytes", self.capacity_bytes),
        ])?;
        if isize::try_from(self.frame_bytes).is_err() {
            return Err(Error::Unsuitable("frame_bytes must be less than memory can hold".into()));
        }
        Ok(())
    }
}

/// Reads frames of a fixed size from a descriptor, ahead of its callers, by a native thread.
///
/// It owns a duplicate of the descriptor, and begins at once. If the stream ends inside a frame, all whole frames come
/// first, then [`Error::Truncated`]; if it fails, all whole frames come first, then [`Error::Io`]. Further calls return
/// the same error.
///
/// In the child of a fork it returns [`Error::Forked`]; the parent's continues.
///
/// ```
/// use std::io::Write;
/// use penstock_core::{Reader, ReaderOptions};
/// let (pipe, mut writer) = std::io::pipe()?;
/// let reader = Reader::new(&pipe, &ReaderOptions::new(5))?;
/// writer.write_all(b"firstother")?;
/// drop(writer);
/// let mut frames = Vec::new();
/// while let Some(frame) = reader.read(None)? {
///     frames.push((frame.index(), frame.to_vec()));
/// }
/// assert_eq!(frames, [(0, b"first".to_vec()), (1, b"other".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader {
    queue: Own<Arc<FrameQueue<Frame>>>,
    meter: Arc<Meter>,
    task: Task,
    frame_bytes: usize,
    capacity_bytes: Option<usize>,
    is_closed: AtomicBool,
    rest: Arc<Mutex<Option<Frame>>>,
}

/// Statistics of a reader, at one moment.
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct ReaderStats {
    /// Whole frames read.
    pub frames_read: u64,
    /// Frames returned to callers.
    pub frames_delivered: u64,
    /// Frames that [`Reader::latest`] dropped.
    pub frames_dropped: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Frames that wait for a caller.
    pub frames_waiting: usize,
    /// The pipe's size in bytes, as granted; none if it is not a pipe.
    pub capacity_bytes: Option<usize>,
    /// Time that callers waited for frames.
    pub caller_blocked: Duration,
    /// Time that the worker waited for the source.
    pub worker_blocked: Duration,
    /// Time that the worker waited because the maximum of frames waited for a caller.
    pub worker_full: Duration,
    /// The policy that the worker runs with; none without one, and before it has started.
    pub policy: Option<AppliedPolicy>,
}

impl Reader {
    /// How long [`Reader::close`] waits for the worker. It cannot be interrupted in a read from a disk, or the
    /// close of a socket that lingers.
    pub const LEAVE_WITHIN: Duration = Duration::from_secs(5);

    /// Begins to read from what the descriptor leads to: a pipe, a stream socket, a file from its present position, or
    /// a device. The caller keeps the descriptor, and its mode stays.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`]: `EBADF` if the descriptor is not open for reading, `EISDIR` for a directory, `ENOMEM` for
    ///   frames that do not fit into memory, or what the system reports.
    /// - [`Error::Unsuitable`]: options that make no sense, or a socket or pipe that keeps messages apart.
    pub fn new(fd: impl AsHandle, options: &ReaderOptions) -> Result<Self, Error> {
        let source = PollSource::open(options.ahead.clone(), fd.as_handle())?;
        options.check()?;
        source.check_is_stream("a Reader")?;
        let capacity_bytes = grow(&source, options.capacity_bytes);
        let frame_bytes = options.frame_bytes;
        let pool = Pool::of_slots(frame_bytes, options.depth.saturating_add(SPARE_SLOTS));
        drop(pool.take(frame_bytes)?); // now, so that what does not fit into memory is refused here
        let together = frames_together(frame_bytes).min(options.depth);
        let gathered = (together > 1).then(|| pool.take(together * frame_bytes)).transpose()?;
        let queue = Arc::new(FrameQueue::new(options.depth, together));
        let meter = Arc::new(Meter::default());
        let worker = ReaderWorker {
            source,
            pool,
            frame_bytes,
            gathered: gathered.map(Gathered::new),
            queue: Arc::clone(&queue),
            meter: Arc::clone(&meter),
            rest: Arc::default(),
        };
        let rest = Arc::clone(&worker.rest);
        let task = task::start(task::control(AtExit::Cancel)?, options.policy.clone(), |control| {
            worker.run(control);
            Ok(())
        })?;
        Ok(Self {
            queue: Own::new(queue),
            meter,
            task,
            frame_bytes,
            capacity_bytes,
            is_closed: AtomicBool::new(false),
            rest,
        })
    }

    /// Size of a frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// Returns the next frame in order; none if the stream has ended between two frames.
    ///
    /// # Errors
    ///
    /// - [`Error::Truncated`]: the stream has ended inside a frame.
    /// - [`Error::Io`]: the stream has failed.
    /// - [`Error::Stalled`]: no whole frame came in time. Nothing is lost.
    /// - [`Error::Closed`], [`Error::Forked`].
    pub fn read(&self, timeout: Option<Duration>) -> Result<Option<Frame>, Error> {
        self.ask(timeout, |queue, deadline| queue.next(deadline))
    }

    /// Returns the newest frame: one that became whole after this call and that nobody has got. Only before the end an
    /// older one may be returned, if no other comes; none at the end.
    ///
    /// From here to the next [`read`](Self::read) the worker never waits for callers: it drops the oldest frame for a
    /// new one.
    ///
    /// # Errors
    ///
    /// As [`Reader::read`].
    pub fn latest(&self, timeout: Option<Duration>) -> Result<Option<Frame>, Error> {
        self.ask(timeout, |queue, deadline| queue.newest(deadline, || self.task.wake()))
    }

    /// Returns the incomplete last frame, once [`Error::Truncated`] was returned. None at the second
    /// call.
    #[must_use]
    pub fn take_rest(&self) -> Option<Frame> {
        self.queue.get().and_then(|_| lock(&self.rest).take())
    }

    fn ask(
        &self,
        timeout: Option<Duration>,
        take: impl FnOnce(&FrameQueue<Frame>, Option<Instant>) -> Answer<Frame>,
    ) -> Result<Option<Frame>, Error> {
        let queue = self.queue.get().ok_or(Error::Forked)?;
        let start = Instant::now();
        let answer = take(queue, deadline_after(timeout));
        let waited = start.elapsed();
        self.meter.caller_blocked.add(waited);
        let answer = answer.unwrap_or_else(|| Err(self.stalled(waited)));
        if matches!(answer, Ok(Some(_))) {
            self.meter.frames_delivered.add(1);
        }
        answer
    }

    /// As [`read`](Self::read), for a task, which the end of `awaited` wakes.
    #[cfg(any(feature = "tokio", feature = "futures"))]
    pub(super) fn poll_read(
        &self,
        awaited: &mut Option<Ticket>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Option<Frame>, Error>> {
        loop {
            match self.read(Some(Duration::ZERO)) {
                Err(Error::Stalled { .. }) => {}
                outcome => return std::task::Poll::Ready(outcome),
            }
            let ready = std::pin::Pin::new(awaited.get_or_insert_with(|| self.ready()));
            let _ = std::task::ready!(ready.poll(context)); // a failure comes from the next read
            *awaited = None;
        }
    }

    fn stalled(&self, waited: Duration) -> Error {
        let frame_bytes = self.frame_bytes as u64;
        Error::Stalled { waited, bytes_pending: frame_bytes - self.meter.bytes_read.get() % frame_bytes }
    }

    /// A ticket that ends when [`Reader::read`] would not wait.
    #[must_use]
    pub fn ready(&self) -> Ticket {
        self.queue.get().map_or_else(|| Ticket::ended(Err(Error::Forked)), |queue| queue.ready())
    }

    /// Stops the worker, drops frames that nobody has got, and closes the descriptor, unless the worker is in something
    /// that cannot be interrupted for longer than [`Reader::LEAVE_WITHIN`]. Waiting callers get [`Error::Closed`].
    /// Closing again only waits.
    pub fn close(&self) {
        self.close_within(Self::LEAVE_WITHIN);
    }

    /// As [`close`](Self::close), with another limit. Returns whether the worker has ended.
    pub fn close_within(&self, at_most: Duration) -> bool {
        // Relaxed: the queue's lock orders what matters.
        self.is_closed.store(true, Ordering::Relaxed);
        let Some(queue) = self.queue.get() else { return true };
        queue.close();
        self.task.cancel();
        self.task.ticket.wait_for(Some(at_most)).is_some()
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Its statistics. They stay after its end.
    pub fn stats(&self) -> ReaderStats {
        let (frames_waiting, frames_dropped) = self.queue.get().map_or((0, 0), |queue| queue.load());
        let meter = &self.meter;
        ReaderStats {
            frames_read: meter.frames_read.get(),
            frames_delivered: meter.frames_delivered.get(),
            frames_dropped,
            bytes_read: meter.bytes_read.get(),
            frames_waiting,
            capacity_bytes: self.capacity_bytes,
            caller_blocked: meter.caller_blocked.sum(),
            worker_blocked: meter.worker_blocked.sum(),
            worker_full: meter.worker_full.sum(),
            policy: self.task.applied_policy(),
        }
    }
}

/// Sets a pipe's size, and returns what was granted.
fn grow(source: &PollSource, wanted_bytes: Option<usize>) -> Option<usize> {
    if source.kind != Kind::Pipe {
        return None;
    }
    let (id, _) = fd::identify(source.as_handle()).ok()?;
    match wanted_bytes {
        Some(bytes) => budget::set(source.as_handle(), id, bytes),
        None => budget::grow_to(source.as_handle(), id, WANTED_PIPE_BYTES),
    }
    pipe::capacity(source.as_handle()).ok()
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.close_within(Duration::ZERO);
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("frame_bytes", &self.frame_bytes).finish_non_exhaustive()
    }
}
