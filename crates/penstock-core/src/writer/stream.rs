//! A stream: one destination with its ordered queue. It is identified by what the descriptor leads to, not by its
//! number.

use std::any::Any;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::Error;
use crate::memory::region::Region;
use crate::runtime::fork::{ForkTable, Held, Order};
use crate::runtime::fork_fd::ForkFd;
use crate::sync::queue::{HeldQueue, Limits, Load, Queue, Refusal};
use crate::sync::ticket::{Ticket, ticket_of};
use crate::sync::unheard::{Unheard, take_unheard_bytes};
use crate::sync::{deadline_after, lock};
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::span::Span;
use crate::writer::job::{Awaiting, Job, Mark, Progress, Work};
use crate::writer::rejected::Rejected;
use crate::writer::transform::Transformer;
use crate::writer::transport::choice::WriteOptions;
use crate::writer::transport::meter::Meter;
use crate::writer::transport::staged;
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Default limits of a queue: five frames of 2160p rgb24, and enough small ones.
pub(crate) const DEFAULT_LIMITS: Limits = Limits { bytes: 128 << 20, items: 64 };

pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) kind: Kind,
    pub(crate) queue: Queue<Job>,
    pub(crate) meter: Meter,
    /// The failure, until it is reported.
    pub(crate) unheard: Arc<Unheard>,
    policy: Mutex<PolicyState>,
    /// The number of the write that is to be cut short. Numbers begin at one.
    pub(crate) cut: AtomicU64,
    next_number: AtomicU64,
}

#[derive(Default)]
struct PolicyState {
    wanted: Option<ThreadPolicy>,
    applied: Option<AppliedPolicy>,
}

type Streams = HashMap<StreamId, Weak<Stream>>;

/// All streams that are in use by writers, workers or `pipe`. A fork locks their queues together with this table.
static STREAMS: ForkTable<Streams> =
    ForkTable::held_by(Order::Streams, Mutex::default, |_| (), |_| Box::new(HeldStreams::hold()));

/// Workers that are idle or about to check for work. The child of a fork has none.
pub(crate) static IDLE: AtomicUsize = AtomicUsize::new(0);

impl Stream {
    /// Returns the stream that the descriptor leads to: the same for all descriptors of one pipe.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Arc<Self>, Errno> {
        let (id, kind) = fd::identify(fd)?;
        let mut streams = STREAMS.lock();
        if let Some(stream) = streams.get(&id).and_then(Weak::upgrade) {
            return Ok(stream);
        }
        let stream = Arc::new(Self {
            id,
            kind,
            queue: Queue::new(DEFAULT_LIMITS),
            meter: Meter::default(),
            unheard: Arc::default(),
            policy: Mutex::default(),
            cut: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
        });
        streams.insert(id, Arc::downgrade(&stream));
        Ok(stream)
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

    /// All streams in use.
    pub(crate) fn all() -> Vec<Arc<Self>> {
        STREAMS.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Removes the stream from the table, so that the next write to its destination begins a new one.
    pub(crate) fn forget(self: &Arc<Self>) {
        let mut streams = STREAMS.lock();
        if streams.get(&self.id).is_some_and(|stream| stream.as_ptr() == Arc::as_ptr(self)) {
            streams.remove(&self.id);
        }
    }

    /// Accepted bytes that the destination has not taken yet.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let settled = self.meter.written_bytes() + self.meter.lost_bytes.get();
        self.queue.load().accepted_bytes.saturating_sub(settled)
    }

    /// Queues a write. Waits for room until the deadline. Returns the ticket, and whether the caller must start a
    /// worker.
    pub(crate) fn push(
        self: &Arc<Self>,
        region: Box<dyn Region>,
        fd: Arc<ForkFd>,
        options: WriteOptions,
        owner: u64,
        deadline: Option<Instant>,
        is_gone: impl Fn() -> bool,
    ) -> Result<(Ticket, bool), Rejected> {
        let start = Instant::now();
        let span = Span::of(&*region);
        let bytes = options.transform.as_ref().map_or(span.len(), |transform| transform.output_bytes());
        let (completion, ticket) = ticket_of(bytes, &self.unheard);
        self.unheard.set_discarded(false);
        let job = Job {
            // Relaxed: only uniqueness counts.
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            owner,
            options,
            span,
            bytes: bytes as u64,
            ticket: ticket.clone(),
            region: Some(region),
            fd: Some(fd),
            completion: Some(completion),
            progress: Progress::Queued,
            outcome: Ok(()),
        };
        let pushed = self.queue.push(job, bytes, deadline, is_gone);
        self.meter.caller_blocked.add(start.elapsed());
        match pushed {
            Ok(start_worker) => Ok((ticket, start_worker)),
            Err(refused) => {
                let error = match refused.reason {
                    Refusal::Failed(failure) => {
                        self.unheard.note_heard();
                        failure
                    }
                    Refusal::Gone => Error::Closed,
                    Refusal::Full { pending_bytes } => {
                        Error::Stalled { waited: start.elapsed(), bytes_pending: pending_bytes }
                    }
                };
                let mut job = refused.value;
                Err(Rejected { region: job.region.take().expect("a refused job is whole"), error })
            }
        }
    }

