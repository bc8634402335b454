//! One stream to many destinations by tee(2) and splice(2).
//!
//! All destinations share the pages at the front of one pipe: the source itself, or an inner pipe that is filled from it. A
//! destination takes them by tee(2), which leaves them where they are, and is then *ahead* by so many bytes; what everybody
//! is ahead by is taken off the front. The last who is behind takes its bytes by splice(2), which does both at once. So a
//! short tee(2) neither loses nor repeats a byte, and nobody is further ahead than the front pipe is large. A destination that is no pipe
//! takes its bytes into an inner pipe of its own, and has them from there.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

use super::splice::{PIECE_BYTES, awaits_first_writer};
use super::{Course, Ends, MethodReason, RelayError, RelayOptions, Relayed};
use crate::background::{self, AtExit, Control, Live, Task};
use crate::capacity;
use crate::completion::Ticket;
use crate::error::Error;
use crate::inbox::Inbox;
use crate::kept::Kept;
use crate::sync::lock;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::pipe;
use crate::thread::ThreadPolicy;

/// What is done about a destination that takes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeePolicy {
    /// All wait for it.
    #[default]
    Block,
    /// It is given up when it has taken nothing at all for so long while there was something to take. One that is merely slow
    /// stays.
    Evict {
        /// How long it may take nothing.
        after: Duration,
    },
}

/// Why a destination gets nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeeEnd {
    /// The source has ended, and all of it was delivered.
    SourceEnded,
    /// The source has failed, and all before that was delivered.
    SourceFailed,
    /// It was removed, after what it had taken was delivered.
    Removed,
    /// Its reader went away.
    Broken,
    /// It took nothing for longer than its policy allows.
    Evicted,
    /// The system refused, as a full disk does.
    Failed,
    /// The whole was cancelled.
    Cancelled,
}

impl TeeEnd {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SourceEnded => "source-ended",
            Self::SourceFailed => "source-failed",
            Self::Removed => "removed",
            Self::Broken => "broken",
            Self::Evicted => "evicted",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What became of one destination so far.
#[derive(Clone, Debug, PartialEq)]
pub struct OutletReport {
    /// Where in the stream it began: 0 unless it was added later.
    pub start: u64,
    /// Bytes that it has taken; after its reader went away, those that the reader had taken.
    pub bytes_delivered: u64,
    /// Bytes that were taken for it and did not arrive.
    pub bytes_lost: u64,
    /// How bytes leave for a destination that is no pipe; none for a pipe.
    pub through: Option<Relayed>,
    /// Why it ended; none while it runs.
    pub end: Option<TeeEnd>,
    /// What it failed of.
    pub error: Option<Error>,
}

/// What became of a tee so far.
#[derive(Clone, Debug)]
pub struct TeeReport {
    /// Bytes that were taken out of the source.
    pub bytes: u64,
    /// Whether the source has come to its end.
    pub source_ended: bool,
    /// All destinations in the order in which they were added.
    pub outlets: Vec<TeeOutlet>,
}

/// One destination of a [`Tee`]: live while it runs, a report afterwards.
#[derive(Clone, Debug)]
pub struct TeeOutlet(Arc<Outlet>);

#[derive(Debug)]
struct Outlet {
    number: i32,
    id: StreamId,
    policy: TeePolicy,
    report: Live<OutletReport>,
}

impl TeeOutlet {
    /// The number of the descriptor that it was added by.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.0.number
    }

    /// Its policy.
    #[must_use]
    pub fn policy(&self) -> TeePolicy {
        self.0.policy
    }

    /// What became of it so far.
    #[must_use]
    pub fn report(&self) -> OutletReport {
        self.0.report.get()
    }

    /// Whether the two are the same.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the descriptor leads to this destination.
    #[must_use]
    pub fn leads_to(&self, fd: impl AsFd) -> bool {
        fd::identify(fd.as_fd()).is_ok_and(|(id, _)| id == self.0.id)
    }
}

/// Copies one stream to many destinations, on a native thread, without a byte passing through user space where all are pipes.
///
/// The death of one destination never stops or shortens another's stream. It ends when the source does, or when there is no
/// destination left; what the source holds then stays there.
#[derive(Debug)]
pub struct Tee {
    /// Gone when the tee has ended.
    control: Weak<Control>,
    shared: Arc<Shared>,
    unstarted: Mutex<Option<Start>>,
    task: Mutex<Option<Task>>,
}

