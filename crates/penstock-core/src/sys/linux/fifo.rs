//! FIFOs: found by their path, and opened without waiting.

use std::borrow::Cow;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mkfifoat, open};
use rustix::io::{Errno, retry_on_intr};

use super::facts::Facts;
use super::handle::{AsHandle, Borrowed, Handle};
use super::inotify;
use crate::sys::error::{Result, SysError};

pub(crate) fn create(path: &Path, permissions: u32) -> Result<()> {
    Ok(mkfifoat(CWD, path, Mode::from_raw_mode(permissions))?)
}

/// What leads to the FIFO at that path, and opens neither of its sides; otherwise the name of what is there.
pub(crate) fn find(path: &Path) -> Result<std::result::Result<Handle, Cow<'static, str>>> {
    let found = retry_on_intr(|| open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))?;
    let kind = FileType::from_raw_mode(Facts::of(found.as_handle())?.0.st_mode);
    Ok(if kind == FileType::Fifo { Ok(found) } else { Err(name_of(kind)) })
}

fn name_of(kind: FileType) -> Cow<'static, str> {
    match kind {
        FileType::RegularFile => "a regular file".into(),
        FileType::Directory => "a directory".into(),
        FileType::Socket => "a socket".into(),
        FileType::CharacterDevice => "a character device".into(),
        FileType::BlockDevice => "a block device".into(),
        other => format!("{other:?}").into(),
    }
}

/// Opens a side without waiting for the other, in blocking mode. For writing, [`SysError::NO_OTHER_SIDE`] while there is no reader.
pub(crate) fn open_side(found: Borrowed<'_>, path: &Path, is_to_write: bool) -> Result<Handle> {
    let access = if is_to_write { OFlags::WRONLY } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match retry_on_intr(|| open(link(found), flags, Mode::empty())) {
        // There is no /proc, or it is closed to a process that has changed its user (PR_SET_DUMPABLE(2const)). Or
        // we may not open the FIFO, which its path reports as well.
        Err(Errno::NOENT | Errno::ACCESS) => open_by_path(found, path, flags)?,
        answer => answer?,
    };
    fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    Ok(opened)
}

/// Leads to the FIFO itself, whatever the path leads to now: proc_pid_fd(5).
fn link(found: Borrowed<'_>) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

/// `ESTALE` if the path leads to something else now.
fn open_by_path(found: Borrowed<'_>, path: &Path, flags: OFlags) -> Result<Handle> {
    // If it is a terminal now, it must not become our controlling terminal.
    let opened = retry_on_intr(|| open(path, flags | OFlags::NOCTTY, Mode::empty()))?;
    let is_same = Facts::of(opened.as_handle())?.are_of_what(&Facts::of(found)?);
    if is_same { Ok(opened) } else { Err(SysError::from(Errno::STALE)) }
}

/// A descriptor that becomes readable when a side is opened.
pub(crate) fn watch_openings(found: Borrowed<'_>) -> Result<Handle> {
    inotify::watch_openings(link(found))
}
