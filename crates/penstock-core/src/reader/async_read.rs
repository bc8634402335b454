//! The frames of a reader as a stream of bytes, for tasks of tokio.

use std::borrow::Borrow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::byte_reader::ByteReader;
use super::handle::Reader;

impl<R: Borrow<Reader> + Unpin> AsyncRead for ByteReader<R> {
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

impl<R: Borrow<Reader> + Unpin> AsyncBufRead for ByteReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let own = self.get_mut();
        if own.rest().is_empty() {
            own.leave_frame();
            let next = ready!(own.reader.borrow().poll_read(&mut own.awaited, context));
            own.enter_frame(next)?;
        }
        Poll::Ready(Ok(own.rest()))
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.taken_bytes += bytes;
    }
}
