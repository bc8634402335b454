//! Files by their path, and reads that nobody has to be waited for.

use std::fs::File;
use std::os::windows::fs::FileExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Storage::FileSystem::ReadFile;

use super::facts;
use super::handle::{self, Borrowed, Handle};
use crate::sys::error::{Result, SysError};
use crate::sys::kind::Kind;

/// Opens a regular file, and returns its size, too.
pub(crate) fn open_to_read(path: &Path) -> Result<(Handle, u64)> {
    let file = File::open(path).map_err(SysError::of_io)?;
    let size_bytes = file.metadata().map_err(SysError::of_io)?.len();
    let file = Handle::from(file);
    if facts::kind(handle::lend(&file))? == Kind::File {
        Ok((file, size_bytes))
    } else {
        Err(SysError::INVALID)
    }
}

/// Windows takes this advice only when it opens a file.
pub(crate) fn advise_sequential(_: Borrowed<'_>) {}

/// Reads from the file's position, or what a pipe has: 0 at the end.
pub(crate) fn read(file: Borrowed<'_>, buffer: &mut [u8]) -> Result<usize> {
    let (mut taken, most) = (0, u32::try_from(buffer.len()).unwrap_or(u32::MAX));
    // SAFETY: the buffer is borrowed mutably until the call returns, which writes at most so many bytes.
    let done =
        unsafe { ReadFile(file.as_raw_handle(), buffer.as_mut_ptr(), most, &raw mut taken, ptr::null_mut()) };
    match SysError::last() {
        _ if done != 0 => Ok(taken as usize),
        error if error.is_end() => Ok(0),
        error => Err(error),
    }
}

/// Reads from a position: 0 at the end. It moves the file's position, unlike pread(2).
pub(crate) fn read_at(file: Borrowed<'_>, buffer: &mut [u8], position: u64) -> Result<usize> {
    let own = File::from(handle::duplicate(file)?);
    own.seek_read(buffer, position).map_err(SysError::of_io)
}
