//! splice(2): the kernel moves references to pages, and no byte passes through user space.

use super::ends::{Ends, Source, Step};
use crate::pipe::budget;
use crate::pipe::private::PrivatePipe;
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind, Reads};
use crate::sys::wait::{self, Events};
use crate::sys::{AsHandle, Borrowed, SysError, pipe};

/// Bytes moved at once, so that the other side works on one piece while we move the next. Measured on a 2-core x86-64
/// VM, Linux 6.18, 2026-11-21: with a pipe of 1 MiB and reads of 256 KiB it moves up to 7 times what whole files do.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// One step directly between two descriptors, one of which is a pipe.
pub(super) fn direct(ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
    let at_most = room_bytes(ends, left);
    if at_most == 0 || would_wait(ends.src, source.kind) {
        return Err(SysError::WOULD_BLOCK);
    }
    match pipe::splice(ends.src, source.position.as_mut(), ends.dst, at_most) {
        Ok(0) if pipe::awaits_first_writer(ends.src, source.kind) => Err(SysError::WOULD_BLOCK),
        Ok(0) if stands_at_urgent_data(ends.src, source.kind) => Err(SysError::INVALID),
        answer => answer.map(Step::direct),
    }
}

/// Whether splice(2) would wait for that source: `SPLICE_F_NONBLOCK` concerns pipes only.
pub(super) fn would_wait(src: Borrowed<'_>, source: Kind) -> bool {
    matches!(source, Kind::StreamSocket | Kind::Other) && wait::ready(src, Events::READ).is_empty()
}

/// Bytes that can be moved at once without waiting for the destination in the middle; 0 if the first byte would have to
/// wait.
pub(super) fn room_bytes(ends: &Ends<'_>, left: u64) -> usize {
    let room = match ends.destination {
        Kind::StreamSocket => socket_room_bytes(ends),
        Kind::Other if wait::ready(ends.dst, Events::WRITE).is_empty() => 0,
        Kind::Other if fd::is_blocking_terminal(ends.dst) => fd::TERMINAL_PIECE_BYTES,
        _ => PIECE_BYTES,
    };
    usize::try_from(left).map_or(room, |left| left.min(room)).min(PIECE_BYTES)
}

/// Whether no piece is sure to fit into the socket at once. A send(2) that does not wait takes what fits.
pub(super) fn would_wait_inside(dst: Borrowed<'_>) -> bool {
    // A peer in another virtual machine grants room (vsock(7)) that these accounts know nothing of.
    let has_other_accounts = !fd::keeps_accounts(dst);
    let is_small = fd::send_buffer(dst).is_some_and(|buffer| buffer.bytes < SMALLEST_SEND_BUFFER_BYTES);
    has_other_accounts || is_small || fd::limits_unsent(dst)
}

/// Four of our smallest pieces, because the system's overhead counts too. TCP's buffers begin with this (`tcp_wmem`,
/// tcp(7)).
const SMALLEST_SEND_BUFFER_BYTES: usize = 4 * SMALLEST_SOCKET_PIECE_BYTES;

/// Bytes that fit into a socket at once, whatever its mode: half of the free ones. The rest is for the system's bookkeeping, for which
/// it doubles what was asked for (`SO_SNDBUF`, socket(7)). Measured: TCP's packets are as small as the peer's buffer makes them, and
/// of a full send buffer, 0.99 were data with the default there, 0.71 with an `SO_RCVBUF` of 4096, and 0.5 with 2304 (Linux 6.18,
/// 2026-11-29).
///
/// A Unix socket's packets hold 16 pages of a file and 768 bytes of bookkeeping, so it takes 15/16, in whole pages. Measured: in the test
/// that fills sockets 17/16 still fit, and 20/16 do not.
pub(super) fn socket_room_bytes(ends: &Ends<'_>) -> usize {
    match fd::send_buffer(ends.dst) {
        // Pieces below that are not worth it. poll(2) tells when there is more: it waits for three quarters (Unix,
        // unix_writable) or a third (TCP, sk_stream_is_writeable).
        Some(buffer) if buffer.free_bytes >= buffer.bytes / 4 => {
            let bytes = if ends.are_file_and_unix_socket {
                buffer.free_bytes / 16 * 15
            } else {
                buffer.free_bytes / 2
            };
            (bytes - bytes % SMALLEST_SOCKET_PIECE_BYTES).max(SMALLEST_SOCKET_PIECE_BYTES)
        }
        // Sockets that have failed are ready too, so that the call can report it.
        _ if wait::ready(ends.dst, Events::WRITE).is_empty() => 0,
        _ => SMALLEST_SOCKET_PIECE_BYTES,
    }
}

