//! File descriptors that the child of a fork closes: a copy there would keep a reader from its end of file.
//!
//! The last close(2) of a socket that lingers (`SO_LINGER`, socket(7)) waits until the peer has acknowledged
//! everything, or for the time that was set. That of a file may write to a network. So dropping a [`ForkFd`], which may
//! happen under a lock, never waits for such a close: another thread does.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, Result, dup3};

use crate::runtime::fork::{ForkTable, Order};
use crate::runtime::thread::{Signals, spawn};
use crate::sync::generation::fork_generation;
use crate::sys::fd::{self, Closing, Kind};
use crate::sys::pipe;

static OPEN: ForkTable<BTreeSet<RawFd>> = ForkTable::new(Order::Descriptors, Mutex::default, close_all);

/// A file descriptor of this process only. In the child of a fork it is closed, and its inherited value does nothing.
#[derive(Debug)]
pub struct ForkFd {
    fd: ManuallyDrop<OwnedFd>,
    generation: u32,
    /// Asked of the system when it is dropped, if it is not known by then.
    closing: Option<Closing>,
}

impl ForkFd {
    /// Opens a descriptor and registers it, with no fork in between: forks wait for `make`, which must not wait itself.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn make(make: impl FnOnce() -> Result<OwnedFd>) -> Result<Self> {
        let [made] = Self::make_all(|| make().map(|fd| [fd]))?;
        Ok(made)
    }

    /// A non-blocking descriptor of a destination that is a terminal: its user may stop it for ever (Ctrl-S).
    pub(crate) fn of_terminal(dst: BorrowedFd<'_>, destination: Kind) -> Option<Self> {
        if destination == Kind::Other { Self::make(|| fd::reopen_terminal(dst)).ok() } else { None }
    }

    /// A descriptor of our own of a destination: a duplicate, or a non-blocking one of a FIFO, for which the system has no
    /// non-blocking write. A FIFO that cannot be opened again (without /proc, permission or a reader) is duplicated.
    pub(crate) fn of_destination(dst: BorrowedFd<'_>, destination: Kind) -> Result<Self> {
        let is_fifo = destination == Kind::Pipe && !pipe::is_anonymous(dst);
        let reopened = if is_fifo { Self::make(|| pipe::reopen_writer(dst)).ok() } else { None };
        reopened.map_or_else(|| Self::make(|| fd::duplicate(dst)), Ok)
    }

    /// As [`make`](Self::make), for several that are opened together.
    pub(crate) fn make_all<const N: usize>(make: impl FnOnce() -> Result<[OwnedFd; N]>) -> Result<[Self; N]> {
        let mut open = OPEN.lock();
        let generation = fork_generation();
        Ok(make()?.map(|fd| {
            open.insert(fd.as_raw_fd());
            Self { fd: ManuallyDrop::new(fd), generation, closing: None }
        }))
    }

    /// Notes that it leads to a pipe, so that dropping it needs not ask.
    pub(crate) fn note_pipe(&mut self) {
        self.closing = Some(Closing::AtOnce);
    }

    /// Closes the file that it leads to, which may be slow, and leads to the same as `pipe` until it is dropped: that
    /// takes fewer system calls than a close.
    pub(crate) fn close_into(&mut self, pipe: &Self) {
        if !self.is_inherited() && dup3(pipe, &mut self.fd, DupFlags::CLOEXEC).is_ok() {
            self.note_pipe();
        }
    }

    /// Whether it was made before a fork, by the parent.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork_generation()
    }

    /// Releases the descriptor: a child inherits it from now on.
    pub(crate) fn release(mut self) -> OwnedFd {
        let mut open = OPEN.lock();
        open.remove(&self.fd.as_raw_fd());
        // SAFETY: the value is forgotten here, so that nobody takes the descriptor a second time.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        std::mem::forget(self);
        fd
    }
}

impl AsFd for ForkFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ForkFd {
    fn drop(&mut self) {
        if self.is_inherited() {
            return; // closed in the child already; the number may be somebody else's by now
        }
        let closing = self.closing.unwrap_or_else(|| fd::closing(self.as_fd()));
        // SAFETY: dropped once, and not used afterwards.
        close(unsafe { ManuallyDrop::take(&mut self.fd) }, closing);
    }
}

/// Unregisters and closes a descriptor.
fn take_off_and_close(fd: OwnedFd) {
    let mut open = OPEN.lock();
    open.remove(&fd.as_raw_fd());
    drop(fd); // under the lock: until then a fork finds it there
}

/// Closes, in the child of a fork, what the parent had registered.
fn close_all(open: &mut BTreeSet<RawFd>) {
    for fd in std::mem::take(open) {
        // SAFETY: the number is on the table, so it is open, and the value that it belonged to is inherited, and never
        // touches it again.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Closes a registered descriptor, on a thread of its own if it lingers.
///
/// One thread each: the peer gets its end of file when the close begins, which must not wait for another peer. Such
/// threads are few, because each belongs to a socket whose peer is slow and whose owner set `SO_LINGER`.
fn close(fd: OwnedFd, closing: Closing) {
    match closing {
        Closing::AtOnce => return take_off_and_close(fd),
        Closing::Slow => return close_slowly(fd),
        Closing::Lingering => {}
    }
    let number = fd.into_raw_fd();
    // SAFETY: it was taken from its owner above, and is given to one of the two calls below.
    let close_it = move || close_slowly(unsafe { OwnedFd::from_raw_fd(number) });
    if spawn(Signals::Blocked, close_it).is_err() {
        close_it();
    }
}

/// Closes the descriptor without the table's lock: dup3(2) puts an eventfd in its place, which closes the file. The number
/// stays registered until it is free.
fn close_slowly(mut fd: OwnedFd) {
    if let Ok(idle) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = dup3(&idle, &mut fd, DupFlags::CLOEXEC); // which closes what was there
    }
    take_off_and_close(fd);
}
