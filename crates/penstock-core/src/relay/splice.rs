//! splice(2): the kernel moves references to pages, and no byte passes through user space.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::{Errno, Result};

use super::{Ends, Source, Step};
use crate::capacity;
use crate::kept::Kept;
use crate::sys::fd::{self, Kind};
use crate::sys::pipe;

/// What is moved at once, so that the other side works on one piece while we move the next. Measured on a 2-core x86-64
/// VM, Linux 6.18, 2026-11-21: with a pipe of 1 MiB and reads of 256 KiB it moves up to 7 times what whole files do.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Straight from one to the other, of which one is a pipe.
pub(super) fn direct(ends: &Ends<'_>, source: &mut Source, destination: Kind, left: u64) -> Result<Step> {
    if would_wait(ends.src, source.kind, PollFlags::IN) || would_wait(ends.dst, destination, PollFlags::OUT) {
        return Ok(Step::Blocked);
    }
    let at_most = piece_bytes(ends.dst, destination, left);
    match pipe::splice(ends.src, source.position.as_mut(), ends.dst, at_most) {
        Ok(0) if awaits_first_writer(ends.src, source.kind) => Ok(Step::Blocked),
        Ok(0) => Ok(Step::Ended),
        Ok(bytes) => Ok(Step::direct(bytes)),
        Err(Errno::AGAIN) => Ok(Step::Blocked),
        Err(errno) => Err(errno),
    }
}

/// Whether a splice(2) would wait at that end in spite of `SPLICE_F_NONBLOCK`, which speaks of pipes only.
pub(super) fn would_wait(fd: BorrowedFd<'_>, kind: Kind, for_what: PollFlags) -> bool {
    matches!(kind, Kind::StreamSocket | Kind::Other) && fd::ready(fd, for_what).is_empty()
}

/// As much as may be moved at once without waiting for the destination's reader in the middle.
pub(super) fn piece_bytes(dst: BorrowedFd<'_>, destination: Kind, left: u64) -> usize {
    let piece_bytes = match destination {
        // Ready for writing means that a third of the buffer is free (TCP, sk_stream_is_writeable), or three quarters (Unix,
        // unix_writable): less than that goes in without waiting, whatever the socket's flags.
        Kind::StreamSocket => rustix::net::sockopt::socket_send_buffer_size(dst)
            .map_or(SMALLEST_SOCKET_PIECE_BYTES, |bytes| (bytes / 4).max(SMALLEST_SOCKET_PIECE_BYTES))
            .min(PIECE_BYTES),
        _ => PIECE_BYTES,
    };
    usize::try_from(left).map_or(piece_bytes, |left| left.min(piece_bytes))
}

/// A page: a socket that is ready takes it.
const SMALLEST_SOCKET_PIECE_BYTES: usize = 4 << 10;

/// Whether a pipe without a writer is a FIFO that no writer has opened yet: it has not been hung up (pipe(7), poll(2)).
pub(super) fn awaits_first_writer(src: BorrowedFd<'_>, kind: Kind) -> bool {
    kind == Kind::Pipe && fd::ready(src, PollFlags::IN).is_empty()
}

/// A pipe of our own between two that are none.
#[derive(Debug)]
pub(super) struct InnerPipe {
    reader: Kept,
    writer: Kept,
    held_bytes: usize,
}

impl InnerPipe {
    pub(super) fn make() -> Result<Self> {
        let [reader, writer] = Kept::make_all(pipe::make)?;
        if let Ok((id, _)) = fd::identify(writer.as_fd()) {
            capacity::grow(writer.as_fd(), id);
        }
        Ok(Self { reader, writer, held_bytes: 0 })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Fills the pipe when it is empty and the destination could take something, else empties it: so that while we wait
    /// nothing has left its source.
    pub(super) fn step(
        &mut self,
        ends: &Ends<'_>,
        source: &mut Source,
        destination: Kind,
        left: u64,
    ) -> Result<Step> {
        if would_wait(ends.dst, destination, PollFlags::OUT) {
            return Ok(Step::Blocked);
        }
        if self.held_bytes == 0 {
            self.fill(ends, source, destination, left)
        } else {
            self.empty(ends, destination)
        }
    }

    fn fill(&mut self, ends: &Ends<'_>, source: &Source, destination: Kind, left: u64) -> Result<Step> {
        if would_wait(ends.src, source.kind, PollFlags::IN) {
            return Ok(Step::Blocked);
        }
        match pipe::splice(ends.src, None, self.writer.as_fd(), piece_bytes(ends.dst, destination, left)) {
            Ok(0) => Ok(Step::Ended),
            Ok(taken) => {
                self.held_bytes = taken;
                Ok(Step::Moved { taken, given: 0 })
            }
            Err(Errno::AGAIN) => Ok(Step::Blocked),
            Err(errno) => Err(errno),
        }
    }

    fn empty(&mut self, ends: &Ends<'_>, destination: Kind) -> Result<Step> {
        let at_most = piece_bytes(ends.dst, destination, self.held_bytes as u64);
        match pipe::splice(self.reader.as_fd(), None, ends.dst, at_most) {
            // It holds bytes, so that no end can have been met: the destination takes nothing.
            Ok(0) => Err(Errno::IO),
            Ok(given) => {
                self.held_bytes -= given;
                Ok(Step::Moved { taken: 0, given })
            }
            Err(Errno::AGAIN) => Ok(Step::Blocked),
            Err(errno) => Err(errno),
        }
    }

    /// Takes out what the pipe holds.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.held_bytes];
        let mut read = 0;
        while read < bytes.len() {
            match fd::read_now(self.reader.as_fd(), Kind::Pipe, &mut bytes[read..]) {
                Ok(more) if more > 0 => read += more,
                Err(Errno::INTR) => {}
                _ => unreachable!("a pipe of our own gives back what was put in"),
            }
        }
        bytes
    }
}
