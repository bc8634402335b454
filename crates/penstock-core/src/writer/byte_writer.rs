//! A writer for slices of bytes.

use std::borrow::Borrow;
use std::io;
use std::time::Duration;

use crate::error::Error;
use crate::writer::handle::Writer;

/// What a write takes at most, so that the first bytes of a large slice are on their way while the next ones are copied, and the queue
/// keeps its limit in bytes. Guessed: the size of a grown pipe.
const PIECE_BYTES: usize = 1 << 20;

/// Writes slices of bytes by a [`Writer`], which it owns or borrows: for code that takes an [`io::Write`].
///
/// It copies as [`Writer::write`] does, up to 1 MiB of the slice at once, and waits only while the queue is full. With a transform,
/// it takes one whole input, and refuses less.
///
/// `flush` waits as [`Writer::flush`] does, without a limit. What is queued is written also if this is dropped without a flush. An
/// error has the byte counts of the stream's [`Error`].
///
/// In a task of tokio, use an `AsyncByteWriter` (feature `tokio`).
///
/// ```
/// use std::io::{Read, Write};
/// use penstock_core::{ByteWriter, Writer};
/// let (mut reader, writer_end) = std::io::pipe()?;
/// let mut output = ByteWriter::new(Writer::new(&writer_end, &Default::default())?);
/// drop(writer_end);
/// write!(output, "{} frames", 3)?;
/// output.into_inner().close(None)?;
/// let mut got = String::new();
/// reader.read_to_string(&mut got)?;
/// assert_eq!(got, "3 frames");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ByteWriter<W> {
    writer: W,
    piece_bytes: usize,
}

impl<W: Borrow<Writer>> ByteWriter<W> {
    /// Writes by that writer: a [`Writer`], a reference, or an [`Arc`](std::sync::Arc).
    #[must_use]
    pub fn new(writer: W) -> Self {
        let piece_bytes = writer.borrow().input_bytes().unwrap_or(PIECE_BYTES);
        Self { writer, piece_bytes }
    }

    /// The writer.
    #[must_use]
    pub fn get_ref(&self) -> &Writer {
        self.writer.borrow()
    }

    /// Returns what it was made with.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.writer
    }

    /// Queues a copy of a piece of the slice. Returns its size.
    pub(super) fn queue(&self, bytes: &[u8], timeout: Option<Duration>) -> Result<usize, Error> {
        let piece = &bytes[..bytes.len().min(self.piece_bytes)];
        if piece.is_empty() { Ok(0) } else { self.get_ref().write(piece, timeout) }
    }
}

impl<W: Borrow<Writer>> io::Write for ByteWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.queue(bytes, None)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.get_ref().flush(None)?)
    }
}
