//! A stream: one destination with its ordered queue. It is identified by what the descriptor leads to, not by its
//! number.

mod failures;
mod table;
mod transforms;

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::memory::pool::Pool;
use crate::memory::region::Region;
use crate::runtime::fork::PerProcess;
use crate::runtime::waker::Waker;
use crate::sync::queue::{Limits, Pushed, Queue, Refusal};
use crate::sync::ticket::{OnReport, Ticket, ticket_of};
use crate::sync::{deadline_after, lock};
use crate::sys::fd::{Kind, StreamId};
use crate::sys::span::Span;
use crate::sys::{AsHandle, handle};
use crate::writer::job::{Awaiting, CloseFailure, Destination, Holds, Job, Mark, Progress};
use crate::writer::policy::WorkerPolicy;
use crate::writer::rejected::Rejected;
use crate::writer::transport::at_once::AtOnce;
use crate::writer::transport::choice::{Transport, When, WriteOptions};
use crate::writer::transport::meter::Meter;
use crate::writer::unreported::Unreported;

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
    pub(super) policy: WorkerPolicy,
    /// What the pipe held when its content was taken back, because the stream was about to fail.
    taken_back: OnceLock<u64>,
    at_once: AtOnce,
    /// The number of the write that is to be cut short. Numbers begin at one.
    pub(crate) cut: AtomicU64,
    next_number: AtomicU64,
    /// That of the worker, if there is one.
    waker: Mutex<Weak<Waker>>,
    /// Whether a writer transforms: its writes are of interest also to a worker that waits for room.
    has_transforms: AtomicBool,
}

/// Workers that are idle or about to check for work.
pub(crate) static IDLE: PerProcess<AtomicUsize> = PerProcess::new(|| AtomicUsize::new(0));

impl Stream {
    fn new(own: &Weak<Self>, id: StreamId, kind: Kind) -> Self {
        let unreported = Arc::<Unreported>::default();
        Self {
            id,
            kind,
            queue: Queue::new(DEFAULT_LIMITS),
            meter: Meter::default(),
            copies: Pool::sharing(Arc::clone(KEPT.get()), KEPT_BYTES, OWN_KEPT_BYTES, KEPT_COPIES),
            on_report: Self::on_report(Weak::clone(own), Arc::clone(&unreported)),
            unreported,
            writers: Mutex::default(),
            by_descriptor: Mutex::default(),
            policy: WorkerPolicy::default(),
            taken_back: OnceLock::new(),
            at_once: AtOnce::default(),
            cut: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
            waker: Mutex::default(),
            has_transforms: AtomicBool::new(false),
        }
    }

    /// What a ticket calls that has returned a failure: it may outlive its stream.
    fn on_report(own: Weak<Self>, unreported: Arc<Unreported>) -> OnReport {
        Arc::new(move || match own.upgrade() {
            Some(stream) => stream.forget_failure(),
            None => unreported.note_reported(),
        })
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
            failure: None,
            progress: Progress::Queued,
            outcome: Ok(()),
        };
        let join = |last: &mut Job, job: &Job| {
            let joins = last.join(job);
            if joins {
                ticket = last.ticket.clone();
            }
            joins
        };
        let mut reason = None;
        let wants_worker = self.policy.is_wanted(); // whoever wants a policy wants its thread to write
        let do_at_once = |job: &mut Job, is_first: bool| {
            let may_be = match job.options.at_once {
                When::Idle => !wants_worker,
                When::First => is_first && !wants_worker,
                When::Never => false,
            };
            reason = AtOnce::suits(self.kind, bytes, &job.options, is_first).filter(|_| may_be);
            reason.is_some() && self.write_at_once(job)
        };
        let pushed = self.queue.push(job, bytes, deadline, Job::is_of_nobody, join, do_at_once);
        self.meter.caller_blocked.add(start.elapsed());
        match pushed {
            Ok(Pushed::Queued { start_worker }) => Ok((ticket, start_worker)),
            Ok(Pushed::Joined(job)) => {
                *destination = Some(job.whole().destination);
                Ok((ticket, false))
            }
            Ok(Pushed::Ended(job)) => {
                if let Some(reason) = reason {
                    self.meter.set_choice(Transport::Write, reason);
                }
                let is_copy = job.options.at_once == When::First;
                *destination = Some(job.whole().end_at_once());
                if is_copy {
                    self.copies.free_unused(); // which the worker would do when it leaves: there is none
                }
                Ok((ticket, false))
            }
            Err(refused) => {
                let holds = refused.value.whole();
                *destination = Some(holds.destination);
                holds.completion.forget();
                let error = self.refusal(refused.reason, start.elapsed());
                Err(Rejected { region: holds.region, error })
            }
        }
    }

    /// Writes what the destination takes at once. Whether that is all.
    fn write_at_once(&self, job: &mut Job) -> bool {
        let Some(holds) = &job.holds else { return false };
        // SAFETY: the job holds the region.
        let written = unsafe { self.at_once.write(holds.destination.fd.as_handle(), self.kind, job.span) };
        match written {
            Some(Ok(written)) => {
                self.meter.add_written(Transport::Write, written);
                job.advance(written);
                job.span.len() == 0
            }
            Some(Err(errno)) => {
                job.failure = Some(errno);
                false
            }
            None => false,
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
                    job.destination().map(|own| Awaiting { fd: handle::number(own.fd.as_handle()), end })
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
        let waker = lock(&self.waker).upgrade();
        waker.iter().for_each(|waker| waker.cut(self.cut.load(Ordering::Relaxed)));
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
}
