//! The caller's own pages, given to the pipe (vmsplice(2)).

use super::choice::Transport;
use super::sink::{Sink, Stop};
use crate::sys::pipe;
use crate::sys::span::Span;

/// Bytes given at once. The reader is woken after each piece. Measured as for `write`.
const PIECE_BYTES: usize = 256 << 10;

/// # Safety
///
/// The span's memory is readable, and unwritten until the pipe's reader has read it.
pub(super) unsafe fn push(sink: &Sink<'_>, span: Span) -> Result<(), Stop> {
    sink.push_all(span, PIECE_BYTES, Transport::ZeroCopy, |piece| {
        // SAFETY: the piece is a part of the span, which by this function's contract nobody writes to before it has been read.
        unsafe { pipe::vmsplice(sink.fd, piece) }
    })
}