/// A page: a socket that is ready takes it.
const SMALLEST_SOCKET_PIECE_BYTES: usize = 4 << 10;

/// Whether a socket without bytes has not ended: TCP's urgent data stops splice(2), and recv(2) gets past it. The
/// caller then treats it as a refusal.
fn stands_at_urgent_data(src: Borrowed<'_>, kind: Kind) -> bool {
    kind == Kind::StreamSocket && fd::peek_now(src, &mut [0]) != Ok(0)
}

/// A pipe of our own between two descriptors that are no pipes.
#[derive(Debug)]
pub(super) struct InnerPipe {
    pipe: PrivatePipe,
    /// How often it has been filled.
    fills: u64,
}

impl InnerPipe {
    pub(super) fn make() -> Result<Self> {
        Ok(Self { pipe: PrivatePipe::make()?, fills: 0 })
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.pipe.held_bytes()
    }

    /// Fills the pipe if it is empty and the destination could take something, otherwise empties it. So nothing has
    /// left the source while we wait.
    pub(super) fn step(&mut self, ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
        let held_bytes = self.pipe.held_bytes();
        let left = if held_bytes == 0 { left } else { held_bytes as u64 };
        match room_bytes(ends, left) {
            0 => Err(SysError::WOULD_BLOCK),
            at_most if held_bytes == 0 => self.fill(ends, source, at_most),
            at_most => self.empty(ends, at_most),
        }
    }

    fn fill(&mut self, ends: &Ends<'_>, source: &Source, at_most: usize) -> Result<Step> {
        if would_wait(ends.src, source.kind) {
            return Err(SysError::WOULD_BLOCK);
        }
        let taken = self.pipe.fill(|writer| pipe::splice(ends.src, None, writer, at_most))?;
        if taken == 0 {
            let is_urgent = stands_at_urgent_data(ends.src, source.kind);
            return if is_urgent { Err(SysError::INVALID) } else { Ok(Step::Ended) };
        }
        self.fills += 1;
        // For a relay of one piece, growing it would cost more than the relay.
        if self.fills == 2 {
            self.pipe.grow_to(budget::WANTED_BYTES);
        }
        Ok(Step::Moved { taken, given: 0 })
    }

    fn empty(&mut self, ends: &Ends<'_>, at_most: usize) -> Result<Step> {
        match self.pipe.give(ends.dst, at_most)? {
            // It holds bytes, so this is not the end: the destination takes nothing.
            0 => Err(SysError::IO),
            given => Ok(Step::Moved { taken: 0, given }),
        }
    }

    /// Takes out the content of the pipe.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.pipe.held_bytes()];
        let (reads, mut read) = (Reads::default(), 0);
        while read < bytes.len() {
            match reads.now(self.pipe.reader.as_handle(), Kind::Pipe, &mut bytes[read..]) {
                Ok(more) if more > 0 => read += more,
                Err(error) if error.interrupted() => {}
                _ => unreachable!("a pipe of our own gives back what was put in"),
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn a_socket_without_accounts_of_its_room_is_not_spliced_to() {
        for (family, waits) in
            [(AddressFamily::INET, false), (AddressFamily::UNIX, false), (AddressFamily::VSOCK, true)]
        {
            let Ok(socket) = socket(family, SocketType::STREAM, None) else { continue };
            assert_eq!(would_wait_inside(socket.as_handle()), waits, "{family:?}");
        }
    }
}
