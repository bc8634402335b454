//! A stream: one destination with its ordered queue. It is identified by what the descriptor leads to, not by its
//! number.

use std::collections::HashMap;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::Error;
use crate::memory::pool::Pool;
use crate::memory::region::Region;
use crate::runtime::fork::PerProcess;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::waker::Waker;
use crate::sync::queue::{Limits, Load, Pushed, Queue, Refusal};
use crate::sync::ticket::{OnReport, Ticket, ticket_of};
use crate::sync::{deadline_after, lock, passed};
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::pipe;
use crate::sys::span::Span;
use crate::writer::job::{Awaiting, CloseFailure, Destination, Holds, Job, Mark, Progress, WriteView};
use crate::writer::rejected::Rejected;
use crate::writer::transformer::Transformer;
use crate::writer::transport::choice::WriteOptions;
use crate::writer::transport::meter::Meter;
use crate::writer::unreported::Unreported;
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Default limits of a queue: five frames of 2160p rgb24, and enough small ones.
pub(crate) const DEFAULT_LIMITS: Limits = Limits { bytes: 128 << 20, items: 64 };

/// Unused memory that a stream keeps for copies of each size: one in the pipe, one on its way there, one in the making. More would stay
/// after a burst that has filled the queue.
const KEPT_COPIES: usize = 3;

/// The same, of all streams and sizes together. Chosen: what two queues hold, so that a few streams of 2160p rgb24 reuse all of theirs.
const KEPT_BYTES: usize = 2 * DEFAULT_LIMITS.bytes;

/// What a stream keeps in any case: a small copy must not get fresh memory because others keep large ones. Chosen: many small copies,
/// and no frame.
const OWN_KEPT_BYTES: usize = 512 << 10;

/// What all streams keep.
static KEPT: PerProcess<Arc<AtomicUsize>> = PerProcess::new(Arc::default);

/// How often a wait for a failure checks for another reader of the FIFO, with which there is none. Guessed.
const READER_CHECK: Duration = Duration::from_millis(50);

pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) kind: Kind,
    pub(crate) queue: Queue<Job>,
    pub(crate) meter: Meter,
    /// Memory for copies. It keeps none while there is no worker.
    pub(super) copies: Pool,
    /// The failure, until it is reported.
    pub(crate) unreported: Arc<Unreported>,
    on_report: OnReport,
    /// Those of open writers.
    writers: Mutex<Vec<Weak<Destination>>>,
    /// That of the last write by descriptor; none before the first.
    by_descriptor: Mutex<Option<Weak<Destination>>>,
    pub(super) policy: Mutex<WorkerPolicy>,
    /// What the pipe held when its content was taken back, because the stream was about to fail.
    taken_back: OnceLock<u64>,
    /// The number of the write that is to be cut short. Numbers begin at one.
    pub(crate) cut: AtomicU64,
    next_number: AtomicU64,
    /// That of the worker, if there is one.
    waker: Mutex<Weak<Waker>>,
    /// Whether a writer transforms: its writes are of interest also to a worker that waits for room.
    has_transforms: AtomicBool,
}

/// The worker's policy: what owners want, and what came of it.
#[derive(Default)]
pub(super) struct WorkerPolicy {
    pub(super) wanted: Option<ThreadPolicy>,
    pub(super) applied: Option<AppliedPolicy>,
}

#[derive(Default)]
struct Streams {
    /// All that are in use by writers, workers or calls by descriptor and have not failed.
    working: HashMap<StreamId, Weak<Stream>>,
    /// Those with a failure that neither a ticket nor `sync` has reported.
    failed: HashMap<StreamId, Failed>,
}

struct Failed {
    stream: Arc<Stream>,
    /// An eventfd, as long as nobody else may have its identity.
    _held: Option<Arc<Destination>>,
}

/// Its lock comes before those of queues.
static STREAMS: PerProcess<Mutex<Streams>> = PerProcess::new(Mutex::default);

/// Workers that are idle or about to check for work.
pub(crate) static IDLE: PerProcess<AtomicUsize> = PerProcess::new(|| AtomicUsize::new(0));

