//! Descriptors: what they lead to, whether they can be written, and writes that do not block where that can be had.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fstat, statx};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::SocketType;

use crate::region::Span;

/// What a stream is known by: the same for every descriptor of one pipe, FIFO, socket or file.
///
/// The time of birth tells a file from an earlier one whose inode number it inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    device: u64,
    pub(crate) inode: u64,
    born: (i64, u32),
    /// Tells apart what shares an inode with others: see [`twin`].
    twin: u32,
}

/// The kinds of destination that are written in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pipe,
    /// A socket that takes any part of what it is given.
    StreamSocket,
    /// A socket or pipe that keeps each write together as one message.
    Messages,
    /// A regular file or block device: a write never waits for a reader.
    File,
    /// Terminals, character devices and whatever else can be written.
    Other,
}

/// Duplicates the descriptor, closed on exec, so that nobody else can close or reuse it.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    // 3 keeps off the standard streams, which a program may close and reopen by number.
    rustix::io::fcntl_dupfd_cloexec(fd, 3)
}

/// `EBADF` unless bytes can be written to the descriptor, as write(2) would say.
pub(crate) fn check_writable(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = fcntl_getfl(fd)?;
    let writable = matches!(flags & OFlags::RWMODE, OFlags::WRONLY | OFlags::RDWR);
    if writable && !flags.contains(OFlags::PATH) { Ok(()) } else { Err(Errno::BADF) }
}

/// Finds out what a descriptor leads to.
pub(crate) fn identify(fd: BorrowedFd<'_>) -> Result<(StreamId, Kind)> {
    let stat = fstat(fd)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo if fcntl_getfl(fd)?.contains(OFlags::DIRECT) => Kind::Messages,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => match rustix::net::sockopt::socket_type(fd)? {
            SocketType::STREAM => Kind::StreamSocket,
            _ => Kind::Messages,
        },
        FileType::RegularFile | FileType::BlockDevice => Kind::File,
        FileType::Directory => return Err(Errno::ISDIR),
        _ => Kind::Other,
    };
    let twin = if kind == Kind::Other { twin(fd) } else { 0 };
    Ok((StreamId { device: stat.st_dev, inode: stat.st_ino, born: birth(fd), twin }, kind))
}

/// A number that differs between devices of one inode. The controlling sides of all pseudo-terminals have that of
/// /dev/ptmx, and a number of their own (`TIOCGPTN`, ioctl_tty(2)); for the rest, such as eventfds, the descriptor's number
/// has to do.
fn twin(fd: BorrowedFd<'_>) -> u32 {
    let mut terminal = 0u32;
    // SAFETY: this ioctl writes one unsigned int, for which there is room, or fails.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGPTN, &raw mut terminal) };
    if answer == 0 { terminal } else { fd.as_raw_fd().unsigned_abs() }
}

/// When the file was made, or zero where the file system does not say (pipes and sockets do not).
fn birth(fd: BorrowedFd<'_>) -> (i64, u32) {
    match statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME) {
        Ok(found) if found.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
        }
        _ => (0, 0),
    }
}

/// Whether the other end is gone, so that nothing written can arrive.
pub(crate) fn peer_is_gone(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(retry_on_intr(|| poll(&mut fds, Some(&now))), Ok(1))
        && fds[0].revents().intersects(PollFlags::ERR)
}

/// Waits until something can be written or the other end is gone, at most for so long.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, at_most: Duration) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let timeout = Timespec::try_from(at_most).expect("our waits are shorter than an age");
    // Whatever the answer, the caller writes again, and learns there what is the matter.
    let _ = poll(&mut fds, Some(&timeout));
}

/// write(2).
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    // SAFETY: the caller vouches for the memory; the kernel only reads it.
    answer(unsafe { libc::write(fd.as_raw_fd(), span.as_ptr().cast(), span.len()) })
}

/// write(2) to a pipe as if it were non-blocking, whatever its flags: `EAGAIN` when it is full.
///
/// `EOPNOTSUPP` before Linux 6.4 (commit "pipe: set FMODE_NOWAIT on pipes").
///
/// # Safety
///
/// The span's memory is readable.
#[cfg(target_os = "linux")]
pub(crate) unsafe fn write_now(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let part = libc::iovec { iov_base: span.as_ptr().cast_mut().cast(), iov_len: span.len() };
    // SAFETY: the caller vouches for the memory; the kernel only reads it. The offset -1 means the position.
    answer(unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) })
}

/// send(2) without blocking and without `SIGPIPE`.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn send_now(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller vouches for the memory; the kernel only reads it.
    answer(unsafe { libc::send(fd.as_raw_fd(), span.as_ptr().cast(), span.len(), flags) })
}

pub(super) fn answer(returned: isize) -> Result<usize> {
    usize::try_from(returned).map_err(|_| {
        Errno::from_io_error(&std::io::Error::last_os_error()).expect("the system sets errno when it fails")
    })
}
