//! The kernel copies: pipes, sockets, files and everything else.

use super::choice::Transport;
use super::sink::{Sink, Stop};
use crate::sys::fd::{self, Kind};
use crate::sys::span::Span;

/// Bytes per write to a pipe or socket, so that the reader works on one piece while we put in the next. Measured with
/// FFmpeg as reader on a 2-core x86-64 VM, Linux 6.18, 2026-11-20: writes of whole frames alternate with the reader's
/// reads and lose half the speed.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes per write to a file. Nobody waits at the other end; this only bounds how long `abort` takes.
const FILE_PIECE_BYTES: usize = 8 << 20;

/// # Safety
///
/// The span's memory is readable until this returns.
pub(super) unsafe fn push(sink: &Sink<'_>, span: Span) -> std::result::Result<(), Stop> {
    let piece_bytes = match sink.kind {
        Kind::Pipe | Kind::StreamSocket | Kind::Other => PIECE_BYTES,
        Kind::File => FILE_PIECE_BYTES,
        Kind::Messages => usize::MAX,
    };
    // SAFETY: the caller vouches for the span, of which `push_all` hands out parts.
    sink.push_all(span, piece_bytes, Transport::Write, |piece| unsafe {
        fd::write_some(sink.fd, sink.kind, piece)
    })
}
