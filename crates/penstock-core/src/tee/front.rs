//! The pipe whose front all outputs share.

use std::ops::Range;
use std::time::Instant;

use crate::error::Error;
use crate::pipe::budget::{Reservation, WANTED_BYTES};
use crate::pipe::private::PrivatePipe;
use crate::relay::report::{RelayError, RelayOptions};
use crate::relay::splice::PIECE_BYTES;
use crate::relay::transfer::Transfer;
use crate::runtime::fork_fd::ForkFd;
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind, Reads};
use crate::sys::span::Span;
use crate::sys::{AsHandle, Borrowed, SysError, file, pipe};

/// The pipe whose front all outputs share.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) reader: ForkFd,
    /// Where bytes go that all outputs have. Opened in advance: later no descriptor may be left.
    pub(super) null: ForkFd,
    /// Fills the pipe from a source that is no pipe. Gone when the source has ended.
    filler: Option<Filler>,
    pub(super) failure: Option<RelayError>,
    /// Where the system refuses tee(2): the bytes at the front, read from the pipe.
    copied: Option<Copied>,
    /// A source that is no pipe, and its position if it is a file.
    src: Option<ForkFd>,
    position: Option<u64>,
    _reservation: Option<Reservation>,
}

#[derive(Debug)]
struct Copied {
    refused: SysError,
    reads: Reads,
    buffer: Vec<u8>,
    /// Where in the buffer the front is.
    left: Range<usize>,
}

#[derive(Debug)]
struct Filler {
    writer: ForkFd,
    transfer: Transfer,
}

impl Front {
    pub(super) fn open(src: Borrowed<'_>, kind: Kind) -> std::result::Result<Self, Error> {
        let own = ForkFd::make(|| fd::duplicate(src)).map_err(Error::of_system)?;
        let null = ForkFd::make(file::open_null).map_err(Error::of_system)?;
        let (reader, filler, src, reservation) = if kind == Kind::Pipe {
            (own, None, None, None)
        } else {
            let PrivatePipe { reader, writer, reservation, .. } =
                PrivatePipe::of_size(WANTED_BYTES).map_err(Error::of_system)?;
            let transfer = Transfer::plan(own.as_handle(), writer.as_handle(), &RelayOptions::default())?;
            (reader, Some(Filler { writer, transfer }), Some(own), reservation)
        };
        Ok(Self {
            reader,
            null,
            filler,
            failure: None,
            copied: None,
            src,
            position: None,
            _reservation: reservation,
        })
    }

    /// Puts in what the source has and the pipe takes, without waiting.
    pub(super) fn fill(&mut self) {
        while let (Some(Filler { writer, transfer }), Some(src)) = (&mut self.filler, &self.src) {
            let advanced = advance(transfer, src.as_handle(), writer.as_handle());
            self.position = transfer.position();
            match advanced {
                Advance::Moved => {}
                Advance::Blocked => return,
                Advance::Ended => self.filler = None,
                Advance::Failed(failure) => {
                    self.failure = Some(failure);
                    self.filler = None;
                }
            }
        }
    }

