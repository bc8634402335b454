//! Handles: what they lead to, and reads that do not wait.

pub(crate) use super::facts::StreamId;
use super::facts::{self, kind};
pub(crate) use super::handle::duplicate;
use super::handle::{Borrowed, Handle};
pub(crate) use super::wait::write as write_or_wait;
use super::{file, pipe};
use crate::sys::error::{Result, SysError};
pub(crate) use crate::sys::kind::{Closing, Kind};
use crate::sys::span::Span;

/// Whether a write to a full pipe waits in its call.
pub(crate) const WRITES_WAIT: bool = true;

/// What a handle leads to that must be open for reading.
pub(crate) fn look_at_source(handle: Borrowed<'_>) -> Result<(Kind, ())> {
    if facts::is_open_for_reading(handle) { Ok((kind(handle)?, ())) } else { Err(SysError::NOT_OPEN) }
}

pub(crate) fn identify(handle: Borrowed<'_>) -> Result<(StreamId, Kind)> {
    let kind = kind(handle)?;
    Ok((StreamId::of(handle, kind), kind))
}

/// As [`identify`]. Fails unless the handle is open for writing.
pub(crate) fn identify_destination(handle: Borrowed<'_>) -> Result<(StreamId, Kind)> {
    if facts::is_open_for_writing(handle) { identify(handle) } else { Err(SysError::NOT_OPEN) }
}

/// The system tells so only at the next write.
pub(crate) fn peer_is_gone(_: Borrowed<'_>) -> bool {
    false
}

/// No write to a pipe is sure not to wait.
pub(crate) unsafe fn write_at_once(_: Borrowed<'_>, _: Kind, _: Span) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) unsafe fn write_if_non_blocking(_: Borrowed<'_>, _: Span) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) unsafe fn write(_: Borrowed<'_>, _: Span) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

/// The numbers of handles are of no account.
pub(crate) fn leave_low_numbers(_: &mut Handle) -> Result<()> {
    Ok(())
}

pub(crate) fn take_low_number(handle: Handle) -> Handle {
    handle
}

pub(crate) fn grow_table() {}

pub(crate) fn reopen_terminal(_: Borrowed<'_>) -> Result<Handle> {
    Err(SysError::UNSUPPORTED)
}

/// CloseHandle reports nothing of what was written.
pub(crate) fn closing(handle: Borrowed<'_>) -> Closing {
    if kind(handle) == Ok(Kind::File) { Closing::Slow } else { Closing::AtOnce }
}

pub(crate) fn closing_of_kind(kind: Kind) -> Option<Closing> {
    (kind == Kind::Pipe).then_some(Closing::AtOnce)
}

pub(crate) fn close(handle: Handle) -> Result<()> {
    drop(handle);
    Ok(())
}

pub(crate) fn close_but_keep_number(_: &mut Handle) {}

/// Reads of one handle that do not wait, but for those of consoles.
#[derive(Debug, Default)]
pub(crate) struct Reads {}

impl Reads {
    /// Reads what is available: [`SysError::WOULD_BLOCK`] when nothing is, and 0 at the end.
    pub(crate) fn now(&self, handle: Borrowed<'_>, kind: Kind, buffer: &mut [u8]) -> Result<usize> {
        match if kind == Kind::Pipe { pipe::unread_bytes(handle) } else { Ok(1) } {
            Ok(0) => Err(SysError::WOULD_BLOCK),
            Err(error) if error.is_end() => Ok(0),
            Err(error) => Err(error),
            Ok(_) => file::read(handle, buffer),
        }
    }
}
