//! read(2) and write(2): for every pair, and for those that the kernel does not splice.

use rustix::event::PollFlags;
use rustix::io::{Errno, Result};

use super::splice::{InnerPipe, PIECE_BYTES, awaits_first_writer};
use super::{Ends, Source, Step};
use crate::region::Span;
use crate::sys::fd::{self, Kind};

/// The largest message that is kept whole: more than any socket's default buffer takes (`wmem_max`, socket(7)).
const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes on their way through user space.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// With the bytes that an inner pipe could not get rid of.
    pub(super) fn after(inner: InnerPipe) -> Self {
        let bytes = inner.into_bytes();
        Self { start: 0, end: bytes.len(), bytes }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Fills the buffer when it is empty and the destination could take something, else empties it: so that while we wait
    /// nothing has left its source.
    pub(super) fn step(
        &mut self,
        ends: &Ends<'_>,
        source: &mut Source,
        destination: Kind,
        left: u64,
    ) -> Result<Step> {
        if destination != Kind::File && fd::ready(ends.dst, PollFlags::OUT).is_empty() {
            return Ok(Step::Blocked);
        }
        let step = if self.held_bytes() == 0 {
            self.fill(ends, source, left)
        } else {
            self.empty(ends, destination)
        };
        if matches!(step, Err(Errno::AGAIN)) { Ok(Step::Blocked) } else { step }
    }

    fn fill(&mut self, ends: &Ends<'_>, source: &mut Source, left: u64) -> Result<Step> {
        let wanted = if source.kind == Kind::Messages { MESSAGE_BYTES } else { PIECE_BYTES };
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        let at_most = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
        let buffer = &mut self.bytes[..at_most];
        let taken = match source.position {
            Some(position) => rustix::io::pread(ends.src, buffer, position)?,
            None => fd::read_now(ends.src, source.kind, buffer)?,
        };
        if taken == 0 {
            let awaits = awaits_first_writer(ends.src, source.kind);
            return Ok(if awaits { Step::Blocked } else { Step::Ended });
        }
        (self.start, self.end) = (0, taken);
        source.advance(taken);
        Ok(Step::Moved { taken, given: 0 })
    }

    fn empty(&mut self, ends: &Ends<'_>, destination: Kind) -> Result<Step> {
        let held = &self.bytes[self.start..self.end];
        // SAFETY: the slice lives until the call is over.
        let given = unsafe { fd::write_some(ends.dst, destination, Span::at(held.as_ptr(), held.len()))? };
        if given == 0 {
            return Err(Errno::IO); // POSIX leaves 0 to odd devices; to go on would be to spin
        }
        self.start += given;
        Ok(Step::Moved { taken: 0, given })
    }
}
