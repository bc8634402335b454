//! FIFOs: opened without blocking, by waits that can be cancelled.
//!
//! open(2) of a FIFO waits for the other side, and only a signal interrupts it. So nothing here opens that way:
//!
//! - For reading, `O_NONBLOCK` opens at once. tee(2) and poll(2) tell whether a writer has come, without taking a byte.
//! - For writing, `O_NONBLOCK` is refused (`ENXIO`) until there is a reader.
//!
//! Between two attempts a thread sleeps until inotify(7) reports an opening. It reports only complete ones. A reader
//! whose open(2) waits for a writer is not complete: so the writing side also tries by the clock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::task::{self, AtExit, Control, Task};
use crate::sync::ticket::Ticket;
use crate::sync::{deadline_after, lock, passed};
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{AsHandle, Handle, SysError, fifo, inotify, pipe};

/// The first and the longest pause between two attempts by the clock. Guessed: an attempt costs some microseconds, so
/// that even an endless wait is no load, and a person who opens a FIFO by hand does not notice the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// How long a cancellation waits for its thread. Guessed: the thread needs microseconds.
const CANCELLATION: Duration = Duration::from_secs(1);

/// The side of a FIFO to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read; the other side is a writer.
    Read,
    /// To write; the other side is a reader.
    Write,
}

/// A FIFO that was found by its path. It stays the same one whatever happens to the path.
///
/// What it opens is closed on exec and in blocking mode. In the child of a fork it opens nothing ([`Error::Forked`]).
///
/// ```
/// use std::fs::File;
/// use std::io::{Read, Write};
/// use penstock_core::{Access, Fifo};
/// let path = std::env::temp_dir().join(format!("penstock-example-{}", std::process::id()));
/// Fifo::create(&path, 0o600)?;
/// let fifo = Fifo::at(&path)?;
/// let arrival = fifo.open_in_background(Access::Read)?;
/// File::from(fifo.writer(None)?).write_all(b"frame")?;
/// let mut got = String::new();
/// File::from(arrival.take()?).read_to_string(&mut got)?;
/// assert_eq!(got, "frame");
/// std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fifo(Arc<FoundFifo>);

#[derive(Debug)]
struct FoundFifo {
    fd: ForkFd,
    path: PathBuf,
}

impl Fifo {
    /// Creates a FIFO in the file system. The process's umask applies to the permissions: mkfifo(3).
    ///
    /// # Errors
    ///
    /// What the system reports, usually `EEXIST`.
    pub fn create(path: impl AsRef<Path>, permissions: u32) -> Result<(), Error> {
        fifo::create(path.as_ref(), permissions).map_err(Error::of_system)
    }

    /// Finds the FIFO at that path. Opens neither of its sides.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`] for anything but a FIFO, or what the system reports.
    pub fn at(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let found = fifo::find(path).map_err(Error::of_system)?.map_err(|other| {
            let why = format!("{} is {other}, not a FIFO", path.display());
            Error::Unsuitable(why.into())
        })?;
        // A child forked before this has a copy, which opens no side and so keeps nobody from an end of file. The other
        // order would delay every fork while a slow file system looks the path up.
        let fd = ForkFd::adopt(found).map_err(Error::of_system)?;
        Ok(Self(Arc::new(FoundFifo { fd, path: path.into() })))
    }

