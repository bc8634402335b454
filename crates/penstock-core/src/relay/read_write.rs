//! read(2) and write(2): for every pair of descriptors, and for those that the kernel does not splice.

use super::ends::{Ends, Source, Step};
use super::splice::{PIECE_BYTES, room_bytes};
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind};
use crate::sys::span::Span;
use crate::sys::wait::{self, Events};
use crate::sys::{SysError, file, pipe};

/// Bytes on their way through user space.
#[derive(Debug)]
pub(super) struct CopyBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes per message, for a destination that keeps messages apart and a source that does not.
    message_bytes: usize,
}

impl Default for CopyBuffer {
    fn default() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, message_bytes: PIECE_BYTES }
    }
}

impl CopyBuffer {
    pub(super) fn holding(bytes: Vec<u8>) -> Self {
        Self { end: bytes.len(), bytes, ..Self::default() }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Fills the buffer if it is empty and the destination could take something, otherwise empties it. So nothing has
    /// left the source while we wait.
    pub(super) fn step(&mut self, ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
        if ends.destination != Kind::File && wait::ready(ends.dst, Events::WRITE).is_empty() {
            return Err(SysError::WOULD_BLOCK);
        }
        if self.held_bytes() == 0 { self.fill(ends, source, left) } else { self.empty(ends, source.kind) }
    }

    fn fill(&mut self, ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
        let at_most = usize::try_from(left).unwrap_or(usize::MAX).min(self.most_taken(ends, source));
        if at_most == 0 {
            return Err(SysError::WOULD_BLOCK); // somebody else has taken the room
        }
        let message =
            (source.kind == Kind::Messages).then(|| fd::next_message_bytes(ends.src)).transpose()?;
        if message.is_some_and(|bytes| bytes > at_most) {
            return Err(SysError::TOO_LONG); // reading a part of a message discards the rest
        }
        let wanted = message.unwrap_or(0).max(PIECE_BYTES);
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let buffer = &mut self.bytes[..at_most.min(wanted)];
        let taken = match source.position {
            Some(position) => file::read_at(ends.src, buffer, position)?,
            None => source.reads.now(ends.src, source.kind, buffer)?,
        };
        if taken == 0 && message.is_some() && !fd::is_at_its_end(ends.src) {
            return pass_on_empty_message(ends);
        }
        if taken == 0 {
            let awaits = pipe::awaits_first_writer(ends.src, source.kind);
            return if awaits { Err(SysError::WOULD_BLOCK) } else { Ok(Step::Ended) };
        }
        (self.start, self.end) = (0, taken);
        source.position = source.position.map(|position| position + taken as u64);
        Ok(Step::Moved { taken, given: 0 })
    }

    /// Bytes that may be taken at once. Those of a file can be put back. Of everything else no more is taken than the
    /// destination has room for, so that a relay which ends meanwhile holds as little as possible.
    fn most_taken(&self, ends: &Ends<'_>, source: &Source) -> usize {
        match ends.destination {
            _ if source.position.is_some() || source.kind.keeps_messages() => usize::MAX,
            Kind::Pipe => pipe::room_bytes(ends.dst).unwrap_or(PIECE_BYTES),
            Kind::Packets | Kind::Messages => self.message_bytes,
            _ => match room_bytes(ends, u64::MAX) {
                // Its packets (O_DIRECT, which only the writing end tells) have up to so many, and less loses the rest.
                room @ 1.. if [source.kind, ends.destination] == [Kind::Pipe, Kind::StreamSocket] => {
                    room.max(pipe::ATOMIC_BYTES)
                }
                room => room,
            },
        }
    }

    fn empty(&mut self, ends: &Ends<'_>, source: Kind) -> Result<Step> {
        let held = &self.bytes[self.start..self.end];
        let mut span = Span::at(held.as_ptr(), held.len());
        let may_cut = ends.destination.keeps_messages() && !source.keeps_messages();
        if may_cut {
            span = span.first(self.message_bytes);
        }
        // SAFETY: the slice lives until the call is over.
        let given = match unsafe { fd::write_some(ends.dst, ends.destination, span) } {
            Err(SysError::TOO_LONG) if may_cut && span.len() > 1 => {
                self.message_bytes = span.len() / 2;
                return Ok(Step::Moved { taken: 0, given: 0 });
            }
            answer => answer?,
        };
        if given == 0 {
            return Err(SysError::IO); // a device that returns 0 would make the relay spin
        }
        self.start += given;
        Ok(Step::Moved { taken: 0, given })
    }
}

/// A message may be empty; elsewhere an empty write is useless.
fn pass_on_empty_message(ends: &Ends<'_>) -> Result<Step> {
    if ends.destination == Kind::Messages {
        // SAFETY: there is no byte to read.
        unsafe { fd::write_some(ends.dst, ends.destination, Span::at(std::ptr::dangling(), 0))? };
    }
    Ok(Step::Moved { taken: 0, given: 0 })
}
