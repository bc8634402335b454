//! The kernel copies: pipes, sockets, files and everything else.

use rustix::io::{Errno, Result};

use super::{Sink, Stop, Transport};
use crate::region::Span;
use crate::sys::fd::{self, Kind};

/// What goes into a pipe or socket at once, so that the reader works on one piece while we put in the next.
/// Measured with FFmpeg as reader on a 2-core x86-64 VM, Linux 6.18, 2026-11-20: whole frames lock-step with
/// the reader and lose half the speed.
const PIECE_BYTES: usize = 256 << 10;

/// What goes into a file at once. Nobody waits at the other end; this only bounds how long `abort` takes.
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
    sink.push_all(span, piece_bytes, Transport::Write, |piece| unsafe { attempt(sink, piece) })
}

/// # Safety
///
/// The piece's memory is readable.
unsafe fn attempt(sink: &Sink<'_>, piece: Span) -> Result<usize> {
    // SAFETY: the caller vouches for the piece.
    unsafe {
        match sink.kind {
            Kind::Pipe => write_without_blocking(sink, piece),
            Kind::StreamSocket => fd::send_now(sink.fd, piece),
            Kind::Messages => match fd::send_now(sink.fd, piece) {
                Err(Errno::NOTSOCK) => fd::write(sink.fd, piece), // a pipe in packet mode
                answer => answer,
            },
            Kind::File | Kind::Other => fd::write(sink.fd, piece),
        }
    }
}

/// A pipe that belongs to somebody else may be in blocking mode, and stays so. Kernels that cannot be asked not
/// to block for one write do block in it, for as long as the reader reads nothing of this piece.
///
/// # Safety
///
/// The piece's memory is readable.
unsafe fn write_without_blocking(sink: &Sink<'_>, piece: Span) -> Result<usize> {
    // SAFETY: the caller vouches for the piece.
    unsafe {
        match fd::write_now(sink.fd, piece) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fd::write(sink.fd, piece),
            answer => answer,
        }
    }
}
