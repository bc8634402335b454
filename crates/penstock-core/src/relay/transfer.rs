//! One relay: takes the steps of its method, and waits.

use std::time::{Duration, Instant};

use super::ends::{Ends, Source, Step, check_different};
use super::holes::{Holes, Next};
use super::method::{Mover, choose};
use super::read_write::CopyBuffer;
use super::report::{MethodReason, RelayError, RelayOptions, RelayReport};
use crate::error::Error;
use crate::pipe::budget;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::task::Control;
use crate::sync::passed;
use crate::sys::error::Result;
use crate::sys::facts::Facts;
use crate::sys::fd::{self, Kind};
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{AsHandle, Borrowed, SysError, file, pipe};

/// Who watches a relay while it runs.
pub(crate) struct Watch<'a> {
    /// Its waker interrupts any wait.
    pub(crate) control: &'a Control,
    pub(crate) on_progress: &'a dyn Fn(RelayReport),
}

/// One relay.
#[derive(Debug)]
pub(crate) struct Transfer {
    source: Source,
    destination: Kind,
    are_file_and_unix_socket: bool,
    /// Bytes that may still be taken.
    left: u64,
    pub(crate) moved: u64,
    /// Bytes that the caller has read from the source before, as far as they are not delivered. They go first. If the
    /// relay ends before, they are still the caller's.
    ahead: CopyBuffer,
    mover: Mover,
    /// None if there are none to keep.
    holes: Option<Holes>,
    reason: MethodReason,
    source_ended: bool,
    timeout: Option<Duration>,
    /// Since when no byte has moved; none while bytes move.
    idle: Option<Idle>,
    /// Our own non-blocking descriptor of a terminal.
    terminal: Option<ForkFd>,
    may_grow: [bool; 2],
    /// Whether poll(2) can tell that the destination's reader is gone. For other kinds it may repeatedly report what is
    /// no failure.
    can_lose_reader: bool,
    /// Consecutive attempts that were blocked although both sides looked ready.
    false_starts: u32,
}

/// A time without a byte moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) since: Instant,
    /// Bytes that the destination had not passed on to its reader at the beginning. If the reader takes some of them,
    /// it is not stalled.
    pub(crate) untaken: u64,
}

impl Idle {
    pub(crate) fn begin(untaken: u64) -> Self {
        Self { since: Instant::now(), untaken }
    }

    /// How long it has lasted. It begins again if the reader has taken something since.
    pub(crate) fn go_on(&mut self, untaken: u64) -> Duration {
        if untaken < self.untaken {
            *self = Self::begin(untaken);
        }
        self.since.elapsed()
    }
}

/// Which side is waited for.
enum Awaited {
    Source,
    Destination,
    /// Neither: both look ready.
    Nobody,
}

/// How a wait ended.
enum Waited {
    /// Try again.
    Again,
    /// The source has nothing more, so that the destination need not be waited for.
    Ended,
    /// A signal came.
    NotYet,
    Stalled(Duration),
    Failed(SysError),
}

/// What Linux gives a new pipe (pipe(7)).
pub(crate) const DEFAULT_PIPE_BYTES: usize = 64 << 10;

/// Waits shorter than this need no further checks. Guessed: much longer than a reader that keeps up takes for a pipe.
const SOON: Duration = Duration::from_millis(5);

/// After so many attempts blocked without a visible reason, the relay pauses between attempts. Guessed.
const FALSE_STARTS: u32 = 4;
const FALSE_START_PAUSE: Duration = Duration::from_millis(1);

impl Transfer {
    pub(crate) fn plan(
        src: Borrowed<'_>,
        dst: Borrowed<'_>,
        options: &RelayOptions,
    ) -> std::result::Result<Self, Error> {
        let (kind, src_facts) = fd::look_at_source(src).map_err(Error::of_system)?;
        let (destination, dst_facts) = fd::look_at_destination(dst).map_err(Error::of_system)?;
        let source = Source::begin(src, kind, options.offset)?;
        let are_file_and_unix_socket =
            (kind, destination) == (Kind::File, Kind::StreamSocket) && fd::is_unix_socket(dst);
        let ends = &Ends { src, dst, destination, are_file_and_unix_socket, may_wait: false };
        check_different(ends, &source, options.count, (&src_facts, &dst_facts))?;
        let (mover, reason) = choose(ends, kind, options.mode)?;
        let holes = Holes::look(ends, &source, (&src_facts, &dst_facts));
        Ok(Self {
            source,
            destination,
            are_file_and_unix_socket,
            left: options.count.unwrap_or(u64::MAX),
            moved: 0,
            ahead: CopyBuffer::default(),
            mover,
            holes,
            reason,
            source_ended: false,
            timeout: options.timeout,
            idle: None,
            terminal: ForkFd::of_terminal(dst, destination),
            may_grow: [kind == Kind::Pipe, destination == Kind::Pipe],
            can_lose_reader: destination.is_pipe() || destination == Kind::StreamSocket,
            false_starts: 0,
        })
    }

