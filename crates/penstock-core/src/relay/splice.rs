//! splice(2): the kernel moves references to pages, and no byte passes through user space.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::io::{Errno, Result};

use super::ends::{Ends, Source, Step};
use crate::pipe::budget::{self, Reservation};
use crate::runtime::fork_fd::ForkFd;
use crate::sys::fd::{self, Kind};
use crate::sys::pipe;

/// What is moved at once, so that the other side works on one piece while we move the next. Measured on a 2-core x86-64
/// VM, Linux 6.18, 2026-11-21: with a pipe of 1 MiB and reads of 256 KiB it moves up to 7 times what whole files do.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Straight from one to the other, of which one is a pipe.
pub(super) fn direct(ends: &Ends<'_>, source: &mut Source, destination: Kind, left: u64) -> Result<Step> {
    let at_most = room_bytes(ends.dst, destination, left);
    if at_most == 0 || would_wait(ends.src, source.kind) {
        return Ok(Step::Blocked);
    }
    match pipe::splice(ends.src, source.position.as_mut(), ends.dst, at_most) {
        Ok(0) if pipe::awaits_first_writer(ends.src, source.kind) => Ok(Step::Blocked),
        Ok(0) if stands_at_urgent_data(ends.src, source.kind) => Err(Errno::INVAL),
        Ok(0) => Ok(Step::Ended),
        Ok(bytes) => Ok(Step::direct(bytes)),
        Err(Errno::AGAIN) => Ok(Step::Blocked),
        Err(errno) => Err(errno),
    }
}

/// Whether a splice(2) would wait for that source in spite of `SPLICE_F_NONBLOCK`, which speaks of pipes only.
pub(super) fn would_wait(src: BorrowedFd<'_>, source: Kind) -> bool {
    matches!(source, Kind::StreamSocket | Kind::Other) && fd::ready(src, PollFlags::IN).is_empty()
}

/// As much as may be moved at once without waiting for the destination in the middle, for which the same holds; 0 if
/// the first byte would have to wait.
pub(super) fn room_bytes(dst: BorrowedFd<'_>, destination: Kind, left: u64) -> usize {
    let room = match destination {
        Kind::StreamSocket => socket_room_bytes(dst),
        Kind::Other if fd::ready(dst, PollFlags::OUT).is_empty() => 0,
        Kind::Other if fd::is_blocking_terminal(dst) => fd::TERMINAL_PIECE_BYTES,
        _ => PIECE_BYTES,
    };
    usize::try_from(left).map_or(room, |left| left.min(room)).min(PIECE_BYTES)
}

/// Whether a socket is set up so that no piece surely goes in at once: a send(2) that is told not to wait then takes what it can.
pub(super) fn would_wait_inside(dst: BorrowedFd<'_>) -> bool {
    let is_small = fd::send_buffer(dst).is_some_and(|buffer| buffer.bytes < SMALLEST_SEND_BUFFER_BYTES);
    is_small || fd::limits_unsent(dst)
}

/// Four of our smallest pieces, for the system's overhead is counted in. TCP's buffers begin with this (`tcp_wmem`, tcp(7)).
const SMALLEST_SEND_BUFFER_BYTES: usize = 4 * SMALLEST_SOCKET_PIECE_BYTES;

/// What surely goes into a socket at once, whatever its flags: most of what is free, for the system counts its own
/// overhead too.
fn socket_room_bytes(dst: BorrowedFd<'_>) -> usize {
    match fd::send_buffer(dst) {
        // Pieces smaller than a quarter are not worth it, and poll(2) will say when there is that much: it waits for three
        // quarters (Unix, unix_writable) or a third (TCP, sk_stream_is_writeable).
        Some(buffer) if buffer.free_bytes >= buffer.bytes / 4 => buffer.free_bytes / 4 * 3,
        // Sockets that have failed are ready too, so that the call can say so.
        _ if fd::ready(dst, PollFlags::OUT).is_empty() => 0,
        _ => SMALLEST_SOCKET_PIECE_BYTES,
    }
}

/// A page: a socket that is ready takes it.
const SMALLEST_SOCKET_PIECE_BYTES: usize = 4 << 10;

/// Whether a socket that gave no byte is not at its end: TCP's urgent data stops a splice(2), and a recv(2) gets past it. To
/// the caller that is a refusal.
fn stands_at_urgent_data(src: BorrowedFd<'_>, kind: Kind) -> bool {
    kind == Kind::StreamSocket && fd::peek_now(src, &mut [0]) != Ok(0)
}

/// A pipe of our own between two that are none.
#[derive(Debug)]
pub(super) struct InnerPipe {
    reader: ForkFd,
    writer: ForkFd,
    held_bytes: usize,
    room: Room,
}

/// How large an inner pipe is. For a relay of one piece a larger one would cost more than the relay.
#[derive(Debug)]
enum Room {
    Default,
    /// It has been filled once.
    WorthMore,
    /// Grown as far as it may; dropped after the ends are.
    Grown {
        _reservation: Option<Reservation>,
    },
}

impl InnerPipe {
    pub(super) fn make() -> Result<Self> {
        let [reader, writer] = ForkFd::make_all(pipe::make)?;
        Ok(Self { reader, writer, held_bytes: 0, room: Room::Default })
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
        let left = if self.held_bytes == 0 { left } else { self.held_bytes as u64 };
        match room_bytes(ends.dst, destination, left) {
            0 => Ok(Step::Blocked),
            at_most if self.held_bytes == 0 => self.fill(ends, source, at_most),
            at_most => self.empty(ends, at_most),
        }
    }

    fn fill(&mut self, ends: &Ends<'_>, source: &Source, at_most: usize) -> Result<Step> {
        if would_wait(ends.src, source.kind) {
            return Ok(Step::Blocked);
        }
        match pipe::splice(ends.src, None, self.writer.as_fd(), at_most) {
            Ok(0) if stands_at_urgent_data(ends.src, source.kind) => Err(Errno::INVAL),
            Ok(0) => Ok(Step::Ended),
            Ok(taken) => {
                self.held_bytes = taken;
                self.make_room();
                Ok(Step::Moved { taken, given: 0 })
            }
            Err(Errno::AGAIN) => Ok(Step::Blocked),
            Err(errno) => Err(errno),
        }
    }

    fn make_room(&mut self) {
        match self.room {
            Room::Default => self.room = Room::WorthMore,
            Room::WorthMore => {
                self.room = Room::Grown { _reservation: budget::grow_own(self.writer.as_fd()) }
            }
            Room::Grown { .. } => {}
        }
    }

    fn empty(&mut self, ends: &Ends<'_>, at_most: usize) -> Result<Step> {
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