    /// The caller's pipe, if the source is one.
    pub(super) fn callers_pipe(&self) -> Option<Borrowed<'_>> {
        if self.src.is_none() { Some(self.reader.as_handle()) } else { None }
    }

    pub(super) fn unread_bytes(&self) -> u64 {
        let copied = self.copied.as_ref().map_or(0, |copied| copied.left.len() as u64);
        pipe::unread_bytes(self.reader.as_handle()).unwrap_or(0) + copied
    }

    /// The error by which the system refused tee(2) or splice(2), if it did.
    pub(super) fn refused(&self) -> Option<SysError> {
        self.copied.as_ref().map(|copied| copied.refused)
    }

    /// Lets a pipe take at most so many bytes of the front. They leave the front if it is the last to take them.
    /// Returns 0 if the front is empty and has no writer.
    pub(super) fn give(&mut self, entry: Borrowed<'_>, at_most: usize, is_last: bool) -> Result<usize> {
        if self.copied.is_none() {
            let front = self.reader.as_handle();
            let given = if is_last {
                pipe::splice(front, None, entry, at_most)
            } else {
                pipe::tee(front, entry, at_most)
            };
            if !self.is_refused(&given) {
                return given;
            }
        }
        let bytes = self.copy()?;
        // SAFETY: the slice lives until the call is over.
        let given =
            unsafe { fd::write_some(entry, Kind::Pipe, Span::at(bytes.as_ptr(), bytes.len().min(at_most))) }?;
        if is_last {
            self.drop_copied(given);
        }
        Ok(given)
    }

    /// Removes at most so many bytes from the front.
    pub(super) fn discard(&mut self, at_most: usize) -> Result<usize> {
        if self.copied.is_none() {
            let dropped = pipe::splice(self.reader.as_handle(), None, self.null.as_handle(), at_most);
            if !self.is_refused(&dropped) {
                return dropped;
            }
        }
        let dropped = self.copy()?.len().min(at_most);
        self.drop_copied(dropped);
        Ok(dropped)
    }

    /// Whether the system refuses the call, after which the front is copied.
    fn is_refused(&mut self, outcome: &Result<usize>) -> bool {
        let refused = outcome.as_ref().err().copied().filter(|errno| errno.is_refusal());
        let empty = |refused| {
            let buffer = vec![0; PIECE_BYTES];
            Copied { refused, reads: Reads::default(), buffer, left: 0..0 }
        };
        self.copied = refused.map(empty);
        refused.is_some()
    }

    /// The copied bytes. Reads some if there are none.
    fn copy(&mut self) -> Result<&[u8]> {
        let Copied { reads, buffer, left, .. } = self.copied.as_mut().expect("only what is copied is read");
        if left.start == left.end {
            *left = 0..reads.now(self.reader.as_handle(), Kind::Pipe, buffer)?;
        }
        Ok(&buffer[left.clone()])
    }

    fn drop_copied(&mut self, bytes: usize) {
        if let Some(copied) = &mut self.copied {
            copied.left.start += bytes;
        }
    }

    /// What to wait for when the pipe is empty.
    pub(super) fn source(&self) -> Borrowed<'_> {
        match (&self.filler, &self.src) {
            (Some(_), Some(src)) => src.as_handle(),
            _ => self.reader.as_handle(),
        }
    }

    /// Returns to a source what was read ahead and nobody took: a file is set back. Of other sources it is lost; the
    /// number of bytes is returned. Nothing is read ahead of a pipe, unless the system refuses tee(2).
    pub(super) fn put_back(&mut self) -> u64 {
        let ahead = self.unread_bytes();
        let Some(src) = &self.src else {
            return self.copied.as_ref().map_or(0, |copied| copied.left.len() as u64);
        };
        let held = self.filler.take().map_or(0, |filler| filler.transfer.in_transit_bytes() as u64);
        match self
            .position
            .map(|position| file::set_position(src.as_handle(), position.saturating_sub(ahead)))
        {
            Some(Ok(())) => 0,
            _ => ahead + held,
        }
    }
}

pub(super) enum Advance {
    Moved,
    Blocked,
    Ended,
    Failed(RelayError),
}

/// One step of a relay, without waiting.
pub(super) fn advance(transfer: &mut Transfer, src: Borrowed<'_>, dst: Borrowed<'_>) -> Advance {
    let state = |transfer: &Transfer| (transfer.moved, transfer.in_transit_bytes());
    let before = state(transfer);
    match transfer.run(src, dst, None, Some(Instant::now())) {
        Some(Ok(_)) => Advance::Ended,
        Some(Err(failure)) => Advance::Failed(failure),
        None if state(transfer) != before => Advance::Moved,
        None => Advance::Blocked,
    }
}
