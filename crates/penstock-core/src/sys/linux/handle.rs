//! Descriptors, by the names that the other rooms have for them.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd};
pub use std::os::fd::{BorrowedFd as Borrowed, OwnedFd as Handle, RawFd as Number};

/// What has a handle that it can lend: on Linux, whatever is [`AsFd`].
pub trait AsHandle {
    /// Its handle.
    fn as_handle(&self) -> Borrowed<'_>;
}

impl<T: AsFd + ?Sized> AsHandle for T {
    fn as_handle(&self) -> Borrowed<'_> {
        self.as_fd()
    }
}

/// Its number, by which C and Python know it.
#[must_use]
pub fn number(handle: Borrowed<'_>) -> Number {
    handle.as_raw_fd()
}

/// The handle of that number.
///
/// # Safety
///
/// It stays open while the value lives.
#[must_use]
pub unsafe fn borrow<'a>(number: Number) -> Borrowed<'a> {
    // SAFETY: this function's own contract.
    unsafe { Borrowed::borrow_raw(number) }
}

/// Gives the handle up: whoever has its number closes it.
#[must_use]
pub fn into_number(handle: Handle) -> Number {
    handle.into_raw_fd()
}

/// The handle of that number, to be closed.
///
/// # Safety
///
/// It is open, and nobody else closes it.
pub(crate) unsafe fn own(number: Number) -> Handle {
    // SAFETY: this function's own contract.
    unsafe { Handle::from_raw_fd(number) }
}
