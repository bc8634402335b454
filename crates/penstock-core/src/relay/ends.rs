//! The two ends of a relay, and the result of a step between them.

use crate::error::Error;
use crate::sys::error::Result;
use crate::sys::facts::Facts;
use crate::sys::fd::{self, Kind, Reads};
use crate::sys::{Borrowed, file, pipe};

/// The two descriptors of a relay.
pub(super) struct Ends<'a> {
    pub(super) src: Borrowed<'a>,
    pub(super) dst: Borrowed<'a>,
    pub(super) destination: Kind,
    /// Whether a file's pages go to a Unix socket.
    pub(super) are_file_and_unix_socket: bool,
    /// Whether a step may wait inside the kernel until a signal comes: nobody watches, and no time is set.
    pub(super) may_wait: bool,
}

/// The result of one step. `EAGAIN` means that one of the two would have to be waited for.
#[derive(Debug)]
pub(crate) enum Step {
    /// `taken` bytes left the source, and `given` bytes reached the destination.
    Moved { taken: usize, given: usize },
    /// The source has ended.
    Ended,
}

impl Step {
    /// So many bytes went from one to the other at once; 0 at the end of the source.
    pub(super) fn direct(bytes: usize) -> Self {
        if bytes == 0 { Self::Ended } else { Self::Moved { taken: bytes, given: bytes } }
    }
}

/// The source.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    /// The position of the next byte in a file; none for what has no positions.
    pub(crate) position: Option<u64>,
    /// Whether the file's own position follows.
    pub(super) moves_position: bool,
    pub(super) reads: Reads,
}

impl Source {
    pub(super) fn begin(
        src: Borrowed<'_>,
        kind: Kind,
        offset: Option<u64>,
    ) -> std::result::Result<Self, Error> {
        let here = if kind == Kind::File && offset.is_none() { file::position(src) } else { None };
        if offset.is_some() && kind != Kind::File {
            return Err(Error::Unsuitable("offset needs a regular file as the source".into()));
        }
        if offset.is_some_and(|offset| i64::try_from(offset).is_err()) {
            return Err(Error::Unsuitable("offset must be less than 2^63".into()));
        }
        let moves_position = offset.is_none();
        Ok(Self { kind, position: offset.or(here), moves_position, reads: Reads::default() })
    }

    /// Whether a read would report the end, without reading. An error is reported only once, so it is passed on.
    pub(super) fn has_ended(&self, src: Borrowed<'_>) -> Result<bool> {
        match (self.kind, self.position) {
            (Kind::File, Some(position)) => Ok(file::read_at(src, &mut [0], position) == Ok(0)),
            (Kind::Pipe, _) => Ok(pipe::has_hung_up(src)),
            (Kind::StreamSocket, _) => match fd::peek_now(src, &mut [0]) {
                Err(error) if error.would_block() || error.interrupted() => Ok(false),
                answer => answer.map(|seen| seen == 0),
            },
            _ => Ok(false),
        }
    }
}

/// Refuses to relay a pipe or a file to itself: the one would never end, the other would read what it has just written.
pub(super) fn check_different(
    ends: &Ends<'_>,
    source: &Source,
    count: Option<u64>,
    (src, dst): (&Facts, &Facts),
) -> std::result::Result<(), Error> {
    let is_same = src.are_of_what(dst);
    if is_same && src.is_pipe() {
        return Err(Error::Unsuitable("source and destination must not be the same pipe".into()));
    }
    if is_same && ends.destination == Kind::File && !is_apart(ends, source, count, src) {
        return Err(Error::Unsuitable(
            "source and destination are the same file. Pass an offset and a count whose range doesn't overlap the one \
             that is written"
                .into(),
        ));
    }
    Ok(())
}

/// Whether the range that is read from a file and the range that is written to it have no byte in common.
fn is_apart(ends: &Ends<'_>, source: &Source, count: Option<u64>, facts: &Facts) -> bool {
    let to = if fd::appends(ends.dst) { Some(facts.size_bytes()) } else { file::position(ends.dst) };
    match (source.moves_position, source.position, count, to) {
        // Without an offset both may share one position.
        (false, Some(from), Some(count), Some(to)) => {
            from.saturating_add(count) <= to || to.saturating_add(count) <= from
        }
        _ => false,
    }
}
