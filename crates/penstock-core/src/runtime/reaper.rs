//! Closes descriptors whose close(2) may wait, so that nobody waits for it who holds a lock or runs a destructor.
//!
//! The last close of a socket that lingers (`SO_LINGER`, socket(7)) returns when the peer has acknowledged everything, or after
//! the time that was set. Nothing changes on the wire if another thread waits there.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, dup3};

use crate::runtime::kept::Kept;
use crate::runtime::task::{self, Signals};
use crate::sys::fd;

/// Closes a descriptor unless somebody else shares it: at once, or on a thread of its own if that may take a while.
///
/// A thread for each, and not one for all: the peer has its end of file when the close begins, which must not wait for another
/// peer. Such threads are few, because each belongs to a socket whose peer is slow and whose owner has set `SO_LINGER`.
pub(crate) fn close(fd: Arc<OwnedFd>) {
    let Some(fd) = Arc::into_inner(fd) else { return };
    if !fd::closes_slowly(fd.as_fd()) {
        return;
    }
    let kept = Kept::adopt(fd); // so that the child of a fork closes it
    // Without a thread to be had it is closed here.
    let _ = task::spawn(Signals::Blocked, move || drop(kept));
}

/// Lets go of what a descriptor leads to if that may take a while, and leaves something in its place that can be closed at once.
/// So its number stays taken until its owner closes it, under whatever lock.
pub(crate) fn empty(fd: &mut OwnedFd) {
    if fd::closes_slowly(fd.as_fd())
        && let Ok(idle) = eventfd(0, EventfdFlags::CLOEXEC)
    {
        let _ = dup3(&idle, fd, DupFlags::CLOEXEC); // which closes what was there
    }
}
