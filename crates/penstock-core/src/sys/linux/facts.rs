//! What a descriptor leads to: fstat(2).

use rustix::fs::{FileType, Stat, fstat};

use super::handle::Borrowed;
use crate::sys::error::Result;

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
