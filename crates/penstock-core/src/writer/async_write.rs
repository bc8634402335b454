//! A writer for slices of bytes, for tasks of tokio.

use std::borrow::Borrow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;

use crate::error::Error;
use crate::sync::ticket::Ticket;
use crate::writer::byte_writer::ByteWriter;
use crate::writer::handle::Writer;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

/// As [`ByteWriter`], for tasks of tokio: an [`AsyncWrite`].
///
/// With the feature `tokio`.
#[derive(Debug)]
pub struct AsyncByteWriter<W> {
    bytes: ByteWriter<W>,
    /// Its end wakes the task.
    awaited: Option<Ticket>,
}

impl<W: Borrow<Writer>> AsyncByteWriter<W> {
    /// Writes by that writer: a [`Writer`], a reference, or an [`Arc`](std::sync::Arc).
    #[must_use]
    pub fn new(writer: W) -> Self {
        Self { bytes: ByteWriter::new(writer), awaited: None }
    }

    /// The writer.
    #[must_use]
    pub fn get_ref(&self) -> &Writer {
        self.bytes.get_ref()
    }

    /// Returns what it was made with.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.bytes.into_inner()
    }
}

/// A write is pending while the queue is full. A flush waits for all that is in the stream, also for what others queue
/// meanwhile. A shutdown does, too, and then closes the writer, which waits a moment for its idle thread to end.
impl<W: Borrow<Writer> + Unpin> AsyncWrite for AsyncByteWriter<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_call(context, |own| own.bytes.queue(bytes, AT_ONCE))
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

impl<W: Borrow<Writer>> AsyncByteWriter<W> {
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
