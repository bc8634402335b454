//! Closes descriptors whose close(2) may wait, so that nobody waits for it who holds a lock or runs a destructor.
//!
//! The last close of a socket that lingers (`SO_LINGER`, socket(7)) returns when the peer has acknowledged everything, or after
//! the time that was set. Nothing changes on the wire if another thread waits there. That of a file may write to a network.

use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, dup3};

use crate::runtime::fork_fd;
use crate::runtime::task::{self, Signals};
use crate::sys::fd;

/// Closes a descriptor of the table of those that are kept: on a thread of its own if it lingers.
///
/// A thread for each, and not one for all: the peer has its end of file when the close begins, which must not wait for another
/// peer. Such threads are few, because each belongs to a socket whose peer is slow and whose owner has set `SO_LINGER`.
pub(super) fn close(fd: OwnedFd) {
    if !fd::lingers(fd.as_fd()) {
        return close_here(fd);
    }
    let number = fd.into_raw_fd();
    // SAFETY: it was taken from its owner above, and is given to one of the two calls below.
    let close_it = move || close_here(unsafe { OwnedFd::from_raw_fd(number) });
    if task::spawn(Signals::Blocked, close_it).is_err() {
        close_it();
    }
}

/// Closes it in two steps if the first may take a while: lets go of what it leads to, with something in its place that can be closed
/// at once. So the number stays on the table until it is free, and nobody waits for the table's lock.
fn close_here(mut fd: OwnedFd) {
    if fd::closes_slowly(fd.as_fd())
        && let Ok(idle) = eventfd(0, EventfdFlags::CLOEXEC)
    {
        let _ = dup3(&idle, &mut fd, DupFlags::CLOEXEC); // which closes what was there
    }
    fork_fd::close(fd);
}
