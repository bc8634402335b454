//! Notice that a file was opened: inotify(7).

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Result;
use rustix::path::Arg;

/// A descriptor that becomes readable when the path is opened. Refused beyond `max_user_instances`, and for a file that
/// the caller may not read.
pub(crate) fn watch_openings(path: impl Arg) -> Result<OwnedFd> {
    let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    add_watch(&watch, path, WatchFlags::OPEN)?;
    Ok(watch)
}

/// Discards the events so far.
pub(crate) fn forget_openings(watch: BorrowedFd<'_>) {
    // Room for several events; the kernel merges consecutive ones that are alike.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = Reader::new(watch, &mut buffer);
    while events.next().is_ok() {}
}
