//! A kernel pipe with both of its ends.

use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsFd;

use crate::error::Error;
use crate::pipe::budget;
use crate::sys::{fd, pipe};

/// A pipe with both of its ends. They are `std`'s: they read and write, and can be passed to child processes.
///
/// ```
/// use std::io::{Read, Write};
/// let pipe = penstock_core::Pipe::new(Some(1 << 20))?;
/// assert!(pipe.capacity_bytes() >= 4096);
/// let (mut reader, mut writer) = pipe.into_ends();
/// writer.write_all(b"frame")?;
/// drop(writer);
/// let mut got = String::new();
/// reader.read_to_string(&mut got)?;
/// assert_eq!(got, "frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pipe {
    /// The end to read from.
    pub reader: PipeReader,
    /// The end to write to.
    pub writer: PipeWriter,
}

impl Pipe {
    /// Creates a pipe of about `capacity_bytes`; [`capacity_bytes`](Self::capacity_bytes) returns what was granted.
    ///
    /// # Errors
    ///
    /// The process or the system has no descriptors left.
    pub fn new(capacity_bytes: Option<usize>) -> Result<Self, Error> {
        let [reader, writer] = pipe::make().map_err(Error::of_system)?;
        let pipe = Self { reader: reader.into(), writer: writer.into() };
        if let Some(bytes) = capacity_bytes {
            let (id, _) = fd::identify(pipe.writer.as_fd()).map_err(Error::of_system)?;
            budget::set(pipe.writer.as_fd(), id, bytes);
        }
        Ok(pipe)
    }

    /// The granted size in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> usize {
        pipe::capacity(self.writer.as_fd()).unwrap_or(0)
    }

    /// Bytes in the pipe that have not been read.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        pipe::unread_bytes(self.reader.as_fd()).unwrap_or(0)
    }

    /// Splits the pipe into its ends, so that each can be closed.
    #[must_use]
    pub fn into_ends(self) -> (PipeReader, PipeWriter) {
        (self.reader, self.writer)
    }
}