    /// Opens it for reading, without waiting.
    ///
    /// Until a writer comes, read(2) reports the end of the file. poll(2) reports nothing, and so can be used to wait.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub fn reader(&self) -> Result<Handle, Error> {
        self.open(Access::Read).map(ForkFd::release)
    }

    /// Opens it for writing, once there is a reader.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] if no reader came in time, or what the system reports.
    pub fn writer(&self, at_most: Option<Duration>) -> Result<Handle, Error> {
        self.opening(Access::Write).wait_for(at_most)
    }

    /// Starts an opening that completes when the other side is there. It is waited for in slices.
    pub fn opening(&self, access: Access) -> Opening {
        Opening { fifo: self.clone(), access, reader: None, watch: None, pause: PAUSES.0 }
    }

    /// As [`opening`](Self::opening), on a native thread, which ends when the other side is there or the ticket is
    /// cancelled or dropped.
    ///
    /// # Errors
    ///
    /// The system refused a thread or a descriptor. The ticket reports other failures.
    pub fn open_in_background(&self, access: Access) -> Result<FifoTicket, Error> {
        let slot = Arc::new(Mutex::new(Slot::Waiting));
        let mut opening = self.opening(access);
        let shared = Arc::clone(&slot);
        let control = task::control(AtExit::Cancel)?;
        let task = task::start(control, None, move |control| {
            let opened = opening.wait(Some(control), None)?;
            match &mut *lock(&shared) {
                Slot::Cancelled => return Err(Error::Aborted { bytes_lost: 0 }),
                slot => *slot = Slot::Opened(opened),
            }
            Ok(())
        })?;
        Ok(FifoTicket { task, slot })
    }

    /// Opens without waiting: `ENXIO` for writing while there is no reader.
    fn open(&self, access: Access) -> Result<ForkFd, Error> {
        self.check_own()?;
        let FoundFifo { fd, path } = &*self.0;
        ForkFd::make(|| fifo::open_side(fd.as_handle(), path, access == Access::Write))
            .map_err(Error::of_system)
    }

    fn check_own(&self) -> Result<(), Error> {
        if self.0.fd.is_inherited() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// An opening in progress. Dropping it cancels it.
///
/// For reading, the FIFO is open all the time, so that writers find a reader.
#[derive(Debug)]
#[must_use = "dropping it cancels it"]
pub struct Opening {
    fifo: Fifo,
    access: Access,
    reader: Option<WaitingReader>,
    /// Reports openings between two attempts, unless the system refuses one; none before the first attempt.
    watch: Option<Result<ForkFd, SysError>>,
    pause: Duration,
}

impl Opening {
    /// Waits until the other side is there, and returns the descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] if nobody came in time: it can be called again. Or what the system reports.
    pub fn wait_for(&mut self, at_most: Option<Duration>) -> Result<Handle, Error> {
        self.wait(None, at_most).map(ForkFd::release)
    }

    /// Waits until the other side is there, or until the task is cancelled.
    fn wait(&mut self, task: Option<&Control>, at_most: Option<Duration>) -> Result<ForkFd, Error> {
        self.fifo.check_own()?;
        let start = Instant::now();
        let deadline = deadline_after(at_most);
        loop {
            if task.is_some_and(Control::is_cancelled) {
                return Err(Error::Aborted { bytes_lost: 0 });
            }
            if let Some(opened) = self.look()? {
                return Ok(opened);
            }
            if passed(deadline) {
                return Err(Error::Stalled { waited: start.elapsed(), bytes_pending: 0 });
            }
            self.rest(task, deadline);
        }
    }

    /// Returns the descriptor if the other side is there.
    fn look(&mut self) -> Result<Option<ForkFd>, Error> {
        match self.access {
            Access::Read => self.look_for_a_writer(),
            Access::Write => match self.fifo.open(Access::Write) {
                Err(Error::Io { os_error, .. }) if os_error == SysError::NO_OTHER_SIDE.raw_os_error() => {
                    Ok(None)
                }
                opened => opened.map(Some),
            },
        }
    }

    fn look_for_a_writer(&mut self) -> Result<Option<ForkFd>, Error> {
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => WaitingReader::open(&self.fifo)?,
        };
        if reader.has_met_a_writer()? {
            return Ok(Some(reader.end));
        }
        self.reader = Some(reader);
        Ok(None)
    }

    /// Sleeps until there may be something new.
    fn rest(&mut self, task: Option<&Control>, deadline: Option<Instant>) {
        let Some(watch) = &self.watch else {
            // Do not sleep yet: the watch does not report who has come before it.
            let found = self.fifo.0.fd.as_handle();
            self.watch = Some(ForkFd::of_inotify(|| fifo::watch_openings(found)));
            return;
        };
        let waker = task.map(|task| Watched::new(task.waker.as_handle(), Events::READ));
        let opened = watch.as_ref().ok().map(|watch| Watched::new(watch.as_handle(), Events::READ));
        let mut fds: Vec<_> = waker.into_iter().chain(opened).collect();
        wait::wait(&mut fds, self.longest_rest(deadline)); // interrupted or not, the caller looks again
        if let Ok(watch) = watch {
            inotify::forget_events(watch.as_handle());
        }
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    fn longest_rest(&self, deadline: Option<Instant>) -> Option<Duration> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A reader that is there completes at once with every writer, so that the watch reports each.
        let is_told_of_all = self.access == Access::Read && matches!(self.watch, Some(Ok(_)));
        if is_told_of_all { left } else { Some(left.map_or(self.pause, |left| left.min(self.pause))) }
    }
}

