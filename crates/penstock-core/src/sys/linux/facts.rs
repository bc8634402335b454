//! What a descriptor leads to: fstat(2).

use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatxFlags, fstat, statx};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::SocketType;

use super::handle::Borrowed;
use crate::sys::error::Result;
use crate::sys::kind::Kind;

/// What the system knows of what a descriptor leads to.
pub(crate) struct Facts(pub(super) Stat);

impl Facts {
    pub(crate) fn of(fd: Borrowed<'_>) -> Result<Self> {
        Ok(Self(fstat(fd)?))
    }

    /// Whether both are of the same.
    pub(crate) fn are_of_what(&self, other: &Self) -> bool {
        (self.0.st_dev, self.0.st_ino) == (other.0.st_dev, other.0.st_ino)
    }

    /// Also a FIFO.
    pub(crate) fn is_pipe(&self) -> bool {
        FileType::from_raw_mode(self.0.st_mode) == FileType::Fifo
    }

    pub(crate) fn is_regular_file(&self) -> bool {
        FileType::from_raw_mode(self.0.st_mode) == FileType::RegularFile
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        u64::try_from(self.0.st_size).unwrap_or(0)
    }

    /// Whether it takes less room than its size.
    pub(crate) fn may_have_holes(&self) -> bool {
        const BLOCK_BYTES: i64 = 512; // of `st_blocks`, inode(7)
        self.is_regular_file() && self.0.st_blocks.saturating_mul(BLOCK_BYTES) < self.0.st_size
    }
}

/// Identifies what a descriptor leads to: equal for all descriptors of one pipe, FIFO, socket or file.
///
/// The time of birth distinguishes a file from an earlier one with the same inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    device: u64,
    pub(crate) inode: u64,
    born: (i64, u32),
    twin: Twin,
}

/// Distinguishes what shares an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Twin {
    /// Nothing does.
    None,
    /// The controlling sides of pseudo-terminals have the inode of /dev/ptmx, and a number (`TIOCGPTN`, ioctl_tty(2)).
    Terminal(u32),
    /// All eventfds have one inode, and a number each (proc(5), `eventfd-id`, from Linux 5.2 on).
    Event(u32),
    /// The descriptor's number, for what has no other.
    Descriptor(u32),
}

impl StreamId {
    pub(super) fn of(fd: Borrowed<'_>, stat: &Stat, kind: Kind) -> Self {
        let twin = if kind == Kind::Other { twin(fd, stat) } else { Twin::None };
        Self { device: stat.st_dev, inode: stat.st_ino, born: birth(fd), twin }
    }

    /// Whether the system may give it to another as soon as this one is closed.
    pub(crate) fn is_of_eventfd(&self) -> bool {
        matches!(self.twin, Twin::Event(_))
    }
}

/// The kind of destination that has these flags and this status.
pub(super) fn kind_of(fd: Borrowed<'_>, flags: OFlags, stat: &Stat) -> Result<Kind> {
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo if flags.contains(OFlags::DIRECT) => Kind::Packets,
        FileType::Fifo => Kind::Pipe,
        FileType::Socket => match rustix::net::sockopt::socket_type(fd)? {
            SocketType::STREAM => Kind::StreamSocket,
            _ => Kind::Messages,
        },
        FileType::RegularFile | FileType::BlockDevice => Kind::File,
        FileType::Directory => return Err(Errno::ISDIR.into()),
        _ => Kind::Other,
    })
}

fn twin(fd: Borrowed<'_>, stat: &Stat) -> Twin {
    let event = || if is_anonymous(stat) { eventfd_number(fd).map(Twin::Event) } else { None };
    let known = terminal_number(fd).map(Twin::Terminal).or_else(event);
    known.unwrap_or(Twin::Descriptor(fd.as_raw_fd().unsigned_abs()))
}

/// Whether it is a file of the kernel's without a name, as every eventfd is.
pub(super) fn is_anonymous(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Unknown
}

fn eventfd_number(fd: Borrowed<'_>) -> Option<u32> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    told.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok())
}

/// The number of a pseudo-terminal, by its controlling side.
pub(super) fn terminal_number(fd: Borrowed<'_>) -> Option<u32> {
    // SAFETY: it writes one unsigned int.
    unsafe { ioctl(fd, Getter::<{ libc::TIOCGPTN as Opcode }, u32>::new()) }.ok()
}

/// When the file was made; zero where the file system does not record it, as for pipes and sockets.
fn birth(fd: Borrowed<'_>) -> (i64, u32) {
    match statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME) {
        Ok(found) if found.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
        }
        _ => (0, 0),
    }
}
