//! Files: what the kernel copies of them, their positions, and their holes.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{Advice, FileType, Mode, OFlags, SeekFrom, seek};
use rustix::io::{Errno, retry_on_intr};

use super::facts::Facts;
use super::fd;
use super::handle::{Borrowed, Handle};
use crate::sys::error::{Result, SysError};
use crate::sys::faults::{Call, pass};

/// The file position; none for what has none.
pub(crate) fn position(fd: Borrowed<'_>) -> Option<u64> {
    seek(fd, SeekFrom::Current(0)).ok()
}

pub(crate) fn set_position(fd: Borrowed<'_>, position: u64) -> Result<()> {
    Ok(seek(fd, SeekFrom::Start(position)).map(drop)?)
}

/// Opens a regular file or block device, and returns its size, too. Neither waits for a writer nor acquires a controlling terminal.
pub(crate) fn open_to_read(path: &Path) -> Result<(Handle, u64)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    let facts = Facts::of(file.as_fd())?;
    match FileType::from_raw_mode(facts.0.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => Ok((file, facts.size_bytes())),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(SysError::INVALID),
    }
}

pub(crate) fn advise_sequential(file: Borrowed<'_>) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential); // advice only
}

/// read(2).
pub(crate) fn read(fd: Borrowed<'_>, buffer: &mut [u8]) -> Result<usize> {
    Ok(rustix::io::read(fd, buffer)?)
}

/// pread(2).
pub(crate) fn read_at(fd: Borrowed<'_>, buffer: &mut [u8], position: u64) -> Result<usize> {
    Ok(rustix::io::pread(fd, buffer, position)?)
}

/// pwrite(2).
pub(crate) fn write_at(fd: Borrowed<'_>, bytes: &[u8], position: u64) -> Result<usize> {
    Ok(rustix::io::pwrite(fd, bytes, position)?)
}

/// copy_file_range(2), which on some file systems shares the blocks instead of copying them.
pub(crate) fn copy_range(
    src: Borrowed<'_>,
    position: Option<&mut u64>,
    dst: Borrowed<'_>,
    at_most: usize,
) -> Result<usize> {
    let at_most = pass(Call::CopyFileRange, at_most)?;
    Ok(rustix::fs::copy_file_range(src, position, dst, None, at_most)?)
}

/// sendfile(2).
pub(crate) fn send(
    src: Borrowed<'_>,
    position: Option<&mut u64>,
    dst: Borrowed<'_>,
    at_most: usize,
) -> Result<usize> {
    Ok(rustix::fs::sendfile(dst, src, position, at_most)?)
}

/// Opens a file again, to read it from positions of its own.
pub(crate) fn reopen(fd: Borrowed<'_>) -> Result<Handle> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let mut file = rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty())?;
    fd::leave_low_numbers(&mut file)?;
    Ok(file)
}

/// Where the next data of a file begins; its end if there is none. Where the file system does not tell, all is data.
pub(crate) fn next_data(file: Borrowed<'_>, position: u64) -> Result<u64> {
    match seek(file, SeekFrom::Data(position)) {
        Err(Errno::NXIO) => Ok(Facts::of(file)?.size_bytes()),
        found => Ok(found.unwrap_or(position)),
    }
}

/// Where the next hole of a file begins, if the file system tells.
pub(crate) fn next_hole(file: Borrowed<'_>, position: u64) -> Option<u64> {
    seek(file, SeekFrom::Hole(position)).ok()
}

/// Opens what takes all bytes and keeps none.
pub(crate) fn open_null() -> Result<Handle> {
    Ok(rustix::fs::open(c"/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}
