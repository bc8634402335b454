//! What a handle leads to.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Wdk::Foundation::{NtQueryObject, ObjectBasicInformation};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ACCESS_RIGHTS, FILE_APPEND_DATA, FILE_READ_DATA, FILE_TYPE_CHAR,
    FILE_TYPE_DISK, FILE_TYPE_PIPE, FILE_WRITE_DATA, FileNameInfo, GetFileInformationByHandle,
    GetFileInformationByHandleEx, GetFileType,
};
use windows_sys::Win32::System::Pipes::GetNamedPipeInfo;
use windows_sys::Win32::System::WindowsProgramming::PUBLIC_OBJECT_BASIC_INFORMATION;

use super::handle::{self, Borrowed};
use crate::sys::error::{Result, SysError};
use crate::sys::kind::Kind;

/// What a handle leads to. Sockets are refused: their calls are others.
pub(super) fn kind(handle: Borrowed<'_>) -> Result<Kind> {
    // SAFETY: the handle is open.
    match unsafe { GetFileType(handle.as_raw_handle()) } {
        FILE_TYPE_DISK => Ok(Kind::File),
        FILE_TYPE_CHAR => Ok(Kind::Other),
        FILE_TYPE_PIPE if instances(handle).is_some() => Ok(Kind::Pipe),
        _ => Err(SysError::UNSUPPORTED),
    }
}

/// How many pipes may have the name of this one; none if it is no pipe.
fn instances(handle: Borrowed<'_>) -> Option<u32> {
    let (none, mut most) = (ptr::null_mut(), 0);
    // SAFETY: the handle is open, and the number is written during the call.
    let done = unsafe { GetNamedPipeInfo(handle.as_raw_handle(), none, none, none, &raw mut most) };
    // Of what may only be written, a pipe denies it, and a socket doesn't know the question.
    (done != 0 || SysError::last() == SysError::DENIED).then_some(most)
}

/// Identifies what a handle leads to: equal for all handles of one pipe or file.
///
/// Every pipe has a name, also one that CreatePipe has made. Where several may have that name, and for devices, it is the handle's
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamId {
    pub(crate) inode: u64,
    device: Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Device {
    Disk(u32),
    Pipes,
    Handles(Kind),
}

impl StreamId {
    pub(super) fn of(handle: Borrowed<'_>, kind: Kind) -> Self {
        let known = match kind {
            Kind::File => file_index(handle).map(|(volume, index)| (index, Device::Disk(volume))),
            Kind::Pipe if instances(handle) == Some(1) => name_hash(handle).map(|hash| (hash, Device::Pipes)),
            _ => None,
        };
        let number = || (handle::number(handle).cast_unsigned() as u64, Device::Handles(kind));
        let (inode, device) = known.unwrap_or_else(number);
        Self { inode, device }
    }

    /// There are no eventfds.
    pub(crate) fn is_of_eventfd(&self) -> bool {
        false
    }
}

/// The volume of a file, and its number there.
fn file_index(file: Borrowed<'_>) -> Option<(u32, u64)> {
    let mut found = MaybeUninit::<BY_HANDLE_FILE_INFORMATION>::uninit();
    // SAFETY: the handle is open, and the struct is written if the call succeeds.
    let found = unsafe {
        (GetFileInformationByHandle(file.as_raw_handle(), found.as_mut_ptr()) != 0)
            .then(|| found.assume_init())
    }?;
    Some((found.dwVolumeSerialNumber, u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow)))
}

/// A number for the pipe's name, which begins with its length.
fn name_hash(pipe: Borrowed<'_>) -> Option<u64> {
    let mut name = [0_u32; 256];
    let bytes = size_of_val(&name) as u32;
    // SAFETY: the handle is open, and at most so many bytes are written.
    let done = unsafe {
        GetFileInformationByHandleEx(pipe.as_raw_handle(), FileNameInfo, name.as_mut_ptr().cast(), bytes)
    };
    if done == 0 || name[0] == 0 {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Some(hasher.finish())
}

/// Whether bytes may be read from it.
pub(super) fn is_open_for_reading(handle: Borrowed<'_>) -> bool {
    grants(handle, FILE_READ_DATA)
}

/// Whether bytes may be written to it.
pub(super) fn is_open_for_writing(handle: Borrowed<'_>) -> bool {
    grants(handle, FILE_WRITE_DATA | FILE_APPEND_DATA)
}

/// Whether it has one of the rights, or the system doesn't tell.
fn grants(handle: Borrowed<'_>, rights: FILE_ACCESS_RIGHTS) -> bool {
    let mut basics = MaybeUninit::<PUBLIC_OBJECT_BASIC_INFORMATION>::zeroed();
    let bytes = size_of_val(&basics) as u32;
    // SAFETY: the handle is open; the struct, for which zeros are values, is written during the call.
    let (status, basics) = unsafe {
        let status = NtQueryObject(
            handle.as_raw_handle(),
            ObjectBasicInformation,
            basics.as_mut_ptr().cast(),
            bytes,
            ptr::null_mut(),
        );
        (status, basics.assume_init())
    };
    status < 0 || basics.GrantedAccess & rights != 0
}