#[derive(Debug)]
struct Start {
    control: Arc<Control>,
    front: Front,
    policy: Option<ThreadPolicy>,
}

/// What the thread and its owners share.
#[derive(Debug)]
struct Shared {
    source: StreamId,
    orders: Inbox<Order>,
    progress: Live<Progress>,
    outlets: Live<Vec<TeeOutlet>>,
}

#[derive(Debug)]
enum Order {
    Add(Box<Lane>),
    Remove(TeeOutlet),
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    taken: u64,
    source_ended: bool,
}

impl Tee {
    /// Prepares a tee from that source; [`start`](Self::start) begins. Its thread gets the policy.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or the system refuses a pipe.
    pub fn new(src: impl AsFd, policy: Option<ThreadPolicy>) -> std::result::Result<Self, Error> {
        fd::check_readable(src.as_fd())?;
        let (source, kind) = fd::identify(src.as_fd())?;
        let front = Front::open(src.as_fd(), kind)?;
        let control = background::control(AtExit::Drain)?;
        Ok(Self {
            control: Arc::downgrade(&control),
            shared: Arc::new(Shared {
                source,
                orders: Inbox::new(),
                progress: Live::new(Progress::default()),
                outlets: Live::new(Vec::new()),
            }),
            unstarted: Mutex::new(Some(Start { control, front, policy })),
            task: Mutex::new(None),
        })
    }

    /// Adds a destination. Before the start it gets the whole stream, afterwards what comes from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`]: it is the source, or a destination already. [`Error::Closed`]: the tee has ended. Or it cannot be
    /// written.
    pub fn add(&self, dst: impl AsFd, policy: TeePolicy) -> std::result::Result<TeeOutlet, Error> {
        let dst = dst.as_fd();
        fd::check_writable(dst)?;
        let (id, kind) = fd::identify(dst)?;
        if id == self.shared.source && kind != Kind::Other && kind != Kind::StreamSocket {
            return Err(Error::Unsuitable("the destination is the source".into()));
        }
        let is_here = |outlet: &TeeOutlet| outlet.0.id == id && outlet.report().end.is_none();
        if kind != Kind::Other && self.shared.outlets.get().iter().any(is_here) {
            return Err(Error::Unsuitable("it is a destination already".into()));
        }
        let (lane, outlet) = Lane::open(dst, id, kind, policy)?;
        // Known before the thread has it, which may be through with it at once.
        self.shared.outlets.change(|outlets| outlets.push(outlet.clone()));
        if self.order(Order::Add(Box::new(lane))).is_err() {
            self.shared.outlets.change(|outlets| outlets.retain(|other| !other.is(&outlet)));
            return Err(Error::Closed);
        }
        Ok(outlet)
    }

    /// Takes a destination off: what it has taken is still delivered, and no more. Does nothing if it has ended.
    pub fn remove(&self, outlet: &TeeOutlet) {
        // After the end there is nothing to take it off.
        let _ = self.order(Order::Remove(outlet.clone()));
    }

    fn order(&self, order: Order) -> std::result::Result<(), Order> {
        match self.control.upgrade() {
            // In the child of a fork the thread is the parent's.
            Some(control) if !control.is_inherited() => {
                self.shared.orders.put(order)?;
                control.bell.ring();
                Ok(())
            }
            _ => Err(order),
        }
    }

    /// Begins; does nothing if it has begun.
    ///
    /// # Errors
    ///
    /// No thread could be had.
    pub fn start(&self) -> std::result::Result<(), Error> {
        let Some(Start { control, front, policy }) = lock(&self.unstarted).take() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let work = move |control: &Control| Pump::new(front, &shared, control).run();
        *lock(&self.task) = Some(background::start(control, policy, work)?);
        Ok(())
    }

