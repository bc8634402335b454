//! FIFOs, pipes with a name: opened without blocking, and waited for in a way that can be given up.
//!
//! open(2) of a FIFO waits for the other side, and nothing but a signal ends that. So nothing here opens in that way:
//!
//! - For reading, `O_NONBLOCK` opens at once. Whether a writer has come, tee(2) and poll(2) tell without taking a byte.
//! - For writing, `O_NONBLOCK` is refused (`ENXIO`) until there is a reader.
//!
//! Between two looks we sleep until inotify(7) tells of an opening. It tells of those that are complete only, and a reader
//! whose open(2) waits for a writer is there, but not complete: so the writing side looks by the clock as well.

use std::borrow::Cow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, mkfifoat, open};
use rustix::io::{Errno, retry_on_intr};

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::task::{self, AtExit, Task};
use crate::sync::ticket::Ticket;
use crate::sync::{deadline_after, lock, passed};
use crate::sys::{fd, inotify, pipe};

/// The first and the longest pause between two looks by the clock. Guessed: a look costs some microseconds, so that even an
/// endless wait is no load, and nobody who opens a FIFO by hand notices the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// The side of a FIFO that is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Bytes come out; the other side is a writer.
    Read,
    /// Bytes go in; the other side is a reader.
    Write,
    /// One descriptor is both sides, so that there is nobody to wait for (Linux: fifo(7)).
    Both,
}

impl Access {
    fn flags(self) -> OFlags {
        match self {
            Self::Read => OFlags::RDONLY,
            Self::Write => OFlags::WRONLY,
            Self::Both => OFlags::RDWR,
        }
    }
}

/// A FIFO that was found by its path, and stays the same one whatever becomes of the path.
///
/// What it opens is closed on exec and in blocking mode. The value is of use in its own process only: in the child of a fork
/// it opens nothing ([`Error::Forked`]).
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
pub struct Fifo(Arc<Place>);

#[derive(Debug)]
struct Place {
    fd: ForkFd,
    path: PathBuf,
}

impl Fifo {
    /// Makes a FIFO in the file system; the process's umask is taken off the permissions: mkfifo(3).
    ///
    /// # Errors
    ///
    /// What the system says, `EEXIST` as a rule.
    pub fn create(path: impl AsRef<Path>, permissions: u32) -> Result<(), Error> {
        Ok(mkfifoat(CWD, path.as_ref(), Mode::from_raw_mode(permissions))?)
    }

    /// Finds the FIFO at that path, and opens neither of its sides.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`] for anything else that is there, or what the system says.
    pub fn at(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let found = retry_on_intr(|| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))?;
        let kind = FileType::from_raw_mode(fstat(&found)?.st_mode);
        if kind != FileType::Fifo {
            let why = format!("{} is {}, not a FIFO", path.display(), name_of(kind));
            return Err(Error::Unsuitable(why.into()));
        }
        // A child that is forked before this has a copy, which opens no side and so keeps nobody from an end of file. The
        // other order would hold up every fork while a slow file system looks for the path.
        let fd = ForkFd::make(|| Ok(found))?;
        Ok(Self(Arc::new(Place { fd, path: path.into() })))
    }

    /// Opens it for reading, and waits for nobody.
    ///
    /// Until a writer comes, read(2) says "end of file"; poll(2) says nothing at all, and so can be waited with.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn reader(&self) -> Result<OwnedFd, Error> {
        self.open(Access::Read).map(ForkFd::release)
    }

    /// Opens both sides as one descriptor, and waits for nobody.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn both(&self) -> Result<OwnedFd, Error> {
        self.open(Access::Both).map(ForkFd::release)
    }

    /// Opens it for writing as soon as there is a reader.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] if none came in time, or what the system says.
    pub fn writer(&self, at_most: Option<Duration>) -> Result<OwnedFd, Error> {
        self.opening(Access::Write).wait_for(at_most)
    }

    /// An opening that completes when the other side is there, to be waited for in slices.
    #[must_use]
    pub fn opening(&self, access: Access) -> Opening {
        Opening { fifo: self.clone(), access, reader: None, watch: Watch::NotYet, pause: PAUSES.0 }
    }

    /// The same on a native thread, which ends when the other side is there or the ticket is cancelled or dropped.
    ///
    /// # Errors
    ///
    /// No thread or no descriptor could be had for it. What else goes wrong, the ticket tells.
    pub fn open_in_background(&self, access: Access) -> Result<FifoTicket, Error> {
        let slot = Arc::new(Mutex::new(Slot::Waiting));
        let mut opening = self.opening(access);
        let shared = Arc::clone(&slot);
        let control = task::control(AtExit::Cancel)?;
        let task = task::start(control, None, move |control| {
            let opened = opening.wait(Some(control.waker.as_fd()), None, || control.is_cancelled())?;
            lock(&shared).fill(opened)
        })?;
        Ok(FifoTicket { task, slot })
    }

    /// Opens without waiting: `ENXIO` for writing while there is no reader.
    fn open(&self, access: Access) -> Result<ForkFd, Error> {
        self.check_own()?;
        Ok(ForkFd::make(|| self.0.open(access.flags() | OFlags::CLOEXEC | OFlags::NONBLOCK))?)
    }

    fn check_own(&self) -> Result<(), Error> {
        if self.0.fd.is_inherited() { Err(Error::Forked) } else { Ok(()) }
    }
}