    /// What its source and its destination are.
    pub(crate) fn kinds(&self) -> [Kind; 2] {
        [self.source.kind, self.destination]
    }

    /// Sets the bytes that the caller has read ahead and that go first, as far as the count allows.
    pub(crate) fn begin_with(&mut self, mut ahead: Vec<u8>) {
        ahead.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= ahead.len() as u64;
        self.ahead = CopyBuffer::holding(ahead);
    }

    /// Takes no more for now than is missing to so many bytes moved. Returns what it may take later.
    pub(crate) fn stop_at(&mut self, bytes: u64) -> u64 {
        self.source_ended = false; // a file may have grown
        let missing = bytes.saturating_sub(self.moved + self.held_bytes() as u64).min(self.left);
        std::mem::replace(&mut self.left, missing) - missing
    }

    pub(crate) fn go_on_with(&mut self, later: u64) {
        self.left += later;
    }

    /// The position of a source file after everything that was delivered.
    pub(crate) fn position(&self) -> Option<u64> {
        self.source.position.map(|position| position.saturating_sub(self.in_transit_bytes() as u64))
    }

    pub(crate) fn relayed(&self) -> RelayReport {
        RelayReport {
            bytes: self.moved,
            method: self.mover.method(),
            reason: self.reason,
            source_ended: self.source_ended,
        }
    }

    /// Continues until the end, the deadline, a signal or the waker.
    pub(crate) fn run(
        &mut self,
        src: Borrowed<'_>,
        dst: Borrowed<'_>,
        watch: Option<&Watch<'_>>,
        deadline: Option<Instant>,
    ) -> Option<std::result::Result<RelayReport, RelayError>> {
        let terminal = self.terminal.take();
        let dst = terminal.as_ref().map_or(dst, AsHandle::as_handle);
        let may_wait = watch.is_none() && deadline.is_none() && self.timeout.is_none();
        let Self { destination, are_file_and_unix_socket, .. } = *self;
        let ends = Ends { src, dst, destination, are_file_and_unix_socket, may_wait };
        let mut outcome = self.advance(&ends, watch, deadline);
        if let Some(Err((errno, bytes))) = self.holes.as_mut().map(|holes| holes.set_length(dst)) {
            self.moved -= bytes;
            self.source.position = self.source.position.map(|position| position - bytes);
            outcome = Some(Err(self.failed(&ends, errno)));
        }
        self.terminal = terminal;
        self.leave_position(src);
        let outcome = outcome?;
        Some(outcome.map(|()| self.relayed()).map_err(|error| self.ended_by(error)))
    }

    pub(crate) fn ended_by(&self, error: Error) -> RelayError {
        RelayError { error, relayed: self.relayed(), bytes_held: self.unreturnable_bytes() }
    }

    /// Bytes in our hands, from the caller or from the source.
    fn held_bytes(&self) -> usize {
        self.ahead.held_bytes() + self.mover.held_bytes()
    }

    fn advance(
        &mut self,
        ends: &Ends<'_>,
        watch: Option<&Watch<'_>>,
        deadline: Option<Instant>,
    ) -> Option<std::result::Result<(), Error>> {
        while self.left > 0 || self.held_bytes() > 0 {
            if watch.is_some_and(|watch| watch.control.is_cancelled()) {
                return Some(Err(Error::Aborted { bytes_lost: self.unreturnable_bytes() }));
            }
            match self.step(ends) {
                Ok(Step::Moved { taken, given }) => self.note(ends, taken, given, watch),
                Ok(Step::Ended) if self.must_confirm_end() => self.fall_back(MethodReason::NothingToCopy),
                Ok(Step::Ended) => {
                    self.source_ended = true;
                    return Some(Ok(()));
                }
                Err(error) if error.would_block() => match self.wait(ends, watch, deadline) {
                    Waited::Again => {}
                    Waited::Ended => {
                        self.source_ended = true;
                        return Some(Ok(()));
                    }
                    Waited::NotYet => return None,
                    Waited::Stalled(waited) => {
                        self.idle = None; // whoever goes on waits as long again
                        return Some(Err(self.stalled(ends, waited)));
                    }
                    Waited::Failed(errno) => return Some(Err(self.failed(ends, errno))),
                },
                Err(error) if error.interrupted() => return None,
                Err(errno) if self.ahead.held_bytes() == 0 && self.mover.is_refused(errno) => {
                    self.fall_back(MethodReason::Refused { os_error: errno.raw_os_error() });
                }
                Err(errno) => return Some(Err(self.failed(ends, errno))),
            }
            if passed(deadline) {
                return None;
            }
        }
        Some(Ok(()))
    }