impl Stream {
    /// Returns the stream that the descriptor leads to: the same for all descriptors of one pipe. After a failure, it is a
    /// new one, which may find room or another reader.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Arc<Self>, Errno> {
        let (id, kind) = fd::identify(fd)?;
        Ok(Self::working(&mut lock(STREAMS.get()), id, kind))
    }

    /// As [`of`](Self::of), for a write by descriptor, to which a failed stream belongs until a ticket or `sync` has reported
    /// it. Whether it is the stream's first.
    pub(crate) fn by_descriptor(fd: BorrowedFd<'_>) -> Result<(Arc<Self>, bool), Errno> {
        let (id, kind) = fd::identify(fd)?;
        let mut streams = lock(STREAMS.get());
        if let Some(failed) = streams.failed.get(&id) {
            return Ok((Arc::clone(&failed.stream), false));
        }
        let stream = Self::working(&mut streams, id, kind);
        // While the table is locked: see `part`.
        let mut last = lock(&stream.by_descriptor);
        let is_first = last.is_none();
        last.get_or_insert_default();
        drop(last);
        Ok((stream, is_first))
    }

    fn working(streams: &mut Streams, id: StreamId, kind: Kind) -> Arc<Self> {
        if let Some(stream) = streams.working.get(&id).and_then(Weak::upgrade) {
            return stream;
        }
        let unreported = Arc::<Unreported>::default();
        let stream = Arc::new_cyclic(|own| Self {
            id,
            kind,
            queue: Queue::new(DEFAULT_LIMITS),
            meter: Meter::default(),
            copies: Pool::sharing(Arc::clone(KEPT.get()), KEPT_BYTES, OWN_KEPT_BYTES, KEPT_COPIES),
            on_report: Self::on_report(Weak::clone(own), Arc::clone(&unreported)),
            unreported,
            writers: Mutex::default(),
            by_descriptor: Mutex::default(),
            policy: Mutex::default(),
            taken_back: OnceLock::new(),
            cut: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
            waker: Mutex::default(),
            has_transforms: AtomicBool::new(false),
        });
        streams.working.insert(id, Arc::downgrade(&stream));
        stream
    }

    /// What a ticket calls that has returned a failure: it may outlive its stream.
    fn on_report(own: Weak<Self>, unreported: Arc<Unreported>) -> OnReport {
        Arc::new(move || match own.upgrade() {
            Some(stream) => stream.forget_failure(),
            None => unreported.note_reported(),
        })
    }

    /// Fails the queue by `fail`, which may find that it must not, and takes the stream out of the table.
    ///
    /// The table is locked meanwhile: after an error is visible, the next write to this destination opens a new stream. So `fail`
    /// ends no ticket and wakes nobody, because wakers and callbacks may use any stream.
    fn part<R>(self: &Arc<Self>, fail: impl FnOnce() -> R) -> R {
        let mut streams = lock(STREAMS.get());
        let outcome = fail();
        let parts = self.queue.failure().is_some() && streams.remove_working(self);
        if parts && let Some(last) = &*lock(&self.by_descriptor) {
            // Do not replace an existing entry: dropping it would lock the table again.
            streams.failed.entry(self.id).or_insert_with(|| Failed {
                stream: Arc::clone(self),
                _held: if self.id.is_of_eventfd() { last.upgrade() } else { None },
            });
        }
        outcome
    }

    /// Called when `sync` or a ticket has reported its failure.
    pub(crate) fn forget_failure(self: &Arc<Self>) {
        self.unreported.note_reported();
        let mut streams = lock(STREAMS.get());
        let is_its_own = streams.failed.get(&self.id).is_some_and(|failed| Arc::ptr_eq(&failed.stream, self));
        let forgotten = is_its_own.then(|| streams.failed.remove(&self.id));
        drop(streams);
        drop(forgotten); // outside of the table's lock
    }

    /// All that writes by descriptor go to or have failed in.
    pub(crate) fn all_by_descriptor() -> Vec<Arc<Self>> {
        let streams = lock(STREAMS.get());
        let mut all = streams.all_working();
        let failed: Vec<_> = streams.failed.values().map(|failed| Arc::clone(&failed.stream)).collect();
        drop(streams); // before any of `all`, whose last reference may be here
        all.retain(|stream| lock(&stream.by_descriptor).is_some());
        all.extend(failed);
        all
    }

    /// The descriptor of a write by descriptor: that of the last one while it is in flight, or a new one.
    pub(crate) fn share(
        &self,
        open: impl FnOnce() -> Result<Arc<Destination>, Errno>,
    ) -> Result<Arc<Destination>, Errno> {
        // Any descriptor of a pipe or socket serves. Those of a file may have different positions.
        let is_shareable = !matches!(self.kind, Kind::File | Kind::Other);
        let mut shared = lock(&self.by_descriptor);
        if is_shareable && let Some(present) = shared.as_ref().and_then(Weak::upgrade) {
            return Ok(present);
        }
        let own = open()?;
        *shared = Some(Arc::downgrade(&own));
        Ok(own)
    }

    /// Counts a writer as open. `begin` runs first; its argument says whether no other writer is open.
    pub(crate) fn join(&self, writer: &Arc<Destination>, begin: impl FnOnce(bool)) {
        let mut writers = lock(&self.writers);
        begin(writers.is_empty());
        writers.push(Arc::downgrade(writer));
    }

    /// Counts a writer as closed.
    pub(crate) fn leave(&self, writer: &Arc<Destination>) {
        lock(&self.writers).retain(|other| !ptr::eq(other.as_ptr(), Arc::as_ptr(writer)));
    }

    /// The descriptors of open writers.
    pub(crate) fn writers(&self) -> Vec<Arc<Destination>> {
        lock(&self.writers).iter().filter_map(Weak::upgrade).collect()
    }

    /// Marks the present end of the queue.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.queue.accepted_items())
    }

    /// Waits until everything before the mark has ended.
    pub(crate) fn flush(&self, mark: Mark, timeout: Option<Duration>) -> Result<(), Error> {
        let start = Instant::now();
        self.queue.flush(mark.0, deadline_after(timeout)).unwrap_or_else(|load| {
            Err(Error::Stalled { waited: start.elapsed(), bytes_pending: load.pending_bytes })
        })
    }

    /// All streams in use that have not failed.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        lock(STREAMS.get()).all_working()
    }

    /// Accepted bytes that the destination has not taken yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let settled = self.meter.written_bytes() + self.meter.lost_bytes.get();
        self.queue.load().accepted_bytes.saturating_sub(settled)
    }

    /// Queues a write, which then has the only reference to its destination that the caller had, unless it joins another one.
    /// Waits for room until the deadline. Returns the ticket, and whether the caller must start a worker.
    pub(crate) fn push(
        self: &Arc<Self>,
        region: Box<dyn Region>,
        destination: &mut Option<Arc<Destination>>,
        options: WriteOptions,
        deadline: Option<Instant>,
    ) -> Result<(Ticket, bool), Rejected> {
        let start = Instant::now();
        let Some(taken) = destination.take() else { return Err(Rejected { region, error: Error::Closed }) };
        let span = Span::of(&*region);
        let bytes = options.transform.as_ref().map_or(span.len(), |transform| transform.output_bytes());
        let (completion, mut ticket) = ticket_of(bytes, Arc::clone(&self.on_report));
        self.unreported.set_discarded(false);
        let job = Job {
            // Relaxed: only uniqueness counts.
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            options,
            span,
            bytes: bytes as u64,
            ticket: ticket.clone(),
            holds: Some(Holds { destination: taken, region, completion }),
            progress: Progress::Queued,
            outcome: Ok(()),
        };
        let pushed = self.queue.push(job, bytes, deadline, Job::is_of_nobody, |last, job| {
            let joins = last.join(job);
            if joins {
                ticket = last.ticket.clone();
            }
            joins
        });
        self.meter.caller_blocked.add(start.elapsed());
        match pushed {
            Ok(Pushed::Queued { start_worker }) => Ok((ticket, start_worker)),
            Ok(Pushed::Joined(job)) => {
                *destination = Some(job.whole().destination);
                Ok((ticket, false))
            }
            Err(refused) => {
                let holds = refused.value.whole();
                *destination = Some(holds.destination);
                let error = self.refusal(refused.reason, start.elapsed());
                Err(Rejected { region: holds.region, error })
            }
        }
    }

    fn refusal(&self, reason: Refusal, waited: Duration) -> Error {
        match reason {
            Refusal::Failed(failure) => {
                self.unreported.note_reported();
                failure
            }
            Refusal::Gone => Error::Closed,
            Refusal::Full { pending_bytes } => Error::Stalled { waited, bytes_pending: pending_bytes },
        }
    }

    /// Transforms the write under the cursor. The caller's memory is released afterwards.
    pub(crate) fn transform(
        &self,
        transformer: &mut Transformer,
        work: &WriteView,
    ) -> Result<WriteView, Errno> {
        let Some(transform) = &work.options.transform else { return Ok(work.clone()) };
        let start = Instant::now();
        let mut output = transformer.take(work.number, transform)?;
        while !output.is_complete() {
            // SAFETY: the job at the cursor holds the region, and only its worker takes it out.
            unsafe { output.step(work.span) };
        }
        self.meter.transforming.add(start.elapsed());
        let made = output.into_buffer();
        let (used, work) = self.queue.current(|job| (job.replace_memory(made), job.view()));
        drop(used); // outside of the queue's lock
        Ok(work)
    }

    /// Called when a writer that transforms is opened.
    pub(super) fn expect_transforms(&self) {
        // Relaxed: the waker's eventfd(2) orders it for a worker that waits for room by now.
        self.has_transforms.store(true, Ordering::Relaxed);
        self.wake_worker();
    }

    pub(super) fn has_transforms(&self) -> bool {
        self.has_transforms.load(Ordering::Relaxed)
    }

    /// Applies one step to the write after the one under the cursor. Returns whether there was one to apply.
    pub(crate) fn transform_following(&self, transformer: &mut Transformer) -> bool {
        let next = self.queue.following(|job| (job.number, job.options.transform.clone()));
        let Some((number, Some(transform))) = next else { return false };
        // Without memory the write waits until it is under the cursor, where that is a failure.
        let Ok(mut output) = transformer.take(number, &transform) else { return false };
        let start = Instant::now();
        // Under the lock, so that nobody discards the write meanwhile: a step is short.
        let used = self.queue.following(|job| {
            if job.number != number {
                return None;
            }
            if !output.is_complete() {
                // SAFETY: the job holds the region, and the lock holds the job.
                unsafe { output.step(job.span) };
            }
            if !output.is_complete() {
                transformer.ahead = Some(output);
                return None;
            }
            job.replace_memory(output.into_buffer())
        });
        self.meter.transforming.add(start.elapsed());
        drop(used);
        true
    }

    /// Called when the write under the cursor is in the stream.
    pub(crate) fn mark_written(&self, awaits_reader: bool) {
        let end = self.meter.written_bytes();
        self.queue.advance(|job| {
            job.progress = if awaits_reader { Progress::AwaitsReader { end } } else { Progress::Written };
            if let Some(destination) = job.destination() {
                destination.written_bytes.add(job.bytes);
            }
        });
    }

    /// The write under the cursor was cut short. It ends as aborted: at once, or when the reader has read its pages.
    pub(crate) fn mark_cut(self: &Arc<Self>, written_before: u64, awaits_reader: bool) {
        let end = self.meter.written_bytes();
        let awaits_reader = awaits_reader && end > written_before;
        let ended = self.queue.advance(|job| {
            let bytes_lost = job.bytes - (end - written_before);
            self.meter.lost_bytes.add(bytes_lost);
            if let Some(destination) = job.destination() {
                destination.written_bytes.add(end - written_before);
                destination.aborted_bytes.add(bytes_lost);
            }
            job.outcome = Err(Error::Aborted { bytes_lost });
            if awaits_reader {
                job.progress = Progress::AwaitsReader { end };
                return None;
            }
            job.progress = Progress::Written;
            job.holds.take().map(|holds| (holds, job.outcome.clone()))
        });
        if let Some((holds, outcome)) = ended {
            self.finish(holds, outcome);
        }
    }

    /// The oldest write that waits for its reader, if there is one.
    ///
    /// Only the worker ends writes that are in the stream, so the descriptor stays open for the worker.
    pub(crate) fn oldest_awaiting(&self) -> Option<Awaiting> {
        self.queue
            .front(|job| match job.progress {
                Progress::AwaitsReader { end } => {
                    job.destination().map(|own| Awaiting { fd: own.fd.as_fd().as_raw_fd(), end })
                }
                _ => None,
            })
            .flatten()
    }

    /// Ends, in order, what has been written and was read up to `read_position`.
    pub(crate) fn reap(self: &Arc<Self>, read_position: u64) {
        loop {
            let taken = self.queue.front(|job| match job.progress {
                Progress::AwaitsReader { end } if end > read_position => None,
                _ => Some((job.holds.take(), job.outcome.clone())),
            });
            let Some(Some((holds, outcome))) = taken else {
                return;
            };
            // A write that was cut has ended already.
            if holds.is_none_or(|holds| self.finish(holds, outcome)) {
                self.queue.retire_front();
            }
        }
    }

    /// Ends a write. If its descriptor's close reports a failure, so does the stream. Whether it goes on.
    fn finish(self: &Arc<Self>, holds: Holds, outcome: Result<(), Error>) -> bool {
        let (completion, closed) = holds.release();
        match closed {
            Ok(()) => completion.end(outcome),
            Err(CloseFailure { errno, bytes_lost }) => {
                let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
                self.fail_after(bytes_lost, of, |failure| completion.end(Err(failure.clone())));
                return false;
            }
        }
        true
    }

    /// The stream's failure, with the bytes delivered and lost. Called under the queue's lock, as all that discards: each byte
    /// counts once.
    fn failure(&self, unread_bytes: u64, load: Load, of: impl FnOnce(u64, u64) -> Error) -> Error {
        let delivered = self.meter.written_bytes().saturating_sub(unread_bytes);
        let undelivered = load.accepted_bytes.saturating_sub(delivered);
        // What was discarded on request is not lost.
        let lost = undelivered.saturating_sub(self.meter.lost_bytes.get());
        self.meter.lost_bytes.set(undelivered);
        self.unreported.add(lost);
        of(delivered, lost)
    }

    /// Fails the stream if its pipe has bytes and no reader: they arrive nowhere, although the kernel accepted them. Waits until
    /// the deadline for others' writes in flight, with which the worker is about to fail.
    pub(crate) fn check_reader(
        self: &Arc<Self>,
        fd: &ForkFd,
        start: Instant,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        while let Some(unread @ 1..) = self.bytes_without_reader(fd) {
            if let Some(failure) = self.fail_at_rest(Errno::PIPE, unread) {
                return Err(failure);
            }
            let again = Instant::now() + READER_CHECK;
            let until = deadline.map_or(again, |deadline| deadline.min(again));
            match self.queue.flush(self.queue.accepted_items(), Some(until)) {
                Err(load) if passed(deadline) => {
                    return Err(Error::Stalled {
                        waited: start.elapsed(),
                        bytes_pending: load.pending_bytes,
                    });
                }
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(())) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// What a pipe holds that has no reader.
    fn bytes_without_reader(&self, fd: &ForkFd) -> Option<u64> {
        let is_alone = self.kind.is_pipe() && fd::peer_is_gone(fd.as_fd());
        let unread = is_alone.then(|| pipe::unread_bytes(fd.as_fd()).unwrap_or(0));
        // Read `taken_back` last: while the worker drains the pipe, it counts as a reader.
        self.taken_back.get().copied().or(unread)
    }

    /// What the pipe holds that nobody has read.
    pub(super) fn unread_bytes(&self, fd: BorrowedFd<'_>) -> u64 {
        let unread = pipe::unread_bytes(fd).unwrap_or(0);
        self.taken_back.get().copied().unwrap_or(unread)
    }

    /// Called by the worker before it takes back what the pipe holds, and fails the stream.
    pub(super) fn begin_to_take_back(&self, unread_bytes: u64) {
        let _ = self.taken_back.set(unread_bytes); // only the first time has found the pipe as the reader left it
    }

    /// Fails the stream if nothing is in flight, when no worker would notice. The failure, if it has one then.
    pub(crate) fn fail_at_rest(self: &Arc<Self>, errno: Errno, unread_bytes: u64) -> Option<Error> {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        self.part(|| self.queue.fail_at_rest(|load| self.failure(unread_bytes, load, of)));
        self.queue.failure()
    }

    /// The failure of an owner whose descriptor's close has reported one.
    pub(super) fn close_failed(self: &Arc<Self>, CloseFailure { errno, bytes_lost }: CloseFailure) -> Error {
        let failed = self.fail_at_rest(errno, bytes_lost);
        failed.unwrap_or_else(|| {
            // Other owners' writes are in flight.
            self.unreported.add(bytes_lost);
            let delivered = self.meter.written_bytes().saturating_sub(bytes_lost);
            Error::of_stream(errno, delivered, bytes_lost)
        })
    }

    /// Fails the stream and everything queued on it. Only for its worker, or if there is none.
    pub(crate) fn fail(self: &Arc<Self>, errno: Errno, unread_bytes: u64) {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        self.fail_after(unread_bytes, of, |_| {});
    }

    /// As [`fail`](Self::fail), if pages in the pipe cannot be taken back: their memory is never freed, because
    /// somebody may still read it.
    pub(crate) fn fail_keeping_memory(self: &Arc<Self>, errno: Errno, unread_bytes: u64) {
        let mut is_begun = true;
        let kept = self.queue.select(|job| {
            let holds = job.holds.as_mut().filter(|_| is_begun)?;
            is_begun = job.progress != Progress::Queued; // all that are written, and the next one
            Some(mem::replace(&mut holds.region, Box::new(Vec::new())))
        });
        mem::forget(kept);
        self.fail(errno, unread_bytes);
    }

    /// As [`fail`](Self::fail), with an error made from the bytes delivered and lost; `first` learns the failure before all
    /// that is queued.
    pub(super) fn fail_after(
        self: &Arc<Self>,
        unread_bytes: u64,
        of: impl FnOnce(u64, u64) -> Error,
        first: impl FnOnce(&Error),
    ) {
        let removed = self.part(|| self.queue.fail(|load| self.failure(unread_bytes, load, of)));
        let failure = self.queue.failure().expect("a failed queue knows of what");
        first(&failure);
        self.queue.end(removed, |job| job.fail(failure.clone()));
    }

    /// Discards what this owner has queued. If one of its writes is in progress, the worker cuts it short.
    pub(crate) fn abort(&self, owner: &Arc<Destination>) {
        let removed = self.queue.cancel(
            |job| job.is_for(owner),
            // Relaxed: see `Sink::push_all`. The worker is woken below.
            |job| self.cut.store(job.number, Ordering::Relaxed),
            |job| {
                self.meter.lost_bytes.add(job.bytes);
                owner.aborted_bytes.add(job.bytes);
            },
        );
        self.wake_worker();
        self.queue.end(removed, |job| {
            let bytes_lost = job.bytes;
            job.fail(Error::Aborted { bytes_lost });
        });
        if self.queue.select(|job| (!job.is_for(owner)).then_some(())).is_empty() {
            self.unreported.set_discarded(true);
        }
    }

    /// The waker of a worker that is about to start; none if it never waits for a reader, or the system has no descriptor for it.
    ///
    /// For the thread that starts the worker: see [`BouncePipe::suited`](super::transport::write::BouncePipe::suited).
    pub(super) fn make_waker(&self) -> Option<Arc<Waker>> {
        let waker = if self.kind == Kind::File { None } else { Waker::new().ok().map(Arc::new) };
        *lock(&self.waker) = waker.as_ref().map_or_else(Weak::new, Arc::downgrade);
        waker
    }

    fn wake_worker(&self) {
        let waker = lock(&self.waker).upgrade();
        waker.iter().for_each(|waker| waker.wake());
    }

    /// Called by the worker between writes, so that a later policy is applied too.
    pub(crate) fn apply_policy(&self) {
        let policy = lock(&self.policy);
        let unapplied = if policy.applied.is_some() { None } else { policy.wanted.clone() };
        drop(policy);
        let Some(wanted) = unapplied else { return };
        // Without the lock: this may read the machine's topology, and readers of statistics must not wait for that.
        let applied = wanted.apply();
        let mut state = lock(&self.policy);
        if state.wanted.as_ref() == Some(&wanted) {
            state.applied = Some(applied);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(STREAMS.get()).remove_working(self);
    }
}

impl Streams {
    fn all_working(&self) -> Vec<Arc<Stream>> {
        self.working.values().filter_map(Weak::upgrade).collect()
    }

    /// Another stream may have taken its place already. Whether it was there.
    fn remove_working(&mut self, stream: &Stream) -> bool {
        let is_there = self.working.get(&stream.id).is_some_and(|other| ptr::eq(other.as_ptr(), stream));
        if is_there {
            self.working.remove(&stream.id);
        }
        is_there
    }
}
