//! Kernel pipes: their size, their content, and the calls that move pages.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};
use rustix::thread::{CapabilitySet, capabilities};

use super::fd::{Kind, answer, write_now};
use super::memory::page_bytes;
use super::wait::{Events, ready};
use crate::sys::error::{Result, SysError};
use crate::sys::faults::{Call, pass, vmsplice_copies};
use crate::sys::span::Span;

/// What a write puts into a pipe as a whole or not at all (`PIPE_BUF`, pipe(7)).
pub(crate) const ATOMIC_BYTES: usize = libc::PIPE_BUF;

/// A pipe's size in bytes.
///
/// # Errors
///
/// It is no pipe.
pub fn capacity(fd: BorrowedFd<'_>) -> Result<usize> {
    Ok(fcntl_getpipe_size(fd)?)
}

/// Asks for a size; returns the size that was granted, which the kernel rounds up.
pub(crate) fn set_capacity(fd: BorrowedFd<'_>, bytes: usize) -> Result<usize> {
    pass(Call::SetPipeSize, bytes)?;
    fcntl_setpipe_size(fd, bytes)?;
    capacity(fd)
}

/// Bytes in the pipe that its reader has not taken. A page that a read(2) is copying still counts (the kernel takes the
/// pipe's lock for both, fs/pipe.c).
pub(crate) fn unread_bytes(fd: BorrowedFd<'_>) -> Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}

/// Bytes that fit at once into a pipe that poll(2) calls ready, if its pages are as full as ours: one page may be
/// partly read, and the last may be partly filled.
pub(crate) fn room_bytes(fd: BorrowedFd<'_>) -> Result<usize> {
    let used_pages = match unread_bytes(fd)? as usize {
        0 => 0,
        unread => unread / page_bytes() + 2,
    };
    let pages = (capacity(fd)? / page_bytes()).saturating_sub(used_pages);
    Ok(pages.max(1) * page_bytes())
}

/// vmsplice(2): puts the pages of the span into the pipe without copying and without blocking. `EAGAIN` when it is
/// full.
///
/// # Safety
///
/// The memory is readable now, and nobody writes to it before the pipe's readers have finished with it.
pub(crate) unsafe fn vmsplice(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let span = span.first(pass(Call::Vmsplice, span.len())?);
    // SAFETY: the memory is as this function's contract says, and so is its beginning.
    unsafe { vmsplice_once(fd, span) }
}

/// As [`vmsplice`], without the failures that tests want.
///
/// # Safety
///
/// As for [`vmsplice`].
pub(super) unsafe fn vmsplice_once(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    if vmsplice_copies() {
        // SAFETY: the memory is readable by the contract above.
        return unsafe { write_now(fd, span) };
    }
    let part = libc::iovec { iov_base: span.as_ptr().cast_mut().cast(), iov_len: span.len() };
    // SAFETY: vmsplice into a pipe only reads the memory, which is readable by the contract above; `part` lives until it returns.
    answer(unsafe { libc::vmsplice(fd.as_raw_fd(), &raw const part, 1, libc::SPLICE_F_NONBLOCK) })
}

/// Opens a non-blocking reading end of the pipe that a descriptor leads to.
pub(crate) fn reopen_reader(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    reopen(fd, OFlags::RDONLY)
}

/// As [`reopen_reader`], the other end. `ENXIO` if a FIFO has no reader.
pub(super) fn reopen_writer(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    reopen(fd, OFlags::WRONLY)
}

fn reopen(fd: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd> {
    pass(Call::NewDescriptor, 0)?;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::fs::open(path, access | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
}

/// Reads and drops the present content of the pipe; returns its size in bytes.
pub(crate) fn discard(reader: BorrowedFd<'_>) -> Result<u64> {
    let held = unread_bytes(reader)?; // no more than that: others may go on writing
    let mut scrap = vec![0; 64 << 10];
    let mut discarded = 0;
    while discarded < held {
        let most = scrap.len().min((held - discarded) as usize);
        match rustix::io::read(reader, &mut scrap[..most]) {
            Ok(0) | Err(Errno::AGAIN) => break, // somebody else has read it
            Ok(bytes) => discarded += bytes as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(discarded)
}

/// Whether the pipe was made by pipe(2), so that it has no name that a reader could open.
pub(crate) fn is_anonymous(fd: BorrowedFd<'_>) -> bool {
    const PIPEFS_MAGIC: rustix::fs::FsWord = 0x5049_5045; // include/uapi/linux/magic.h
    rustix::fs::fstatfs(fd).is_ok_and(|system| system.f_type == PIPEFS_MAGIC)
}

/// Whether an empty pipe without a writer is a FIFO that no writer has opened yet, or that one has opened since. A pipe
/// has ended only when it is empty and was hung up (pipe(7), poll(2)).
pub(crate) fn awaits_first_writer(src: BorrowedFd<'_>, kind: Kind) -> bool {
    kind == Kind::Pipe && !has_hung_up(src)
}

/// Whether the pipe is empty and was hung up. poll(2) looks without the pipe's lock, and may report a hang-up while the
/// first writer opens a FIFO (fs/pipe.c, `fifo_open` counts the opening first). So this asks again after it has had the
/// lock.
pub(crate) fn has_hung_up(src: BorrowedFd<'_>) -> bool {
    let says_so = || ready(src, Events::READ).has_only_hung_up();
    says_so() && unread_bytes(src) == Ok(0) && says_so()
}

/// Creates a pipe: its reading and its writing end.
pub(crate) fn make() -> Result<[OwnedFd; 2]> {
    pass(Call::NewDescriptor, 0)?;
    Ok(pipe_with(PipeFlags::CLOEXEC).map(|(reader, writer)| [reader, writer])?)
}

/// As [`make`], with non-blocking ends. For pipes that stay ours: a program that gets an end of a pipe expects it to block.
pub(crate) fn make_non_blocking() -> Result<[OwnedFd; 2]> {
    pass(Call::NewDescriptor, 0)?;
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map(|(reader, writer)| [reader, writer])?)
}

/// splice(2): moves bytes between two descriptors, one of which is a pipe, without copying them through user space.
/// Does not wait for the pipe: `EAGAIN` when it is full or empty.
pub(crate) fn splice(
    src: BorrowedFd<'_>,
    offset: Option<&mut u64>,
    dst: BorrowedFd<'_>,
    at_most: usize,
) -> Result<usize> {
    let at_most = pass(Call::Splice, at_most)?;
    Ok(rustix::pipe::splice(src, offset, dst, None, at_most, SpliceFlags::NONBLOCK)?)
}

/// tee(2): makes the second pipe share what is at the front of the first. `EAGAIN` when the first is empty or the
/// second full, 0 when the first is empty and has no writer.
pub(crate) fn tee(src: BorrowedFd<'_>, dst: BorrowedFd<'_>, at_most: usize) -> Result<usize> {
    let at_most = pass(Call::Tee, at_most)?;
    Ok(rustix::pipe::tee(src, dst, at_most, SpliceFlags::NONBLOCK)?)
}

/// Bytes that all pipes of a user without privileges may take before each new one gets only two pages; none if unlimited.
/// Linux's default where the limit cannot be read (proc(5)).
pub(crate) fn user_soft_bytes() -> Option<usize> {
    let told = std::fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").ok();
    let soft_pages: usize = told.and_then(|told| told.trim().parse().ok()).unwrap_or(16384);
    (soft_pages > 0).then(|| soft_pages.saturating_mul(page_bytes()))
}

/// Whether that limit is not for this process, which it would find out only where each new pipe of the user is small already: it is
/// privileged, and not in a user namespace of its own, where that counts for nothing (fs/pipe.c, `pipe_is_unprivileged_user`).
pub(crate) fn is_above_limits() -> bool {
    const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD; // include/linux/proc_ns.h, `PROC_USER_INIT_INO`
    let either = CapabilitySet::SYS_RESOURCE | CapabilitySet::SYS_ADMIN;
    let is_privileged = || capabilities(None).is_ok_and(|sets| sets.effective.intersects(either));
    let namespace = || rustix::fs::stat(c"/proc/self/ns/user").map(|stat| stat.st_ino);
    is_privileged() && namespace() == Ok(FIRST_USER_NAMESPACE)
}

/// Inodes of the pipes that this process has open; none if /proc cannot be read.
///
/// Asks no file system that may not answer, such as a network's: `F_GETPIPE_SZ` fails for everything but pipes and FIFOs,
/// and for a FIFO `AT_STATX_DONT_SYNC` tells what the kernel knows of it.
pub(crate) fn open_inodes() -> Option<HashSet<u64>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let inodes = entries.filter_map(|entry| {
        let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: the number was open just now. If another thread has closed it since, the calls fail or tell of a pipe that
        // is open too.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        capacity(fd).ok()?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(fd, c"", flags, StatxFlags::INO).ok().map(|found| found.stx_ino)
    });
    Some(inodes.collect())
}

/// Whether vmsplice(2) failed because of this memory, which can still be written.
pub(crate) fn cannot_pin(error: SysError) -> bool {
    [Errno::FAULT, Errno::INVAL, Errno::NOMEM].iter().any(|errno| SysError::from(*errno) == error)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::FileType;

    use super::*;

    #[test]
    fn open_pipes_are_found_with_and_without_a_name() {
        let path = std::env::temp_dir().join(format!("penstock-open-inodes-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let named = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let [reader, _writer] = make().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        std::fs::remove_file(&path).unwrap();
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        let open = open_inodes().unwrap();
        assert!(open.contains(&inode(named.as_fd())) && open.contains(&inode(reader.as_fd())));
        assert!(!open.contains(&inode(file.as_fd())));
    }
}
