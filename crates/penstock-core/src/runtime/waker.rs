//! Wakes a thread that waits in poll(2) for a descriptor.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Result;

use crate::runtime::fork_fd::ForkFd;

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