impl Place {
    /// Leads to the FIFO itself, whatever has its path now: proc_pid_fd(5).
    fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_fd().as_raw_fd())
    }

    fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let opened = match retry_on_intr(|| open(self.link(), flags, Mode::empty())) {
            // There is no /proc, or it is closed to who has changed its user (PR_SET_DUMPABLE(2const)). Or the FIFO is
            // closed to us, which its path tells as well.
            Err(Errno::NOENT | Errno::ACCESS) => self.open_by_path(flags)?,
            answer => answer?,
        };
        fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
        Ok(opened)
    }

    /// `ESTALE` if the path leads to something else by now.
    fn open_by_path(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // Were it a terminal now, it should not become ours.
        let opened = retry_on_intr(|| open(&self.path, flags | OFlags::NOCTTY, Mode::empty()))?;
        let (found, own) = (fstat(&opened)?, fstat(&self.fd)?);
        if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) { Ok(opened) } else { Err(Errno::STALE) }
    }
}

fn name_of(kind: FileType) -> Cow<'static, str> {
    match kind {
        FileType::RegularFile => "a regular file".into(),
        FileType::Directory => "a directory".into(),
        FileType::Socket => "a socket".into(),
        FileType::CharacterDevice => "a character device".into(),
        FileType::BlockDevice => "a block device".into(),
        other => format!("{other:?}").into(),
    }
}

/// An opening under way. Dropped, it is given up.
///
/// For reading, the FIFO is open all the time, so that writers which come find a reader.
#[derive(Debug)]
pub struct Opening {
    fifo: Fifo,
    access: Access,
    reader: Option<WaitingReader>,
    watch: Watch,
    pause: Duration,
}

impl Opening {
    /// Waits until the other side is there, and gives the descriptor.
    ///
    /// # Errors
    ///
    /// [`Error::Stalled`] if nobody came in time: it can be asked again. Or what the system says.
    pub fn wait_for(&mut self, at_most: Option<Duration>) -> Result<OwnedFd, Error> {
        self.wait(None, deadline_after(at_most), || false).map(ForkFd::release)
    }