    /// The ticket of the thread, which ends when the tee does; none before the start.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        lock(&self.task).as_ref().map(|task| task.ticket.clone())
    }

    /// Starts it if it was not, and waits for the end, at most for so long: none if it is not there then. The failures of
    /// destinations are in the report.
    ///
    /// # Errors
    ///
    /// The source failed, or it was cancelled ([`Error::Aborted`]).
    pub fn wait_for(&self, timeout: Option<Duration>) -> Option<std::result::Result<TeeReport, Error>> {
        if let Err(error) = self.start() {
            return Some(Err(error));
        }
        let outcome = self.ticket().expect("it was started").wait_for(timeout)?;
        Some(outcome.map(|()| self.report()))
    }

    /// The same for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`wait_for`](Self::wait_for).
    pub fn wait(&self) -> std::result::Result<TeeReport, Error> {
        self.wait_for(None).expect("a wait without a limit ends with an outcome")
    }

    /// Stops it where it is. Does nothing after its end.
    pub fn cancel(&self) {
        if let Some(control) = self.control.upgrade() {
            control.cancel();
        }
    }

    /// What became of it so far.
    #[must_use]
    pub fn report(&self) -> TeeReport {
        let Progress { taken, source_ended } = self.shared.progress.get();
        TeeReport { bytes: taken, source_ended, outlets: self.shared.outlets.get() }
    }
}

/// The pipe whose front all destinations share.
#[derive(Debug)]
struct Front {
    reader: Kept,
    /// For a source that is no pipe: fills the pipe from it. Gone when the source has ended.
    filler: Option<Filler>,
    failure: Option<RelayError>,
}

#[derive(Debug)]
struct Filler {
    src: Kept,
    writer: Kept,
    course: Course,
}

impl Front {
    fn open(src: BorrowedFd<'_>, kind: Kind) -> std::result::Result<Self, Error> {
        let own = Kept::make(|| fd::duplicate(src))?;
        if kind == Kind::Pipe {
            return Ok(Self { reader: own, filler: None, failure: None });
        }
        let [reader, writer] = inner_pipe()?;
        let ends = Ends { src: own.as_fd(), dst: writer.as_fd() };
        let course = Course::plan(&ends, &RelayOptions::default())?;
        Ok(Self { reader, filler: Some(Filler { src: own, writer, course }), failure: None })
    }

    /// Puts in what the source has and the pipe takes, without waiting.
    fn fill(&mut self) {
        while let Some(Filler { src, writer, course }) = &mut self.filler {
            match advance(course, src.as_fd(), writer.as_fd()) {
                Advance::Moved => {}
                Advance::Blocked => return,
                Advance::Ended => self.filler = None,
                Advance::Failed(failure) => {
                    self.failure = Some(failure);
                    self.filler = None;
                }
            }
        }
    }

    fn unread_bytes(&self) -> u64 {
        pipe::unread_bytes(self.reader.as_fd()).unwrap_or(0)
    }

    /// What to wait for when the pipe is empty.
    fn source(&self) -> BorrowedFd<'_> {
        self.filler.as_ref().map_or(self.reader.as_fd(), |filler| filler.src.as_fd())
    }
}

fn inner_pipe() -> Result<[Kept; 2]> {
    let ends = Kept::make_all(pipe::make)?;
    if let Ok((id, _)) = fd::identify(ends[1].as_fd()) {
        capacity::grow(ends[1].as_fd(), id);
    }
    Ok(ends)
}

enum Advance {
    Moved,
    Blocked,
    Ended,
    Failed(RelayError),
}

/// One step of a relay, without waiting.
fn advance(course: &mut Course, src: BorrowedFd<'_>, dst: BorrowedFd<'_>) -> Advance {
    let state = |course: &Course| (course.moved, course.mover.held_bytes());
    let before = state(course);
    match course.run(&Ends { src, dst }, None, Some(Instant::now())) {
        Some(Ok(_)) => Advance::Ended,
        Some(Err(failure)) => Advance::Failed(failure),
        None if state(course) != before => Advance::Moved,
        None => Advance::Blocked,
    }
}

/// One destination, as the thread has it.
#[derive(Debug)]
struct Lane {
    outlet: TeeOutlet,
    dst: Kept,
    /// For a destination that is no pipe.
    inner: Option<Inner>,
    /// Bytes at the front that it has taken already.
    ahead: u64,
    taken: u64,
    may_grow: bool,
    stall: Option<Stall>,
    is_removed: bool,
}

