//! Handles, by the names that the other rooms have for them.

use std::os::windows::io::{self, AsRawHandle, FromRawHandle, IntoRawHandle};
pub use std::os::windows::io::{BorrowedHandle as Borrowed, OwnedHandle as Handle};

use crate::sys::error::{Result, SysError};

/// A handle as a number, by which C knows it.
pub type Number = isize;

/// What has a handle that it can lend: on Windows, whatever has [`AsHandle`](io::AsHandle) of `std`.
pub trait AsHandle {
    /// Its handle.
    fn as_handle(&self) -> Borrowed<'_>;
}

impl<T: io::AsHandle + ?Sized> AsHandle for T {
    fn as_handle(&self) -> Borrowed<'_> {
        io::AsHandle::as_handle(self)
    }
}

/// Its number.
#[must_use]
pub fn number(handle: Borrowed<'_>) -> Number {
    handle.as_raw_handle() as Number
}

/// The handle of that number.
///
/// # Safety
///
/// It stays open while the value lives.
#[must_use]
pub unsafe fn borrow<'a>(number: Number) -> Borrowed<'a> {
    // SAFETY: this function's own contract.
    unsafe { Borrowed::borrow_raw(number as *mut _) }
}

/// Gives the handle up: whoever has its number closes it.
#[must_use]
pub fn into_number(handle: Handle) -> Number {
    handle.into_raw_handle() as Number
}

/// The handle of that number, to be closed.
///
/// # Safety
///
/// It is open, and nobody else closes it.
pub(crate) unsafe fn own(number: Number) -> Handle {
    // SAFETY: this function's own contract.
    unsafe { Handle::from_raw_handle(number as *mut _) }
}

/// For where [`AsHandle`] and that of `std` are both in sight.
pub(super) fn lend(handle: &Handle) -> Borrowed<'_> {
    io::AsHandle::as_handle(handle)
}

/// Duplicates the handle. No program inherits it.
pub(crate) fn duplicate(handle: Borrowed<'_>) -> Result<Handle> {
    handle.try_clone_to_owned().map_err(SysError::of_io)
}