    /// Waits until the other side is there, or the waker wakes it and it is cancelled.
    fn wait(
        &mut self,
        waker: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<ForkFd, Error> {
        self.fifo.check_own()?;
        let start = Instant::now();
        loop {
            if is_cancelled() {
                return Err(Error::Aborted { bytes_lost: 0 });
            }
            if let Some(opened) = self.look()? {
                return Ok(opened);
            }
            if passed(deadline) {
                return Err(Error::Stalled { waited: start.elapsed(), bytes_pending: 0 });
            }
            self.rest(waker, deadline);
        }
    }

    /// The descriptor, if the other side is there.
    fn look(&mut self) -> Result<Option<ForkFd>, Error> {
        match self.access {
            Access::Read => self.look_for_a_writer(),
            Access::Both => self.fifo.open(Access::Both).map(Some),
            Access::Write => match self.fifo.open(Access::Write) {
                Err(Error::Io { errno: Errno::NXIO, .. }) => Ok(None),
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

    /// Sleeps until there may be something new to see.
    fn rest(&mut self, waker: Option<BorrowedFd<'_>>, deadline: Option<Instant>) {
        if matches!(self.watch, Watch::NotYet) {
            // And no sleep yet: of who has come since the last look, the watch knows nothing.
            self.watch = Watch::start(&self.fifo);
            return;
        }
        let watch = self.watch.fd();
        let mut fds: Vec<_> = [waker, watch]
            .into_iter()
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        fd::wait(&mut fds, self.longest_rest(deadline)); // interrupted or not, the caller looks again
        if let Some(watch) = watch {
            inotify::forget_openings(watch);
        }
        self.pause = (self.pause * 2).min(PAUSES.1);
    }

    fn longest_rest(&self, deadline: Option<Instant>) -> Option<Duration> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // A reader that is there opens at once to every writer, so that the watch tells of each.
        let is_told_of_all = self.access == Access::Read && self.watch.fd().is_some();
        if is_told_of_all { left } else { Some(left.map_or(self.pause, |left| left.min(self.pause))) }
    }
}

/// A reading side that no writer has come to yet.
#[derive(Debug)]
struct WaitingReader {
    end: ForkFd,
    /// A pipe to try tee(2) with.
    scratch: [ForkFd; 2],
}

impl WaitingReader {
    fn open(fifo: &Fifo) -> Result<Self, Error> {
        let end = fifo.open(Access::Read)?;
        Ok(Self { end, scratch: ForkFd::make_all(pipe::make)? })
    }

    /// Whether there is a writer, or bytes of one, or one has come and gone.
    fn has_met_a_writer(&self) -> Result<bool, Error> {
        match pipe::tee(self.end.as_fd(), self.scratch[1].as_fd(), 1) {
            // POLLHUP is for a writer that came after the opening, and went: of earlier ones there is none.
            Ok(0) => Ok(fd::ready(self.end.as_fd(), PollFlags::IN).contains(PollFlags::HUP)),
            Ok(_) | Err(Errno::AGAIN) => Ok(true), // with bytes to read; or with a writer that is silent so far
            Err(errno) => Err(errno.into()),
        }
    }
}

/// How we learn of openings between the looks.
#[derive(Debug)]
enum Watch {
    NotYet,
    Refused,
    On(ForkFd),
}

impl Watch {
    fn start(fifo: &Fifo) -> Self {
        let link = fifo.0.link();
        ForkFd::make(|| inotify::watch_openings(link)).map_or(Self::Refused, Self::On)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::On(watch) => Some(watch.as_fd()),
            Self::NotYet | Self::Refused => None,
        }
    }
}

/// An opening on a native thread. Dropped, it is cancelled.
#[derive(Debug)]
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

impl Slot {
    fn fill(&mut self, opened: ForkFd) -> Result<(), Error> {
        if matches!(self, Self::Cancelled) {
            return Err(Error::Aborted { bytes_lost: 0 });
        }
        *self = Self::Opened(opened);
        Ok(())
    }
}

impl FifoTicket {
    /// Tells when the opening has ended.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.task.ticket
    }

    /// Waits until the opening has ended, at most for so long, and leaves the descriptor to [`take`](Self::take): none if it
    /// is under way then.
    #[must_use]
    pub fn wait_for(&self, at_most: Option<Duration>) -> Option<Result<(), Error>> {
        let outcome = self.task.ticket.wait_for(at_most)?;
        Some(outcome.and_then(|()| match *lock(&self.slot) {
            Slot::Cancelled => Err(Error::Aborted { bytes_lost: 0 }),
            _ => Ok(()),
        }))
    }

    /// Waits until the opening has ended, and gives the descriptor, which from then on is the caller's.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if it was cancelled, [`Error::Closed`] if the descriptor was taken before, or what it failed of.
    pub fn take(&self) -> Result<OwnedFd, Error> {
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

    /// Gives the opening up, and closes its descriptor if it has one that was not taken. Its thread ends at once.
    pub fn cancel(&self) {
        if self.task.ticket.is_inherited() {
            return; // in the child of a fork there is neither thread nor descriptor, and the lock may be held for ever
        }
        self.task.cancel();
        let mut slot = lock(&self.slot);
        if !matches!(*slot, Slot::Taken) {
            *slot = Slot::Cancelled;
        }
    }
}

impl Drop for FifoTicket {
    fn drop(&mut self) {
        self.cancel();
    }
}