#[derive(Debug)]
struct Inner {
    reader: Kept,
    /// Gone when nothing more will come.
    writer: Option<Kept>,
    course: Course,
}

/// Since when a destination takes nothing, and what it had taken by then.
#[derive(Clone, Copy, Debug)]
struct Stall {
    since: Instant,
    unread: u64,
}

impl Lane {
    fn open(
        dst: BorrowedFd<'_>,
        id: StreamId,
        kind: Kind,
        policy: TeePolicy,
    ) -> std::result::Result<(Self, TeeOutlet), Error> {
        let number = dst.as_raw_fd();
        let dst = Kept::make(|| fd::duplicate(dst))?;
        let inner = if kind == Kind::Pipe { None } else { Some(Inner::open(dst.as_fd())?) };
        let report = Live::new(OutletReport {
            start: 0,
            bytes_delivered: 0,
            bytes_lost: 0,
            through: inner.as_ref().map(|inner| inner.course.relayed()),
            end: None,
            error: None,
        });
        let outlet = TeeOutlet(Arc::new(Outlet { number, id, policy, report }));
        let lane = Self {
            outlet: outlet.clone(),
            dst,
            inner,
            ahead: 0,
            taken: 0,
            may_grow: kind == Kind::Pipe,
            stall: None,
            is_removed: false,
        };
        Ok((lane, outlet))
    }

    /// The pipe that takes its bytes; none when it takes no more.
    fn entry(&self) -> Option<BorrowedFd<'_>> {
        match &self.inner {
            _ if self.is_removed => None,
            None => Some(self.dst.as_fd()),
            Some(inner) => inner.writer.as_ref().map(AsFd::as_fd),
        }
    }

    fn is_behind(&self) -> bool {
        self.ahead == 0 && self.entry().is_some()
    }

    /// Whether its own inner pipe would take something: for that no event tells. Of other pipes poll(2) does.
    fn could_take(&self) -> bool {
        self.inner.is_some() && self.is_behind() && self.unread_bytes() == 0
    }

    /// Bytes that were taken for it and that it has not read.
    fn unread_bytes(&self) -> u64 {
        match &self.inner {
            None => pipe::unread_bytes(self.dst.as_fd()).unwrap_or(0),
            Some(inner) => {
                let held = inner.course.mover.held_bytes() as u64;
                pipe::unread_bytes(inner.reader.as_fd()).unwrap_or(0) + held
            }
        }
    }

    fn note(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.stall = None;
        self.publish();
    }

    fn publish(&self) {
        let through = self.inner.as_ref().map(|inner| inner.course.relayed());
        let delivered = through.map_or(self.taken, |through| through.bytes);
        self.outlet.0.report.change(|report| {
            report.bytes_delivered = delivered;
            report.through = through;
        });
    }

    /// Says for good what became of it. Of what was taken for it, that which has not arrived is lost.
    fn end(self, end: TeeEnd, error: Option<Error>) {
        let unread = self.unread_bytes();
        self.publish();
        let lost = match (&self.inner, end) {
            (Some(_), _) => unread,
            // What is in somebody else's pipe can still be read, unless nobody is left to read it.
            (None, TeeEnd::Broken) => unread.min(self.taken),
            (None, _) => 0,
        };
        self.outlet.0.report.change(|report| {
            if self.inner.is_none() {
                report.bytes_delivered -= lost;
            }
            report.bytes_lost = lost;
            report.end = Some(end);
            report.error = error;
        });
    }

    fn fail(self, errno: Errno) {
        let end = match Error::of_stream(errno, 0, 0) {
            Error::Broken { .. } => TeeEnd::Broken,
            _ => TeeEnd::Failed,
        };
        let outlet = self.outlet.clone();
        self.end(end, None);
        outlet.0.report.change(|report| {
            report.error = Some(Error::of_stream(errno, report.bytes_delivered, report.bytes_lost));
        });
    }

    /// Whether it has taken nothing for longer than its policy allows, and for how long.
    fn overdue(&mut self) -> Option<Duration> {
        let TeePolicy::Evict { after } = self.outlet.0.policy else { return None };
        let unread = self.unread_bytes();
        let stall = self.stall.as_mut()?;
        if unread < stall.unread {
            *stall = Stall { since: Instant::now(), unread };
        }
        let waited = stall.since.elapsed();
        (waited >= after).then_some(waited)
    }

    fn eviction(&self) -> Option<Instant> {
        let TeePolicy::Evict { after } = self.outlet.0.policy else { return None };
        self.stall.and_then(|stall| stall.since.checked_add(after))
    }
}

