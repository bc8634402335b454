//! Reads a file by its path.

use std::path::Path;

use crate::runtime::fork_fd::ForkFd;
use crate::sys::error::Result;
use crate::sys::{AsHandle, file};

/// A regular file or block device, open for reading.
#[derive(Debug)]
pub struct FileSource(ForkFd);

impl FileSource {
    /// Opens the file, and returns its size, too. Neither waits for a writer nor acquires a controlling terminal.
    ///
    /// # Errors
    ///
    /// It is something else: `EISDIR` for a directory, otherwise `EINVAL`. Or what the system reports.
    pub fn open(path: &Path) -> Result<(Self, u64)> {
        // Opened before it is registered: a network file system may take its time, and a fork would wait for it.
        let (file, size_bytes) = file::open_to_read(path)?;
        Ok((Self(ForkFd::adopt(file)?), size_bytes))
    }

    /// Notes that it is read from the beginning to the end. Advice only.
    pub fn is_read_in_order(&self) {
        file::advise_sequential(self.0.as_handle());
    }

    /// Reads from the file's position: 0 at the end.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        uninterrupted(|| file::read(self.0.as_handle(), &mut *buffer))
    }

    /// Reads from a position: 0 at the end.
    ///
    /// # Errors
    ///
    /// What the system reports.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> Result<usize> {
        uninterrupted(|| file::read_at(self.0.as_handle(), &mut *buffer, position))
    }
}

fn uninterrupted(mut read: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match read() {
            Err(error) if error.interrupted() => {}
            answer => return answer,
        }
    }
}