    fn step(&mut self, ends: &Ends<'_>) -> Result<Step> {
        if self.ahead.held_bytes() > 0 {
            return self.ahead.step(ends, &mut self.source, 0);
        }
        let mut left = self.left;
        if let (Some(holes), Some(position), 0) =
            (&mut self.holes, self.source.position, self.mover.held_bytes())
        {
            match holes.next(ends.dst, position, left)? {
                Next::Data(bytes) => left = bytes,
                Next::Hole(bytes) => {
                    self.source.position = Some(position + bytes);
                    return Ok(Step::direct(bytes as usize));
                }
            }
        }
        self.mover.step(ends, &mut self.source, left)
    }

    fn note(&mut self, ends: &Ends<'_>, taken: usize, given: usize, watch: Option<&Watch<'_>>) {
        self.left -= taken as u64;
        self.moved += given as u64;
        self.idle = None;
        self.false_starts = 0;
        // A source that was nearly full has a writer that waits for room.
        if self.may_grow[0] && taken >= DEFAULT_PIPE_BYTES {
            self.grow(0, ends.src);
        }
        if let Some(watch) = watch {
            (watch.on_progress)(self.relayed());
        }
    }

    /// Grows a pipe, once. False if it is large enough.
    fn grow(&mut self, end: usize, fd: Borrowed<'_>) -> bool {
        self.may_grow[end] = false;
        let is_small = pipe::capacity(fd).is_ok_and(|bytes| bytes < budget::WANTED_BYTES);
        if is_small && let Ok((id, _)) = fd::identify(fd) {
            budget::grow(fd, id);
        }
        is_small
    }

    /// Whether "no more bytes" needs a second opinion: copy_file_range(2) goes by a file's size, and files in /proc
    /// have none.
    fn must_confirm_end(&self) -> bool {
        matches!(self.mover, Mover::CopyFileRange) && self.moved == 0
    }

    fn fall_back(&mut self, reason: MethodReason) {
        self.reason = reason;
        self.mover.fall_back(reason);
    }

    fn wait(&mut self, ends: &Ends<'_>, watch: Option<&Watch<'_>>, deadline: Option<Instant>) -> Waited {
        let awaited = self.awaited(ends);
        if matches!(awaited, Awaited::Destination) && self.may_grow[1] && self.grow(1, ends.dst) {
            return Waited::Again;
        }
        let untaken = || self.timeout.map_or(0, |_| fd::untaken_bytes(ends.dst, self.destination));
        let idle = self.idle.get_or_insert_with(|| Idle::begin(untaken()));
        let mut waited = idle.since.elapsed();
        let is_due = self.timeout.is_some_and(|timeout| waited >= timeout);
        if is_due && matches!(awaited, Awaited::Destination) {
            waited = idle.go_on(untaken());
        }
        let is_soon = waited < SOON && !passed(deadline);
        if matches!(awaited, Awaited::Destination) && !is_soon && self.held_bytes() == 0 {
            // If the source has ended, there is no point in waiting for the destination.
            match self.source.has_ended(ends.src) {
                Ok(false) => {}
                Ok(true) => return Waited::Ended,
                Err(errno) => return Waited::Failed(errno),
            }
        }
        if self.timeout.is_some_and(|timeout| waited >= timeout) {
            return Waited::Stalled(waited);
        }
        let until_stall = self.timeout.map(|timeout| timeout - waited);
        let until_deadline = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let until_late = is_soon.then_some(SOON);
        let at_most = [until_stall, until_deadline, until_late].into_iter().flatten().min();
        self.poll(ends, watch, &awaited, at_most)
    }

    /// Which side is waited for. Files and the bytes in our hands are always ready, so then it is the destination.
    fn awaited(&self, ends: &Ends<'_>) -> Awaited {
        if self.held_bytes() > 0 || self.source.kind == Kind::File {
            return Awaited::Destination;
        }
        let [src, dst] = wait::all_ready([(ends.src, Events::READ), (ends.dst, Events::WRITE)]);
        match (src.is_empty(), dst.is_empty()) {
            (true, _) => Awaited::Source,
            (false, true) => Awaited::Destination,
            (false, false) => Awaited::Nobody,
        }
    }

