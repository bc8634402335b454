//! The holes of a sparse file, which a copy to another file leaves out.
//!
//! A hole stays one only beyond the end of the destination: what the destination has there already must become zeros.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat, fstat, seek};
use rustix::io::{Errno, Result};

use super::ends::{Ends, Source};
use crate::sys::fd;

/// What comes next in the source.
pub(super) enum Next {
    /// So many bytes to copy, at most.
    Data(u64),
    /// So many that were left out.
    Hole(u64),
}

/// A source that has holes, and a destination that takes them.
#[derive(Debug)]
pub(super) struct Holes {
    /// The source, opened again: looking for a hole moves a file's position. A child of a fork may have it, too: nobody waits for
    /// the end of a file.
    src: OwnedFd,
    /// There is no hole before this position.
    data_end: u64,
    /// The last hole, until the destination is as long as if it had been written.
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    end: u64,
    bytes: u64,
}

impl Holes {
    /// None if the source has no holes, or the destination can have none.
    pub(super) fn look(ends: &Ends<'_>, source: &Source, (src, dst): (&Stat, &Stat)) -> Option<Self> {
        const BLOCK_BYTES: i64 = 512; // of `st_blocks`, inode(7)
        let is_regular = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let may_have_holes = is_regular(src) && src.st_blocks.saturating_mul(BLOCK_BYTES) < src.st_size;
        if !may_have_holes || !is_regular(dst) || fd::appends(ends.dst) || source.position.is_none() {
            return None;
        }
        let path = format!("/proc/self/fd/{}", ends.src.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let mut src = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        fd::leave_low_numbers(&mut src).ok()?;
        Some(Self { src, data_end: 0, last: None })
    }

    /// Leaves a hole out if there is one here.
    pub(super) fn next(&mut self, dst: BorrowedFd<'_>, position: u64, left: u64) -> Result<Next> {
        if position >= self.data_end {
            let hole_bytes = self.hole_bytes(position)?.min(left);
            if hole_bytes > 0 {
                return self.leave_out(dst, hole_bytes);
            }
        }
        Ok(Next::Data(left.min(self.data_end - position)))
    }

    /// The bytes of the hole at that position; 0 if there is data, up to `data_end`.
    fn hole_bytes(&mut self, position: u64) -> Result<u64> {
        let next = match seek(&self.src, SeekFrom::Data(position)) {
            Err(Errno::NXIO) => u64::try_from(fstat(&self.src)?.st_size).unwrap_or(0), // none up to the end
            found => found.unwrap_or(position),
        };
        if next <= position {
            let end = seek(&self.src, SeekFrom::Hole(position)).ok();
            // At the end of the file, and where the file system does not tell, all that comes is data.
            self.data_end = end.filter(|end| *end > position).unwrap_or(u64::MAX);
        }
        Ok(next.saturating_sub(position))
    }

    fn leave_out(&mut self, dst: BorrowedFd<'_>, hole_bytes: u64) -> Result<Next> {
        let size = u64::try_from(fstat(dst)?.st_size).unwrap_or(0);
        let from = seek(dst, SeekFrom::Current(0))?;
        if from < size {
            return Ok(Next::Data(hole_bytes.min(size - from)));
        }
        let end = from.saturating_add(hole_bytes);
        if seek(dst, SeekFrom::Start(end)).is_err() {
            return Ok(Next::Data(hole_bytes)); // as by a copy, which says why the file can't be so large
        }
        self.last = Some(Last { end, bytes: hole_bytes });
        Ok(Next::Hole(hole_bytes))
    }

    /// Makes the destination as long as it must be, after a hole with nothing behind it. The bytes that are missing if that fails.
    ///
    /// By a byte at the end: cutting it to that length (ftruncate(2)) could cut off what another has just written behind.
    pub(super) fn set_length(&mut self, dst: BorrowedFd<'_>) -> std::result::Result<(), (Errno, u64)> {
        let Some(Last { end, bytes }) = self.last.take() else { return Ok(()) };
        let lengthen = || {
            let is_short = u64::try_from(fstat(dst)?.st_size).is_ok_and(|size| size < end);
            if is_short { rustix::io::pwrite(dst, &[0], end - 1).map(drop) } else { Ok(()) }
        };
        lengthen().map_err(|errno| (errno, bytes))
    }
}
