//! Handles: what they lead to, and reads that do not wait.

pub(crate) use super::facts::Kind;
use super::facts::kind;
pub(crate) use super::handle::duplicate;
use super::handle::{self, Borrowed, Handle};
use super::{file, pipe};
use crate::sys::error::{Result, SysError};

/// Identifies what a handle leads to: Windows has no number for a pipe, so it is the handle's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    pub(crate) inode: u64,
}

/// How a close behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    AtOnce,
    Brief,
    Reporting,
    Slow,
    Lingering,
}

/// What a handle leads to that must be open for reading.
pub(crate) fn look_at_source(handle: Borrowed<'_>) -> Result<(Kind, ())> {
    let kind = kind(handle)?;
    match if kind == Kind::Pipe { pipe::unread_bytes(handle) } else { Ok(0) } {
        Err(error) if !error.is_end() => Err(error),
        _ => Ok((kind, ())),
    }
}

pub(crate) fn identify(handle: Borrowed<'_>) -> Result<(StreamId, Kind)> {
    Ok((StreamId { inode: handle::number(handle).cast_unsigned() as u64 }, kind(handle)?))
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