    fn poll(
        &mut self,
        ends: &Ends<'_>,
        watch: Option<&Watch<'_>>,
        awaited: &Awaited,
        at_most: Option<Duration>,
    ) -> Waited {
        let mut fds = Vec::with_capacity(3);
        match awaited {
            Awaited::Nobody => return self.start_anew(),
            Awaited::Source => fds.push(Watched::new(ends.src, Events::READ)),
            Awaited::Destination => fds.push(Watched::new(ends.dst, Events::WRITE)),
        }
        // A reader may go also while the source is waited for.
        let at_destination = usize::from(matches!(awaited, Awaited::Source));
        if self.can_lose_reader && at_destination == 1 {
            fds.push(Watched::new(ends.dst, Events::NONE));
        }
        fds.extend(watch.map(|watch| Watched::new(watch.control.waker.as_handle(), Events::READ)));
        if !wait::wait(&mut fds, at_most) {
            return Waited::NotYet; // a signal
        }
        let reported = if self.can_lose_reader { fds[at_destination].found() } else { Events::NONE };
        if reported.has_failed() || reported.has_hung_up() {
            match fd::what_was_lost(ends.dst, self.destination, reported) {
                Some(errno) => return Waited::Failed(errno),
                // It would be reported again and again. A write will report a lost reader.
                None => self.can_lose_reader = false,
            }
        }
        if fds[0].found().is_empty() { Waited::Again } else { self.start_anew() }
    }

    /// Tries again. After several attempts in vain, when another process may have been quicker, pauses to spare the
    /// processor.
    fn start_anew(&mut self) -> Waited {
        self.false_starts += 1;
        if self.false_starts > FALSE_STARTS {
            std::thread::sleep(FALSE_START_PAUSE);
        }
        Waited::Again
    }

    /// Bytes taken from the source that have not reached the destination.
    pub(crate) fn in_transit_bytes(&self) -> usize {
        self.mover.held_bytes()
    }

    /// Bytes taken from the source that cannot be put back; those of a file can.
    pub(crate) fn unreturnable_bytes(&self) -> u64 {
        if self.source.position.is_some() { 0 } else { self.in_transit_bytes() as u64 }
    }

    fn stalled(&self, ends: &Ends<'_>, waited: Duration) -> Error {
        let waiting = if self.source.kind == Kind::File {
            let size = Facts::of(ends.src).map_or(0, |facts| facts.size_bytes());
            size.saturating_sub(self.source.position.unwrap_or(0))
        } else {
            pipe::unread_bytes(ends.src).unwrap_or(0)
        };
        let bytes_pending = self.held_bytes() as u64 + waiting.min(self.left);
        Error::Stalled { waited, bytes_pending }
    }

    /// A failure of either side, with the bytes delivered and lost. The content of a pipe without a reader is lost.
    fn failed(&mut self, ends: &Ends<'_>, errno: SysError) -> Error {
        let is_lost = self.destination.is_pipe() && fd::peer_is_gone(ends.dst);
        let unread = if is_lost { pipe::unread_bytes(ends.dst).unwrap_or(0).min(self.moved) } else { 0 };
        let (bytes_delivered, bytes_lost) = (self.moved - unread, unread + self.unreturnable_bytes());
        if self.is_of_source(ends, errno) {
            return Error::Io { os_error: errno.raw_os_error(), bytes_delivered, bytes_lost };
        }
        Error::of_stream(errno, bytes_delivered, bytes_lost)
    }

    /// Whether the source has failed. Its reset does not mean that the destination's reader is gone.
    fn is_of_source(&self, ends: &Ends<'_>, errno: SysError) -> bool {
        match self.mover {
            _ if errno == SysError::NO_READER => false, // no read says so
            _ if self.ahead.held_bytes() > 0 => false,
            Mover::Through(_) | Mover::ReadWrite(_) => self.mover.held_bytes() == 0,
            _ => self.source.kind == Kind::StreamSocket && !fd::peer_is_gone(ends.dst),
        }
    }

    /// Sets the file's own position after what was delivered.
    fn leave_position(&self, src: Borrowed<'_>) {
        if let Some(position) = self.position()
            && self.source.moves_position
        {
            // A file whose position could be read can be positioned.
            let _ = file::set_position(src, position);
        }
    }
}
