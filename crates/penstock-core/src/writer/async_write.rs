//! A writer for slices of bytes, for tasks of tokio.

use std::borrow::Borrow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;

use crate::error::Error;
use crate::writer::byte_writer::ByteWriter;
use crate::writer::handle::Writer;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// A write is pending while the queue is full. A flush waits for all that is in the stream, also for what others queue
/// meanwhile. A shutdown does, too, and then closes the writer, which waits a moment for its idle thread to end.
impl<W: Borrow<Writer> + Unpin> AsyncWrite for ByteWriter<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_call(context, |own| own.queue(bytes, AT_ONCE))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_call(context, |own| own.get_ref().flush(AT_ONCE))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let has_begun = own.awaited.is_some();
        own.poll_call(context, |own| match own.get_ref() {
            writer if has_begun => writer.close_at(writer.mark(), AT_ONCE),
            writer => writer.close(AT_ONCE),
        })
    }
}

impl<W: Borrow<Writer>> ByteWriter<W> {
    /// Polls a call that must not wait: pending while it stalls.
    fn poll_call<T>(
        &mut self,
        context: &mut Context<'_>,
        call: impl Fn(&Self) -> Result<T, Error>,
    ) -> Poll<io::Result<T>> {
        let mut awaited = self.awaited.take();
        let polled = self.get_ref().poll_attempts(&mut awaited, context, || match call(self) {
            Err(Error::Stalled { .. }) => None,
            outcome => Some(outcome),
        });
        self.awaited = awaited;
        Poll::Ready(Ok(ready!(polled)?))
    }
}
