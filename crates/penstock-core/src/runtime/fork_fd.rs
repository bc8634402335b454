//! Descriptors of our own, which the child of a fork closes: a copy there would keep a reader from its end of file.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;

use crate::runtime::{fork, reaper};
use crate::sync::lock;
use crate::sync::ticket::fork_generation;

static KEPT: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// A descriptor that only this process has. In the child of a fork it is closed, and its value there is dead.
#[derive(Debug)]
pub(crate) struct ForkFd {
    fd: ManuallyDrop<OwnedFd>,
    generation: u32,
}

impl ForkFd {
    /// Makes a descriptor and keeps it, with no fork in between.
    pub(crate) fn make(make: impl FnOnce() -> Result<OwnedFd>) -> Result<Self> {
        let [kept] = Self::make_all(|| make().map(|fd| [fd]))?;
        Ok(kept)
    }

    /// The same for several that come together.
    pub(crate) fn make_all<const N: usize>(make: impl FnOnce() -> Result<[OwnedFd; N]>) -> Result<[Self; N]> {
        fork::prepare();
        let mut kept = lock(&KEPT);
        let generation = fork_generation();
        Ok(make()?.map(|fd| {
            kept.insert(fd.as_raw_fd());
            Self { fd: ManuallyDrop::new(fd), generation }
        }))
    }

    /// Whether a fork lies between its making and now.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork_generation()
    }

    /// Hands the descriptor out: from now on it is anybody's, and a child inherits it.
    pub(crate) fn release(mut self) -> OwnedFd {
        let mut kept = lock(&KEPT);
        kept.remove(&self.fd.as_raw_fd());
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
        // SAFETY: dropped once, and not used afterwards.
        reaper::close(unsafe { ManuallyDrop::take(&mut self.fd) });
    }
}

/// Takes a descriptor off the table and closes it.
pub(super) fn close(fd: OwnedFd) {
    let mut kept = lock(&KEPT);
    kept.remove(&fd.as_raw_fd());
    drop(fd); // under the lock: until then a fork finds it there
}

/// Holds the table still while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, BTreeSet<RawFd>> {
    lock(&KEPT)
}

/// Closes, in the child of a fork, what the parent kept.
pub(crate) fn close_all(kept: &mut BTreeSet<RawFd>) {
    for fd in std::mem::take(kept) {
        // SAFETY: the number is on the table, so it is open, and the value that it belonged to is inherited, and never
        // touches it again.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Wakes a thread that waits in poll(2).
#[derive(Debug)]
pub struct Waker(ForkFd);

impl Waker {
    /// Makes one, which is closed in the child of a fork.
    ///
    /// # Errors
    ///
    /// The process or the system has no descriptors left.
    pub fn new() -> Result<Self> {
        ForkFd::make(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)).map(Self)
    }

    /// Whether a fork lies between its making and now.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }

    /// Wakes who waits, now or when it next does.
    pub fn wake(&self) {
        if self.is_inherited() {
            return; // nobody of this process waits for it
        }
        // It can only fail when the counter is full, and then the waker is woken.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the wake back, so that the next wait is one.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // It fails only when nobody has woken it.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
