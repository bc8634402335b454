//! What a handle leads to.

use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Storage::FileSystem::{FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType};
use windows_sys::Win32::System::Pipes::GetNamedPipeInfo;

use super::handle::Borrowed;
use crate::sys::error::{Result, SysError};

/// Kinds of sources and destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pipe,
    /// A file: a read never waits for a writer.
    File,
    /// Consoles and devices.
    Other,
}

impl Kind {
    /// Whether each write stays a message.
    pub(crate) fn keeps_messages(self) -> bool {
        false
    }
}

/// What a handle leads to. Sockets are refused: their calls are others.
pub(super) fn kind(handle: Borrowed<'_>) -> Result<Kind> {
    // SAFETY: the handle is open.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => Ok(Kind::File),
        FILE_TYPE_CHAR => Ok(Kind::Other),
        FILE_TYPE_PIPE if is_pipe(handle) => Ok(Kind::Pipe),
        _ => Err(SysError::UNSUPPORTED),
    }
}

fn is_pipe(handle: Borrowed<'_>) -> bool {
    let none = ptr::null_mut();
    // SAFETY: the handle is open, and nothing is asked for.
    unsafe { GetNamedPipeInfo(handle.as_raw_handle(), none, none, none, none) != 0 }
}
