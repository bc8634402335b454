//! The holes of a sparse file, which a copy to another file leaves out.
//!
//! A hole stays one only beyond the end of the destination: what the destination has there already must become zeros.

use super::ends::{Ends, Source};
use crate::sys::error::Result;
use crate::sys::facts::Facts;
use crate::sys::{AsHandle, Borrowed, Handle, SysError, fd, file};

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
    src: Handle,
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
    pub(super) fn look(ends: &Ends<'_>, source: &Source, (src, dst): (&Facts, &Facts)) -> Option<Self> {
        let takes_holes = dst.is_regular_file() && !fd::appends(ends.dst);
        if !src.may_have_holes() || !takes_holes || source.position.is_none() {
            return None;
        }
        Some(Self { src: file::reopen(ends.src).ok()?, data_end: 0, last: None })
    }

    /// Leaves a hole out if there is one here.
    pub(super) fn next(&mut self, dst: Borrowed<'_>, position: u64, left: u64) -> Result<Next> {
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
        let next = file::next_data(self.src.as_handle(), position)?;
        if next <= position {
            let end = file::next_hole(self.src.as_handle(), position);
            // At the end of the file, and where the file system does not tell, all that comes is data.
            self.data_end = end.filter(|end| *end > position).unwrap_or(u64::MAX);
        }
        Ok(next.saturating_sub(position))
    }

    fn leave_out(&mut self, dst: Borrowed<'_>, hole_bytes: u64) -> Result<Next> {
        let size = Facts::of(dst)?.size_bytes();
        let Some(from) = file::position(dst) else { return Err(SysError::INVALID) };
        if from < size {
            return Ok(Next::Data(hole_bytes.min(size - from)));
        }
        let end = from.saturating_add(hole_bytes);
        if file::set_position(dst, end).is_err() {
            return Ok(Next::Data(hole_bytes)); // as by a copy, which says why the file can't be so large
        }
        self.last = Some(Last { end, bytes: hole_bytes });
        Ok(Next::Hole(hole_bytes))
    }

    /// Makes the destination as long as it must be, after a hole with nothing behind it. The bytes that are missing if that fails.
    ///
    /// By a byte at the end: cutting it to that length (ftruncate(2)) could cut off what another has just written behind.
    pub(super) fn set_length(&mut self, dst: Borrowed<'_>) -> std::result::Result<(), (SysError, u64)> {
        let Some(Last { end, bytes }) = self.last.take() else { return Ok(()) };
        let lengthen = || {
            let is_short = Facts::of(dst)?.size_bytes() < end;
            if is_short { file::write_at(dst, &[0], end - 1).map(drop) } else { Ok(()) }
        };
        lengthen().map_err(|errno| (errno, bytes))
    }
}
