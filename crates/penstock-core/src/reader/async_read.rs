//! The frames of a reader as a stream of bytes, for tasks of tokio.

use std::borrow::Borrow;
use std::io::{self, BufRead};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::byte_reader::ByteReader;
use super::handle::Reader;
use crate::sync::ticket::Ticket;

/// As [`ByteReader`], for tasks of tokio: an [`AsyncRead`] and an [`AsyncBufRead`].
///
/// With the feature `tokio`.
#[derive(Debug)]
pub struct AsyncByteReader<R> {
    bytes: ByteReader<R>,
    /// Its end wakes the task.
    awaited: Option<Ticket>,
}

impl<R: Borrow<Reader>> AsyncByteReader<R> {
    /// Reads the frames of that reader: a [`Reader`], a reference, or an [`Arc`](std::sync::Arc).
    #[must_use]
    pub fn new(reader: R) -> Self {
        Self { bytes: ByteReader::new(reader), awaited: None }
    }

    /// The reader.
    #[must_use]
    pub fn get_ref(&self) -> &Reader {
        self.bytes.get_ref()
    }

    /// Returns what it was made with. Bytes of the present frame that were not taken are lost.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.bytes.into_inner()
    }
}

impl<R: Borrow<Reader> + Unpin> AsyncRead for AsyncByteReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = ready!(self.as_mut().poll_fill_buf(context))?;
        let bytes = rest.len().min(output.remaining());
        output.put_slice(&rest[..bytes]);
        self.consume(bytes);
        Poll::Ready(Ok(()))
    }
}

impl<R: Borrow<Reader> + Unpin> AsyncBufRead for AsyncByteReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let Self { bytes, awaited } = self.get_mut();
        if bytes.rest().is_empty() {
            bytes.leave_frame();
            let next = ready!(bytes.get_ref().poll_read(awaited, context));
            bytes.enter_frame(next)?;
        }
        Poll::Ready(Ok(bytes.rest()))
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.bytes.consume(bytes);
    }
}
