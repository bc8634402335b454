//! Notice that a file was opened, or a pipe was read: inotify(7).

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init, remove_watch};
use rustix::path::Arg;

use crate::sys::error::Result;
use crate::sys::faults::{Call, pass};

/// A descriptor that becomes readable when the path is opened. Refused beyond `max_user_instances`, and for a file that
/// the caller may not read.
pub(crate) fn watch_openings(path: impl Arg) -> Result<OwnedFd> {
    let watch = make()?;
    add_watch(&watch, path, WatchFlags::OPEN)?;
    Ok(watch)
}

/// A descriptor that becomes readable for what it watches. Refused beyond `max_user_instances`.
pub(crate) fn make() -> Result<OwnedFd> {
    pass(Call::NewDescriptor, 0)?;
    Ok(init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?)
}

/// Watches for reads of a pipe from now on. Refused without /proc, and for a pipe that the caller may not read. The number
/// ends the watch.
pub(crate) fn watch_reads(inotify: BorrowedFd<'_>, pipe: BorrowedFd<'_>) -> Result<i32> {
    Ok(add_watch(inotify, format!("/proc/self/fd/{}", pipe.as_raw_fd()), WatchFlags::ACCESS)?)
}

/// Ends a watch. Its last event says so.
pub(crate) fn end_watch(inotify: BorrowedFd<'_>, watch: i32) {
    let _ = remove_watch(inotify, watch); // it fails only for a watch that has ended
}

/// Discards the events so far.
pub(crate) fn forget_events(inotify: BorrowedFd<'_>) {
    take_events(inotify, |_| {});
}

/// Takes the events so far, by the numbers of their watches.
pub(crate) fn take_events(inotify: BorrowedFd<'_>, mut of: impl FnMut(i32)) {
    // Room for several events; the kernel merges consecutive ones that are alike.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = Reader::new(inotify, &mut buffer);
    while let Ok(event) = events.next() {
        of(event.wd());
    }
}
