//! Being told that somebody opens a file: inotify(7).

use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Result;
use rustix::path::Arg;

/// A descriptor that can be read when somebody has opened what the path leads to. Refused past `max_user_instances`, and for
/// a file that the caller may not read.
pub(crate) fn watch_openings(path: impl Arg) -> Result<OwnedFd> {
    let watch = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    add_watch(&watch, path, WatchFlags::OPEN)?;
    Ok(watch)
}

/// Takes off what it has told so far.
pub(crate) fn forget_openings(watch: BorrowedFd<'_>) {
    // Room for some events at once; the kernel makes one of those that are alike and follow each other.
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut events = Reader::new(watch, &mut buffer);
    while events.next().is_ok() {}
}