impl Inner {
    fn open(dst: BorrowedFd<'_>) -> std::result::Result<Self, Error> {
        let [reader, writer] = inner_pipe()?;
        let course = Course::plan(&Ends { src: reader.as_fd(), dst }, &RelayOptions::default())?;
        Ok(Self { reader, writer: Some(writer), course })
    }
}

/// The thread's work.
struct Pump<'a> {
    front: Front,
    lanes: Vec<Lane>,
    taken: u64,
    source_ended: bool,
    null: Option<OwnedFd>,
    shared: &'a Shared,
    control: &'a Control,
}

impl<'a> Pump<'a> {
    fn new(front: Front, shared: &'a Shared, control: &'a Control) -> Self {
        Self { front, lanes: Vec::new(), taken: 0, source_ended: false, null: None, shared, control }
    }

    fn run(mut self) -> std::result::Result<(), Error> {
        loop {
            self.obey();
            if self.control.is_cancelled() {
                return self.give_up();
            }
            self.front.fill();
            let progress = match self.distribute() {
                Ok(progress) => self.deliver() | progress,
                Err(error) => return self.fail(error),
            };
            if self.lanes.is_empty() && self.shared.orders.close_if_empty() {
                return self.outcome();
            }
            if !progress {
                // Asked once: bytes that come between two answers would be waited for by nobody.
                let has_bytes = self.front.unread_bytes() > 0;
                if has_bytes && self.lanes.iter().any(Lane::could_take) {
                    continue; // they came after we had looked
                }
                self.mark_stalled(has_bytes);
                self.wait(has_bytes);
                self.evict();
            }
        }
    }

    /// Takes in who was added, and lets go who was removed.
    fn obey(&mut self) {
        for order in self.shared.orders.take() {
            match order {
                Order::Add(lane) => self.admit(*lane),
                Order::Remove(outlet) => {
                    for lane in self.take_lanes(|lane| lane.outlet.is(&outlet)) {
                        self.close_entry(lane, TeeEnd::Removed);
                    }
                }
            }
        }
    }

    /// Who comes later begins where the furthest of the others is: it missed what somebody has taken.
    fn admit(&mut self, mut lane: Lane) {
        lane.ahead = self.furthest();
        lane.outlet.0.report.change(|report| report.start = self.taken + lane.ahead);
        self.lanes.push(lane);
    }

    fn take_lanes(&mut self, mut which: impl FnMut(&Lane) -> bool) -> Vec<Lane> {
        self.lanes.extract_if(.., |lane| which(lane)).collect()
    }

    /// Nothing more will come for that destination. A pipe is through with it; all else has what it has taken first.
    fn close_entry(&mut self, mut lane: Lane, end: TeeEnd) {
        lane.ahead = 0; // it takes no more part
        match &mut lane.inner {
            None => lane.end(end, None),
            Some(inner) => {
                inner.writer = None;
                lane.is_removed |= end == TeeEnd::Removed;
                self.lanes.push(lane);
            }
        }
    }

