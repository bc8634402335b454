//! Reads a descriptor without blocking, whatever its mode. A waker interrupts the wait for its bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Read;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::waker::Waker;
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind, Reads};
use crate::sys::wait::Events;
use crate::sys::{AsHandle, Borrowed, pipe};

/// A duplicate of a descriptor, and its kind.
#[derive(Debug)]
pub struct PollSource {
    fd: ForkFd,
    /// Bytes that the caller has read before. They come first.
    ahead: RefCell<VecDeque<u8>>,
    pub(crate) kind: Kind,
    reads: Reads,
}

impl PollSource {
    /// Duplicates the descriptor. The bytes in `ahead` were read from it before, and come first.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `EBADF` if the descriptor is not open for reading, `EISDIR` for a directory, or what the system
    /// reports.
    pub fn open(ahead: Vec<u8>, fd: Borrowed<'_>) -> std::result::Result<Self, Error> {
        let (kind, _) = fd::look_at_source(fd).map_err(Error::of_system)?;
        let fd = ForkFd::make(|| fd::duplicate(fd)).map_err(Error::of_system)?;
        Ok(Self { fd, ahead: RefCell::new(ahead.into()), kind, reads: Reads::default() })
    }

    /// Refuses what keeps messages apart: of one that is read with less room than it has bytes, the rest is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`], in which `who` is the caller.
    pub fn check_is_stream(&self, who: &str) -> std::result::Result<(), Error> {
        if !self.kind.keeps_messages() {
            return Ok(());
        }
        let why = format!("{who} needs a stream of bytes, not one of messages");
        Err(Error::Unsuitable(why.into()))
    }

    /// Reads what is available: 0 at the end, none if nothing is available yet.
    ///
    /// # Errors
    ///
    /// What read(2) reports, except `EINTR` and `EAGAIN`.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        if let Ok(bytes @ 1..) = self.ahead.borrow_mut().read(buffer) {
            return Ok(Some(bytes));
        }
        loop {
            match self.reads.now(self.as_handle(), self.kind, buffer) {
                Ok(0) if pipe::awaits_first_writer(self.as_handle(), self.kind) => return Ok(None),
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.would_block() => return Ok(None),
                Err(error) if error.interrupted() => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Waits until there is something to read or the waker is woken, which this resets. Returns the time that it
    /// waited.
    pub fn wait(&self, waker: &Waker) -> Duration {
        let start = Instant::now();
        waker.wait_beside(self.as_handle(), Events::READ);
        start.elapsed()
    }

    /// Bytes that could be read at once; 0 where the system does not tell, and for files.
    #[must_use]
    pub fn unread_bytes(&self) -> u64 {
        let here =
            if self.kind == Kind::File { 0 } else { pipe::unread_bytes(self.as_handle()).unwrap_or(0) };
        self.ahead.borrow().len() as u64 + here
    }
}

impl AsHandle for PollSource {
    fn as_handle(&self) -> Borrowed<'_> {
        self.fd.as_handle()
    }
}
