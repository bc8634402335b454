//! A pipe of our own on the way between two descriptors.

use super::budget::{self, Reservation};
use crate::runtime::fork_fd::ForkFd;
use crate::sys::error::Result;
use crate::sys::{AsHandle, Borrowed, pipe};

/// A pipe that nobody else reads or writes. Its ends are non-blocking.
#[derive(Debug)]
pub(crate) struct PrivatePipe {
    pub(crate) reader: ForkFd,
    pub(crate) writer: ForkFd,
    /// What `fill` has put in and nobody has taken out.
    held_bytes: usize,
    /// Dropped after the pipe's ends.
    pub(crate) reservation: Option<Reservation>,
}

impl PrivatePipe {
    /// A pipe of the system's default size.
    pub(crate) fn make() -> Result<Self> {
        let [reader, writer] = ForkFd::make_all(pipe::make_non_blocking)?;
        Ok(Self { reader, writer, held_bytes: 0, reservation: None })
    }

    /// A pipe of that size, or as near to it as the system allows.
    pub(crate) fn of_size(bytes: usize) -> Result<Self> {
        let mut pipe = Self::make()?;
        pipe.grow_to(bytes);
        Ok(pipe)
    }

    pub(crate) fn grow_to(&mut self, bytes: usize) {
        self.reservation = budget::grow_own(self.writer.as_handle(), bytes);
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Lets the call put bytes in.
    pub(crate) fn fill(&mut self, put_in: impl FnOnce(Borrowed<'_>) -> Result<usize>) -> Result<usize> {
        put_in(self.writer.as_handle()).inspect(|bytes| self.held_bytes += bytes)
    }

    /// Gives at most so many bytes to the descriptor, by splice(2).
    pub(crate) fn give(&mut self, dst: Borrowed<'_>, at_most: usize) -> Result<usize> {
        pipe::splice(self.reader.as_handle(), None, dst, at_most).inspect(|bytes| self.held_bytes -= bytes)
    }

    /// Drops what it holds.
    pub(crate) fn clear(&mut self) -> Result<()> {
        pipe::discard(self.reader.as_handle())?;
        self.held_bytes = 0;
        Ok(())
    }
}
