//! The frames of a reader as a stream of bytes.

use std::borrow::Borrow;
use std::io::{self, BufRead, Read};

use super::frame::Frame;
use super::handle::Reader;
use crate::error::Error;

/// Reads the frames of a [`Reader`], which it owns or borrows, as a stream of bytes: for code that takes an [`io::Read`] or
/// [`io::BufRead`].
///
/// [`BufRead::fill_buf`] returns the bytes of a frame where they are; [`Read::read`] copies them once. A call waits for the next
/// frame without a limit. If the stream ends inside a frame, its bytes come before the error, which is `UnexpectedEof`; with a
/// transform, only the error.
///
/// In a task of tokio, use an `AsyncByteReader` (feature `tokio`).
///
/// ```
/// use std::io::{BufRead, Write};
/// use penstock_core::{ByteReader, Reader, ReaderOptions};
/// let (pipe, mut writer) = std::io::pipe()?;
/// writer.write_all(b"one\ntwo\nfour")?;
/// drop(writer);
/// let input = ByteReader::new(Reader::new(&pipe, &ReaderOptions::new(6))?);
/// let lines = input.lines().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(lines, ["one", "two", "four"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ByteReader<R> {
    reader: R,
    /// None before the first, and at the end.
    frame: Option<Frame>,
    /// Bytes of the frame that were taken.
    taken_bytes: usize,
}

impl<R: Borrow<Reader>> ByteReader<R> {
    /// Reads the frames of that reader: a [`Reader`], a reference, or an [`Arc`](std::sync::Arc).
    #[must_use]
    pub fn new(reader: R) -> Self {
        Self { reader, frame: None, taken_bytes: 0 }
    }

    /// The reader.
    #[must_use]
    pub fn get_ref(&self) -> &Reader {
        self.reader.borrow()
    }

    /// Returns what it was made with. Bytes of the present frame that were not taken are lost.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.reader
    }

    /// Bytes of the present frame that were not taken.
    pub(super) fn rest(&self) -> &[u8] {
        self.frame.as_ref().map_or(&[], |frame| &frame[self.taken_bytes..])
    }

    /// Gives the memory of a frame that is used up back, before the next one is awaited.
    pub(super) fn leave_frame(&mut self) {
        (self.frame, self.taken_bytes) = (None, 0);
    }

    /// Goes on with that frame, or with the bytes that are left over at the end.
    pub(super) fn enter_frame(&mut self, next: Result<Option<Frame>, Error>) -> Result<(), Error> {
        self.frame = match next {
            Err(torn @ Error::Truncated { .. }) => Some(self.get_ref().take_rest().ok_or(torn)?),
            next => next?,
        };
        Ok(())
    }
}

impl<R: Borrow<Reader>> Read for ByteReader<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(output)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

impl<R: Borrow<Reader>> BufRead for ByteReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.rest().is_empty() {
            self.leave_frame();
            let next = self.get_ref().read(None);
            self.enter_frame(next)?;
        }
        Ok(self.rest())
    }

    fn consume(&mut self, bytes: usize) {
        self.taken_bytes += bytes;
    }
}