    /// Transforms the write under the cursor. The caller's memory is released afterwards.
    pub(crate) fn transform(&self, transformer: &mut Transformer, work: &Work) -> Result<Work, Errno> {
        let Some(transform) = &work.options.transform else { return Ok(work.clone()) };
        let start = Instant::now();
        let mut output = transformer.take(work.number, transform)?;
        while !output.is_complete() {
            // SAFETY: the job at the cursor holds the region, and only its worker takes it out.
            unsafe { output.step(work.span) };
        }
        self.meter.transforming.add(start.elapsed());
        let made = output.into_buffer();
        let (used, work) = self.queue.current(|job| (job.replace_memory(made), job.work()));
        drop(used); // outside of the queue's lock
        Ok(work)
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
                transformer.keep(output);
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
        });
    }

    /// The write under the cursor was cut short. It ends as aborted: at once, or when the reader has read its pages.
    pub(crate) fn mark_cut(&self, written_before: u64, awaits_reader: bool) {
        let end = self.meter.written_bytes();
        let awaits_reader = awaits_reader && end > written_before;
        let (mut completion, mut region) = (None, None);
        self.queue.advance(|job| {
            let bytes_lost = job.bytes - (end - written_before);
            self.meter.lost_bytes.add(bytes_lost);
            let outcome = Err(Error::Aborted { bytes_lost });
            if awaits_reader {
                job.progress = Progress::AwaitsReader { end };
                job.outcome = outcome;
            } else {
                job.progress = Progress::Written;
                region = job.region.take();
                completion = job.completion.take().map(|completion| (completion, outcome));
            }
        });
        drop(region); // before the ticket says that the write is over
        if let Some((completion, outcome)) = completion {
            completion.end(outcome);
        }
    }

    /// The oldest write that waits for its reader, if there is one.
    ///
    /// Only the worker ends writes that are in the stream, so the descriptor stays open for the worker.
    pub(crate) fn oldest_awaiting(&self) -> Option<Awaiting> {
        self.queue
            .front(|job| match job.progress {
                Progress::AwaitsReader { end } => {
                    job.fd.as_ref().map(|fd| Awaiting { fd: fd.as_fd().as_raw_fd(), end })
                }
                _ => None,
            })
            .flatten()
    }

    /// Ends, in order, what has been written and was read up to `read_position`.
    pub(crate) fn reap(&self, read_position: u64) {
        loop {
            let taken = self.queue.front(|job| match job.progress {
                Progress::AwaitsReader { end } if end > read_position => None,
                _ => {
                    drop(job.fd.take());
                    Some((job.region.take(), job.completion.take(), job.outcome.clone()))
                }
            });
            let Some(Some((region, completion, outcome))) = taken else {
                return;
            };
            drop(region);
            if let Some(completion) = completion {
                completion.end(outcome);
            }
            self.queue.retire_front();
        }
    }

    /// The stream's failure, with the bytes delivered and lost.
    fn failure(&self, unread_bytes: u64, load: Load, of: impl FnOnce(u64, u64) -> Error) -> Error {
        let delivered = self.meter.written_bytes().saturating_sub(unread_bytes);
        let lost = load.accepted_bytes.saturating_sub(delivered);
        self.meter.lost_bytes.set(lost);
        self.unheard.add(lost);
        of(delivered, lost)
    }

    /// Fails the stream if nothing is in flight, when no worker would notice.
    pub(crate) fn fail_at_rest(&self, errno: Errno, unread_bytes: u64) {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        self.queue.fail_at_rest(|load| self.failure(unread_bytes, load, of));
    }

    /// Fails the stream and everything queued on it. Only for its worker, or if there is none.
    pub(crate) fn fail(&self, errno: Errno, unread_bytes: u64) {
        self.fail_with(unread_bytes, |delivered, lost| Error::of_stream(errno, delivered, lost));
    }

    /// As [`fail`](Self::fail), with an error made from the bytes delivered and lost.
    pub(crate) fn fail_with(&self, unread_bytes: u64, of: impl FnOnce(u64, u64) -> Error) {
        let jobs = self.queue.fail(|load| self.failure(unread_bytes, load, of));
        let failure = self.queue.failure().expect("a failed queue knows of what");
        self.end_all(jobs, &failure);
    }

    /// As [`fail`](Self::fail), if pages in the pipe cannot be taken back: their memory is never freed, because
    /// somebody may still read it.
    pub(crate) fn fail_keeping_memory(&self, errno: Errno, unread_bytes: u64) {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        let mut jobs = self.queue.fail(|load| self.failure(unread_bytes, load, of));
        let begun = jobs.iter().take_while(|job| job.progress != Progress::Queued).count() + 1;
        jobs.iter_mut().take(begun).for_each(|job| std::mem::forget(job.region.take()));
        let failure = self.queue.failure().expect("a failed queue knows of what");
        self.end_all(jobs, &failure);
    }

    fn end_all(&self, jobs: Vec<Job>, failure: &Error) {
        let count = jobs.len();
        jobs.into_iter().for_each(|job| job.fail(failure.clone()));
        self.queue.retire(count);
    }

    /// Discards what this owner has queued. If one of its writes is in progress, the worker cuts it short.
    pub(crate) fn abort(&self, owner: u64) {
        let jobs = self.queue.cancel(
            |job| job.owner == owner,
            // Relaxed: see `Sink::push_all`.
            |job| self.cut.store(job.number, Ordering::Relaxed),
        );
        let count = jobs.len();
        for job in jobs {
            let bytes_lost = job.bytes;
            self.meter.lost_bytes.add(bytes_lost);
            job.fail(Error::Aborted { bytes_lost });
        }
        self.queue.retire(count);
        if self.queue.select(|job| (job.owner != owner).then_some(())).is_empty() {
            self.unheard.set_discarded(true);
        }
    }

    pub(crate) fn set_policy(&self, policy: Option<ThreadPolicy>) {
        *lock(&self.policy) = PolicyState { wanted: policy, applied: None };
    }

    /// Whether the worker has a policy.
    pub(crate) fn has_policy(&self) -> bool {
        lock(&self.policy).wanted.is_some()
    }

    /// Called by the worker between writes, so that a later policy is applied too.
    pub(crate) fn apply_policy(&self) {
        let Some(wanted) = self.unapplied_policy() else { return };
        // Without the lock: this may read the machine's topology, and readers of statistics must not wait for that.
        let applied = wanted.apply();
        let mut state = lock(&self.policy);
        if state.wanted.as_ref() == Some(&wanted) {
            state.applied = Some(applied);
        }
    }

    fn unapplied_policy(&self) -> Option<ThreadPolicy> {
        let state = lock(&self.policy);
        if state.applied.is_some() { None } else { state.wanted.clone() }
    }

    /// Called by a new worker, which starts with the process's policy.
    pub(crate) fn forget_applied_policy(&self) {
        lock(&self.policy).applied = None;
    }

    pub(crate) fn applied_policy(&self) -> Option<AppliedPolicy> {
        lock(&self.policy).applied.clone()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut streams = STREAMS.lock();
        // A new stream may have taken the place already.
        if streams.get(&self.id).is_some_and(|stream| stream.strong_count() == 0) {
            streams.remove(&self.id);
        }
    }
}

