//! Waits for descriptors, and what interrupts them: poll(2) and eventfd(2).

use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};

use super::handle::{Borrowed, Handle};
use crate::sys::error::Result;

/// What is waited for, or was found. A failure and a hang-up are found whether asked for or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events(pub(super) PollFlags);

impl Events {
    pub(crate) const NONE: Self = Self(PollFlags::empty());
    pub(crate) const READ: Self = Self(PollFlags::IN);
    pub(crate) const WRITE: Self = Self(PollFlags::OUT);

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has_hung_up(self) -> bool {
        self.0.contains(PollFlags::HUP)
    }

    /// Whether there is nothing but the hang-up.
    pub(super) fn has_only_hung_up(self) -> bool {
        self.0 == PollFlags::HUP
    }

    pub(crate) fn has_failed(self) -> bool {
        self.0.contains(PollFlags::ERR)
    }
}

/// A descriptor that is waited for.
#[repr(transparent)]
pub(crate) struct Watched<'a>(PollFd<'a>);

impl<'a> Watched<'a> {
    pub(crate) fn new(fd: Borrowed<'a>, events: Events) -> Self {
        Self(PollFd::from_borrowed_fd(fd, events.0))
    }

    /// What was found.
    pub(crate) fn found(&self) -> Events {
        Events(self.0.revents())
    }
}

/// Which of the events are possible now.
pub(crate) fn ready(fd: Borrowed<'_>, events: Events) -> Events {
    let [ready] = all_ready([(fd, events)]);
    ready
}

/// Which of the events of each descriptor are possible now.
pub(crate) fn all_ready<const N: usize>(awaited: [(Borrowed<'_>, Events); N]) -> [Events; N] {
    let mut fds = awaited.map(|(fd, events)| PollFd::from_borrowed_fd(fd, events.0));
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // If poll(2) fails, the call that follows it will tell why.
    let answer = retry_on_intr(|| poll(&mut fds, Some(&now)));
    if answer.is_ok() { fds.map(|fd| Events(fd.revents())) } else { awaited.map(|(_, events)| events) }
}

/// Waits for an event on any of them, at most for `at_most`. False if a signal interrupted it.
pub(crate) fn wait(awaited: &mut [Watched<'_>], at_most: Option<Duration>) -> bool {
    // A time that the system cannot represent counts as unlimited.
    let timeout = at_most.and_then(|at_most| Timespec::try_from(at_most).ok());
    // SAFETY: `Watched` is transparent, so the slice is one of the type within.
    let fds = unsafe { &mut *(std::ptr::from_mut(awaited) as *mut [PollFd<'_>]) };
    match poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => false,
        // For example when the limit on descriptors was lowered below their number: the caller polls by itself, with
        // pauses.
        Err(_) => {
            std::thread::sleep(at_most.map_or(BLIND_PAUSE, |at_most| at_most.min(BLIND_PAUSE)));
            true
        }
        Ok(_) => true,
    }
}

/// Guessed: adds little to any wait, and keeps no processor busy.
const BLIND_PAUSE: Duration = Duration::from_millis(5);

/// Makes what ends a wait for it, from the moment of [`interrupt`] to that of [`clear`].
pub(crate) fn make_interrupt() -> Result<Handle> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub(crate) fn interrupt(own: Borrowed<'_>) {
    // It fails only when the counter is full, and then the wait ends already.
    let _ = rustix::io::write(own, &1u64.to_ne_bytes());
}

/// As [`interrupt`]: no write waits here.
pub(crate) fn cut(own: Borrowed<'_>, _write: u64) {
    interrupt(own);
}

pub(crate) fn clear(own: Borrowed<'_>) {
    // It fails only when there was no interrupt.
    let _ = rustix::io::read(own, &mut [0; 8]);
}
