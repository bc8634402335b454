//! Pipes: their content, and what Windows does not do with them.

use std::collections::HashSet;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::System::Pipes::PeekNamedPipe;

use super::handle::{Borrowed, Handle};
use crate::sys::error::{Result, SysError};
use crate::sys::kind::Kind;
use crate::sys::span::Span;

/// The size of a pipe by default. No write is sure to arrive as a whole.
pub(crate) const ATOMIC_BYTES: usize = 4096;

/// Windows tells no pipe's size.
///
/// # Errors
///
/// Always.
pub fn capacity(_: Borrowed<'_>) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn set_capacity(_: Borrowed<'_>, _: usize) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

/// Bytes in the pipe that its reader has not taken, by its reading end.
pub(crate) fn unread_bytes(reader: Borrowed<'_>) -> Result<u64> {
    let (none, mut unread) = (ptr::null_mut::<u32>(), 0);
    // SAFETY: the number is written during the call, and nothing else is asked for.
    let done = unsafe { PeekNamedPipe(reader.as_raw_handle(), none.cast(), 0, none, &raw mut unread, none) };
    if done == 0 { Err(SysError::last()) } else { Ok(unread.into()) }
}

/// A pipe has a writer from the beginning.
pub(crate) fn awaits_first_writer(_: Borrowed<'_>, _: Kind) -> bool {
    false
}

/// Creates a pipe: its reading and its writing end.
pub(crate) fn make() -> Result<[Handle; 2]> {
    let (reader, writer) = io::pipe().map_err(SysError::of_io)?;
    Ok([reader.into(), writer.into()])
}

pub(crate) fn make_non_blocking() -> Result<[Handle; 2]> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn discard(_: Borrowed<'_>) -> Result<u64> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn splice(_: Borrowed<'_>, _: Option<&mut u64>, _: Borrowed<'_>, _: usize) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn tee(_: Borrowed<'_>, _: Borrowed<'_>, _: usize) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) unsafe fn vmsplice(_: Borrowed<'_>, _: Span) -> Result<usize> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn cannot_pin(_: SysError) -> bool {
    false
}

pub(crate) fn is_anonymous(_: Borrowed<'_>) -> bool {
    true
}

pub(crate) fn reopen_reader(_: Borrowed<'_>) -> Result<Handle> {
    Err(SysError::UNSUPPORTED)
}

pub(crate) fn user_soft_bytes() -> Option<usize> {
    None
}

pub(crate) fn is_above_limits() -> bool {
    false
}

pub(crate) fn open_inodes() -> Option<HashSet<u64>> {
    None
}
