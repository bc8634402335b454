//! Wakes a thread that waits in poll(2) for a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;

/// Wakes a thread that waits in poll(2).
#[derive(Debug)]
pub struct Waker(ForkFd);

impl Waker {
    /// Creates a waker. The child of a fork closes it.
    ///
    /// # Errors
    ///
    /// The process or the system has no descriptors left.
    pub fn new() -> Result<Self, Error> {
        ForkFd::make(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .map(Self)
            .map_err(Error::of_system)
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
        // It fails only when the counter is full, and then the waker is woken already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the waker, so that the next wait waits.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // It fails only when the waker is not woken.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
