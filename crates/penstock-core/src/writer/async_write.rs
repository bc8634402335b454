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
/// meanwhile. A shutdown does, too, and then closes the writer.
impl<W: Borrow<Writer> + Unpin> AsyncWrite for ByteWriter<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_by(context, |own| own.queue(bytes, AT_ONCE))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_by(context, |own| own.get_ref().flush(AT_ONCE))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_by(context, |own| own.get_ref().close(AT_ONCE))
    }
}

impl<W: Borrow<Writer>> ByteWriter<W> {
    /// Attempts it, and again whenever a write has ended, until it does not stall.
    fn poll_by<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl Fn(&Self) -> Result<T, Error>,
    ) -> Poll<io::Result<T>> {
        loop {
            match attempt(self) {
                Err(Error::Stalled { .. }) => {}
                outcome => return Poll::Ready(Ok(outcome?)),
            }
            let Some(oldest) = self.awaited.take().or_else(|| self.get_ref().oldest()) else {
                // All have ended, and the last is about to leave the queue.
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            let _ = ready!(Pin::new(self.awaited.insert(oldest)).poll(context)); // its failure is the stream's
            self.awaited = None;
        }
    }
}
