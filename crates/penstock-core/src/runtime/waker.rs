//! Wakes a thread that waits for a descriptor.

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{AsHandle, Borrowed};

/// Wakes a thread that waits for a descriptor.
#[derive(Debug)]
pub struct Waker(ForkFd);

impl Waker {
    /// Creates a waker. The child of a fork closes it.
    ///
    /// # Errors
    ///
    /// The process or the system has no descriptors left.
    pub fn new() -> Result<Self, Error> {
        ForkFd::make(wait::make_interrupt).map(Self).map_err(Error::of_system)
    }

    /// Whether it was made before a fork, by the parent.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.0.is_inherited()
    }

    /// Wakes the thread that waits, or the next one that does.
    pub fn wake(&self) {
        if self.is_inherited() {
            return; // nobody of this process waits for it
        }
        wait::interrupt(self.as_handle());
    }

    /// Wakes the thread, also from the write of that number, of which nothing more may be written.
    pub(crate) fn cut(&self, write: u64) {
        if !self.is_inherited() {
            wait::cut(self.as_handle(), write);
        }
    }

    /// Resets the waker, so that the next wait waits.
    pub fn clear(&self) {
        wait::clear(self.as_handle());
    }

    /// Waits for events on a descriptor, or until this is woken, which it resets.
    pub(crate) fn wait_beside(&self, fd: Borrowed<'_>, events: Events) {
        let mut both = [Watched::new(fd, events), Watched::new(self.as_handle(), Events::READ)];
        wait::wait(&mut both, None);
        if !both[1].found().is_empty() {
            self.clear();
        }
    }
}

impl AsHandle for Waker {
    fn as_handle(&self) -> Borrowed<'_> {
        self.0.as_handle()
    }
}