/// A reading side to which no writer has come yet.
#[derive(Debug)]
struct WaitingReader {
    end: ForkFd,
    /// A pipe to try tee(2) with.
    scratch: [ForkFd; 2],
}

impl WaitingReader {
    fn open(fifo: &Fifo) -> Result<Self, Error> {
        let end = fifo.open(Access::Read)?;
        Ok(Self { end, scratch: ForkFd::make_all(pipe::make).map_err(Error::of_system)? })
    }

    /// Whether there is a writer or its bytes, or one has come and gone.
    fn has_met_a_writer(&self) -> Result<bool, Error> {
        match pipe::tee(self.end.as_handle(), self.scratch[1].as_handle(), 1) {
            // POLLHUP means a writer that came after our opening, and went.
            Ok(0) => Ok(wait::ready(self.end.as_handle(), Events::READ).has_hung_up()),
            Ok(_) => Ok(true),                             // with bytes to read
            Err(error) if error.would_block() => Ok(true), // with a writer that is silent so far
            Err(errno) => Err(Error::of_system(errno)),
        }
    }
}

/// An opening on a native thread. Dropping it cancels it.
#[derive(Debug)]
#[must_use = "dropping it cancels it"]
pub struct FifoTicket {
    task: Task,
    slot: Arc<Mutex<Slot>>,
}

/// Where the thread leaves the descriptor.
#[derive(Debug)]
enum Slot {
    Waiting,
    Opened(ForkFd),
    Taken,
    Cancelled,
}

impl FifoTicket {
    /// Ends when the opening has ended.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.task.ticket
    }

    /// Waits until the opening has ended, at most for `at_most`; none if it has not. The descriptor is left for
    /// [`take`](Self::take).
    #[must_use]
    pub fn wait_for(&self, at_most: Option<Duration>) -> Option<Result<(), Error>> {
        let outcome = self.task.ticket.wait_for(at_most)?;
        Some(outcome.and_then(|()| match *lock(&self.slot) {
            Slot::Cancelled => Err(Error::Aborted { bytes_lost: 0 }),
            _ => Ok(()),
        }))
    }

    /// Waits until the opening has ended, and returns the descriptor, which is the caller's from then on.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if it was cancelled, [`Error::Closed`] if the descriptor was taken before, or the failure of
    /// the opening.
    pub fn take(&self) -> Result<Handle, Error> {
        self.task.ticket.wait()?;
        let mut slot = lock(&self.slot);
        match std::mem::replace(&mut *slot, Slot::Taken) {
            Slot::Opened(opened) => Ok(opened.release()),
            Slot::Cancelled => {
                *slot = Slot::Cancelled;
                Err(Error::Aborted { bytes_lost: 0 })
            }
            Slot::Waiting | Slot::Taken => Err(Error::Closed),
        }
    }

    /// Cancels the opening, and closes its descriptor unless it was taken. Waits until that is done, so that no writer
    /// finds a reader that is about to go; at most for a second, in case a file system holds the thread up.
    pub fn cancel(&self) {
        if self.give_up() {
            let _ = self.task.ticket.wait_for(Some(CANCELLATION));
        }
    }

    /// Makes the thread end soon. Returns whether there is one.
    fn give_up(&self) -> bool {
        if self.task.ticket.is_inherited() {
            return false; // in the child of a fork there is neither thread nor descriptor, and the lock may be held for ever
        }
        self.task.cancel();
        let mut slot = lock(&self.slot);
        if !matches!(*slot, Slot::Taken) {
            *slot = Slot::Cancelled;
        }
        true
    }
}

impl Drop for FifoTicket {
    fn drop(&mut self) {
        self.give_up();
    }
}