    fn furthest(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ahead).max().unwrap_or(0)
    }

    fn outcome(mut self) -> std::result::Result<(), Error> {
        self.publish();
        self.front.failure.take().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// A failure of what is ours, which the destinations share.
    fn fail(mut self, error: Error) -> std::result::Result<(), Error> {
        self.shared.orders.close();
        for lane in std::mem::take(&mut self.lanes) {
            lane.end(TeeEnd::Failed, Some(error.clone()));
        }
        Err(error)
    }

    fn give_up(mut self) -> std::result::Result<(), Error> {
        let arrivals = self.shared.orders.close().into_iter().filter_map(|order| match order {
            Order::Add(lane) => Some(*lane),
            Order::Remove(_) => None,
        });
        let mut lost = 0;
        for lane in std::mem::take(&mut self.lanes).into_iter().chain(arrivals) {
            let outlet = lane.outlet.clone();
            lane.end(TeeEnd::Cancelled, None);
            lost += outlet.report().bytes_lost;
        }
        self.publish();
        Err(Error::Aborted { bytes_lost: lost })
    }

    fn publish(&self) {
        self.shared.progress.set(Progress { taken: self.taken, source_ended: self.source_ended });
        self.control.set_moved_bytes(self.taken);
    }

    /// Has destinations that are no pipes take what is in their inner pipes; true if any did.
    fn deliver(&mut self) -> bool {
        let mut progress = false;
        let mut index = 0;
        while index < self.lanes.len() {
            match self.deliver_to(index) {
                Advance::Moved => progress = true,
                Advance::Blocked => index += 1,
                Advance::Ended => {
                    let lane = self.lanes.remove(index);
                    let end = self.end_of(&lane);
                    lane.end(end, None);
                    progress = true;
                }
                Advance::Failed(failure) => {
                    let lane = self.lanes.remove(index);
                    match failure.error {
                        Error::Broken { errno, .. } | Error::Io { errno, .. } => lane.fail(errno),
                        error => lane.end(TeeEnd::Failed, Some(error)),
                    }
                    progress = true;
                }
            }
        }
        progress
    }

    fn deliver_to(&mut self, index: usize) -> Advance {
        let lane = &mut self.lanes[index];
        let Some(inner) = &mut lane.inner else { return Advance::Blocked };
        let advanced = advance(&mut inner.course, inner.reader.as_fd(), lane.dst.as_fd());
        if matches!(advanced, Advance::Moved) {
            lane.stall = None;
            lane.publish();
        }
        advanced
    }

    fn end_of(&self, lane: &Lane) -> TeeEnd {
        match &self.front.failure {
            _ if lane.is_removed => TeeEnd::Removed,
            Some(_) => TeeEnd::SourceFailed,
            None => TeeEnd::SourceEnded,
        }
    }

    /// Has everybody who is behind take what is at the front, then takes off what all have; true if anything moved.
    fn distribute(&mut self) -> std::result::Result<bool, Error> {
        let mut progress = self.take_off()?;
        let window = match self.furthest() {
            0 => PIECE_BYTES,
            // Nobody overtakes, so that all take the same pieces.
            furthest => usize::try_from(furthest).expect("no pipe holds more than memory does"),
        };
        let mut index = 0;
        while index < self.lanes.len() {
            if !self.lanes[index].is_behind() {
                index += 1;
                continue;
            }
            match self.take(index, window) {
                Ok(0) if !awaits_first_writer(self.front.reader.as_fd(), Kind::Pipe) => {
                    self.end_source();
                    return Ok(true);
                }
                Ok(0) | Err(Errno::AGAIN) => index += 1,
                Ok(_) => {
                    progress = true;
                    index += 1;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.lanes.remove(index).fail(errno);
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    /// Has one take from the front: by splice(2) if all others have taken it, else by tee(2).
    fn take(&mut self, index: usize, window: usize) -> Result<usize> {
        let others =
            self.lanes.iter().enumerate().filter(|(other, lane)| *other != index && lane.entry().is_some());
        let covered = others.map(|(_, lane)| lane.ahead).min().unwrap_or(window as u64).min(window as u64);
        let front = self.front.reader.as_fd();
        let entry = self.lanes[index].entry().expect("who is behind has an entry");
        if covered == 0 {
            let taken = pipe::tee(front, entry, window)?;
            self.lanes[index].ahead += taken as u64;
            self.lanes[index].note(taken);
            return Ok(taken);
        }
        let taken = pipe::splice(front, None, entry, covered as usize)?;
        self.lanes[index].ahead += taken as u64;
        self.lanes[index].note(taken);
        self.forget_front(taken as u64);
        Ok(taken)
    }

    /// Takes off the front what everybody has: it comes to that when the last who was behind has gone.
    fn take_off(&mut self) -> std::result::Result<bool, Error> {
        let takers = self.lanes.iter().filter(|lane| lane.entry().is_some());
        let mut left = takers.map(|lane| lane.ahead).min().unwrap_or(0);
        let progress = left > 0;
        while left > 0 {
            let null = match &self.null {
                Some(null) => null,
                None => self.null.insert(open_null()?),
            };
            match pipe::splice(self.front.reader.as_fd(), None, null.as_fd(), left as usize) {
                Ok(0) => return Err(Error::at_call(Errno::IO)), // it was there a moment ago, and nobody else reads it
                Ok(taken) => {
                    left -= taken as u64;
                    self.forget_front(taken as u64);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::at_call(errno)),
            }
        }
        Ok(progress)
    }

    fn forget_front(&mut self, bytes: u64) {
        self.taken += bytes;
        for lane in self.lanes.iter_mut().filter(|lane| lane.entry().is_some()) {
            lane.ahead -= bytes;
        }
        self.publish();
    }

    fn end_source(&mut self) {
        self.source_ended = self.front.failure.is_none();
        for lane in self.take_lanes(|lane| lane.entry().is_some()) {
            let end = self.end_of(&lane);
            self.close_entry(lane, end);
        }
        self.publish();
    }

    /// Notes who takes nothing although there is something to take. Such a pipe may be too small: it is grown, once.
    fn mark_stalled(&mut self, has_bytes: bool) {
        for lane in &mut self.lanes {
            let waits =
                if lane.inner.is_some() { lane.unread_bytes() > 0 } else { has_bytes && lane.is_behind() };
            if !waits {
                lane.stall = None;
            } else if lane.stall.is_none() {
                lane.stall = Some(Stall { since: Instant::now(), unread: lane.unread_bytes() });
            }
            if waits && std::mem::take(&mut lane.may_grow) {
                capacity::grow(lane.dst.as_fd(), lane.outlet.0.id);
            }
        }
    }

    /// Waits until somebody can take something, comes, goes, or is due.
    fn wait(&self, has_bytes: bool) {
        let mut fds = vec![PollFd::new(&self.control.bell, PollFlags::IN)];
        if !has_bytes && self.lanes.iter().any(|lane| lane.entry().is_some()) {
            fds.push(PollFd::from_borrowed_fd(self.front.source(), PollFlags::IN));
        }
        for lane in &self.lanes {
            match (&lane.inner, lane.stall) {
                (_, Some(_)) => fds.push(PollFd::new(&lane.dst, PollFlags::OUT)),
                // poll(2) reports a lost reader whether asked or not.
                (None, None) => fds.push(PollFd::new(&lane.dst, PollFlags::empty())),
                (Some(_), None) => {}
            }
        }
        let due = self.lanes.iter().filter_map(Lane::eviction).min();
        fd::wait(&mut fds, due.map(|due| due.saturating_duration_since(Instant::now())));
        if !fds[0].revents().is_empty() {
            self.control.bell.silence();
        }
    }

    fn evict(&mut self) {
        let mut index = 0;
        while index < self.lanes.len() {
            if let Some(waited) = self.lanes[index].overdue() {
                let lane = self.lanes.remove(index);
                let bytes_pending = lane.unread_bytes();
                lane.end(TeeEnd::Evicted, Some(Error::Stalled { waited, bytes_pending }));
            } else if self.lanes[index].inner.is_none() && fd::peer_is_gone(self.lanes[index].dst.as_fd()) {
                self.lanes.remove(index).fail(Errno::PIPE);
            } else {
                index += 1;
            }
        }
    }
}

fn open_null() -> Result<OwnedFd> {
    rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// How a destination's bytes move, in words.
impl OutletReport {
    /// The name of the method: tee(2) alone, or through a pipe of ours and out of it.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self.through {
            None => "tee",
            Some(through) if through.method == super::Method::ReadWrite => "tee, read-write",
            Some(_) => "tee, splice",
        }
    }

    /// Why that method.
    #[must_use]
    pub fn reason(&self) -> String {
        match self.through {
            None => "the destination is a pipe".into(),
            Some(Relayed { reason: MethodReason::APipe, .. }) => "the destination is no pipe".into(),
            Some(through) => through.reason.to_string(),
        }
    }
}
