//! The frames of a reader as a `Stream`.

use std::borrow::Borrow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::frame::Frame;
use super::handle::Reader;
use crate::error::Error;
use crate::sync::ticket::Ticket;

/// The frames of a [`Reader`], which it owns or borrows, as a [`Stream`]. After an error it ends.
///
/// With the feature `futures`.
#[derive(Debug)]
pub struct FrameStream<R> {
    reader: R,
    awaited: Option<Ticket>,
    has_failed: bool,
}

impl<R: Borrow<Reader>> FrameStream<R> {
    /// Streams the frames of that reader: a [`Reader`], a reference, or an [`Arc`](std::sync::Arc).
    #[must_use]
    pub fn new(reader: R) -> Self {
        Self { reader, awaited: None, has_failed: false }
    }

    /// The reader.
    #[must_use]
    pub fn get_ref(&self) -> &Reader {
        self.reader.borrow()
    }

    /// Returns what it was made with.
    #[must_use]
    pub fn into_inner(self) -> R {
        self.reader
    }
}

impl<R: Borrow<Reader> + Unpin> Stream for FrameStream<R> {
    type Item = Result<Frame, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let own = self.get_mut();
        if own.has_failed {
            return Poll::Ready(None);
        }
        let next = ready!(own.reader.borrow().poll_read(&mut own.awaited, context));
        own.has_failed = next.is_err();
        Poll::Ready(next.transpose())
    }
}
