//! How large our pipes may be, so that they serve us and starve nobody.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::sync::lock;
use crate::sys::fd::StreamId;
use crate::sys::pipe::{self, Limits};

/// What is asked for by default: the most that a user without privileges gets by Linux's defaults
/// (`pipe-max-size`, pipe(7)). Measured with FFmpeg as reader on a 2-core x86-64 VM with Linux 6.18,
/// 2026-11-20: 256 KiB pieces in a pipe of this size moved up to 2 times what a pipe of 64 KiB did.
pub(crate) const WANTED_BYTES: usize = 1 << 20;

/// The sizes of the pipes that we have grown.
///
/// Past `pipe-user-pages-soft`, every new pipe of the user gets two pages only, whoever makes it. So all of
/// ours together take at most half of that.
pub(crate) struct Share {
    limits: Limits,
    granted: HashMap<StreamId, usize>,
}

static SHARE: LazyLock<Mutex<Share>> =
    LazyLock::new(|| Mutex::new(Share { limits: pipe::limits(), granted: HashMap::new() }));

/// Holds the accounts still while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, Share> {
    lock(&SHARE)
}

/// Grows the pipe to the wanted size or as far as it may; never fails, whatever is refused.
pub(crate) fn grow(fd: BorrowedFd<'_>, id: StreamId, wanted_bytes: usize) {
    let Ok(present_bytes) = pipe::capacity(fd) else {
        return;
    };
    let mut share = lock(&SHARE);
    let mut size = wanted_bytes.next_power_of_two();
    while size > present_bytes {
        if share.has_room_for(id, size) && share.resize(fd, id, size) {
            return;
        }
        size /= 2;
    }
}

/// Sets the size that the caller asked for, smaller ones too; the share bounds only growth.
pub(crate) fn set(fd: BorrowedFd<'_>, id: StreamId, wanted_bytes: usize) {
    if pipe::capacity(fd).is_ok_and(|present_bytes| wanted_bytes < present_bytes) {
        // A pipe that holds more than that stays as it is; statistics tell.
        let _ = pipe::set_capacity(fd, wanted_bytes);
    } else {
        grow(fd, id, wanted_bytes);
    }
}

impl Share {
    fn has_room_for(&mut self, id: StreamId, bytes: usize) -> bool {
        let Some(soft_bytes) = self.limits.user_soft_bytes else {
            return true;
        };
        if self.others_bytes(id) + bytes > soft_bytes / 2 {
            self.forget_closed_pipes();
        }
        self.others_bytes(id) + bytes <= soft_bytes / 2
    }

    fn others_bytes(&self, id: StreamId) -> usize {
        self.granted.iter().filter(|(other, _)| **other != id).map(|(_, bytes)| bytes).sum()
    }

    fn resize(&mut self, fd: BorrowedFd<'_>, id: StreamId, bytes: usize) -> bool {
        let granted = pipe::set_capacity(fd, bytes);
        granted.is_ok_and(|bytes| {
            self.granted.insert(id, bytes);
            true
        })
    }

    /// Takes off the accounts what this process has no descriptor of any more.
    fn forget_closed_pipes(&mut self) {
        if let Some(open) = pipe::open_inodes() {
            self.granted.retain(|id, _| open.contains(&id.inode));
        }
    }
}