/// All streams, locked over a fork.
struct HeldStreams {
    table: MutexGuard<'static, Streams>,
    /// The guards borrow from `streams`, so they are declared, and dropped, first.
    held: Vec<(HeldQueue<'static, Job>, MutexGuard<'static, PolicyState>)>,
    streams: Vec<Arc<Stream>>,
    inherited: Inherited,
}

impl HeldStreams {
    pub(crate) fn hold() -> Self {
        let table = STREAMS.lock();
        let streams: Vec<_> = table.values().filter_map(Weak::upgrade).collect();
        let held = streams
            .iter()
            .map(|stream| {
                // SAFETY: the streams live in their `Arc`s, which this value keeps for longer than the guards.
                let stream: &'static Stream = unsafe { &*Arc::as_ptr(stream) };
                (stream.queue.hold(), lock(&stream.policy))
            })
            .collect();
        Self { table, held, streams, inherited: Inherited(Vec::new()) }
    }
}

impl Held for HeldStreams {
    /// The child has no worker, nothing queued, no failure, nothing counted.
    fn empty(&mut self) {
        for ((queue, policy), stream) in self.held.iter_mut().zip(&self.streams) {
            self.inherited.0.append(&mut queue.empty());
            policy.applied = None;
            stream.meter.reset();
            stream.unheard.note_heard();
        }
        let _ = take_unheard_bytes(); // the parent reports them
        staged::forget_reservations();
        IDLE.store(0, Ordering::Relaxed);
    }

    /// The streams are dropped last: a stream that ends removes itself from the table.
    fn release(self: Box<Self>) -> Box<dyn Any> {
        let Self { table, held, streams, inherited } = *self;
        drop(held);
        drop(table);
        Box::new((inherited, streams))
    }
}

/// The parent's writes, in the child of a fork.
struct Inherited(Vec<Job>);

impl Drop for Inherited {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Job::disown);
    }
}
