//! What a writer holds until it is closed, and its statistics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::{deadline_after, lock};
use crate::sys::{AsHandle, pipe};
use crate::writer::job::{Destination, Mark};
use crate::writer::stream::Stream;
use crate::writer::transport::choice::{Reason, Transport};
use penstock_cpu::AppliedPolicy;

pub(super) struct State {
    pub(super) stream: Arc<Stream>,
    /// None once it is closed.
    pub(super) destination: Mutex<Option<Arc<Destination>>>,
    /// Whether that was by `abort`.
    pub(super) is_aborted: AtomicBool,
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
        if !stream.kind.is_pipe() {
            return None;
        }
        // In this order: otherwise bytes written in between would count as read.
        let written_bytes = stream.meter.written_bytes();
        let unread_bytes = stream.unread_bytes(fd.as_handle());
        let delivered_bytes = written_bytes.saturating_sub(unread_bytes);
        Some(Self { capacity_bytes: pipe::capacity(fd.as_handle()).ok(), delivered_bytes })
    }
}

/// Statistics of a stream.
#[derive(Clone, Debug, Default)]
#[must_use]
#[non_exhaustive]
pub struct WriterStats {
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
    /// Time that callers spent queueing writes, waiting for room included, but for what a task awaits.
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

impl State {
    pub(super) fn new(stream: Arc<Stream>, destination: Arc<Destination>) -> Self {
        let destination = Mutex::new(Some(destination));
        Self { stream, destination, is_aborted: AtomicBool::new(false), last_look: OnceLock::new() }
    }

    pub(super) fn stats(&self) -> WriterStats {
        let stream = &self.stream;
        let pipe = match &*lock(&self.destination) {
            Some(destination) => PipeState::of(stream, &destination.fd),
            None => self.last_look.get().copied(),
        };
        let delivered = pipe.map_or_else(|| stream.meter.written_bytes(), |pipe| pipe.delivered_bytes);
        let lost = stream.meter.lost_bytes.get();
        let load = stream.queue.load();
        // After a failure the pipe is emptied: it holds nothing, although nobody read its content.
        let delivered = delivered.min(load.accepted_bytes.saturating_sub(lost));
        let settled = delivered + lost;
        WriterStats {
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
            policy: stream.policy.applied(),
        }
    }

    pub(super) fn drain(
        &self,
        destination: &Destination,
        mark: Mark,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        let (start, deadline) = (Instant::now(), deadline_after(timeout));
        self.stream
            .flush(mark, timeout)
            .and_then(|()| destination.check_aborted())
            .and_then(|()| self.stream.check_reader(&destination.fd, start, deadline))
    }

    /// Notes that a failure of the stream is returned to a caller.
    pub(super) fn report(&self, outcome: Result<(), Error>) -> Result<(), Error> {
        outcome.inspect_err(|error| {
            if !matches!(error, Error::Stalled { .. } | Error::Aborted { .. }) {
                self.stream.unreported.note_reported();
            }
        })
    }

    /// Closes the writer. The failure, if its descriptor's close reports one.
    pub(super) fn retire(&self) -> Result<(), Error> {
        self.leave().map_or(Ok(()), |destination| self.release(destination))
    }

    /// As [`retire`](Self::retire), without waiting for a close that takes long. The exit of the program reports its failure.
    pub(super) fn retire_apart(&self) {
        if let Some(destination) = self.leave() {
            self.release_apart(destination);
        }
    }

    /// Ends the writer. Its reference to the descriptor, for its last use; none if it has ended before.
    fn leave(&self) -> Option<Arc<Destination>> {
        let destination = lock(&self.destination).take()?;
        destination.is_gone.store(true, Ordering::Relaxed); // see `Job::is_of_nobody`
        self.stream.queue.wake();
        self.stream.leave(&destination);
        if let Some(look) = PipeState::of(&self.stream, &destination.fd) {
            let _ = self.last_look.set(look); // only the first closing closes
        }
        Some(destination)
    }

    pub(super) fn release(&self, destination: Arc<Destination>) -> Result<(), Error> {
        destination.release().map_err(|failure| self.stream.close_failed(failure))
    }

    pub(super) fn release_apart(&self, destination: Arc<Destination>) {
        let stream = Arc::clone(&self.stream);
        destination.release_apart(move |failure| drop(stream.close_failed(failure)));
    }
}

impl Drop for State {
    /// Writes in flight have their own reference to the descriptor.
    fn drop(&mut self) {
        self.retire_apart();
        self.stream.queue.dismiss_worker(Some(Instant::now())); // who leaves by itself when it is through
    }
}
