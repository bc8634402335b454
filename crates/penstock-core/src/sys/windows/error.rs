//! The numbers of failures: "System Error Codes" of the Windows documentation.

use std::io;

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_BROKEN_PIPE, ERROR_GEN_FAILURE, ERROR_HANDLE_EOF, ERROR_INVALID_HANDLE,
    ERROR_INVALID_PARAMETER, ERROR_NO_DATA, ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_SUPPORTED,
    ERROR_OPERATION_ABORTED, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Networking::WinSock::{WSAECONNABORTED, WSAECONNRESET, WSAENOTCONN, WSAEWOULDBLOCK};

use crate::sys::error::SysError;

impl SysError {
    /// The call could do nothing without waiting.
    pub(crate) const WOULD_BLOCK: Self = Self::from_raw_os_error(WSAEWOULDBLOCK);
    /// Another thread cancelled the call.
    pub(crate) const INTERRUPTED: Self = Self::of(ERROR_OPERATION_ABORTED);
    /// There is no reader.
    pub(crate) const NO_READER: Self = Self::of(ERROR_NO_DATA);
    /// The system does not say what went wrong, or we do not.
    pub(crate) const IO: Self = Self::of(ERROR_GEN_FAILURE);
    /// The call is not for this.
    pub(crate) const INVALID: Self = Self::of(ERROR_INVALID_PARAMETER);
    /// The handle is not open for this: the number of one that is closed, as on Linux.
    pub(super) const NOT_OPEN: Self = Self::of(ERROR_INVALID_HANDLE);
    pub(super) const DENIED: Self = Self::of(ERROR_ACCESS_DENIED);
    /// The system does not do that here.
    pub(crate) const UNSUPPORTED: Self = Self::of(ERROR_NOT_SUPPORTED);
    /// Nobody has opened the other side of a FIFO.
    pub(crate) const NO_OTHER_SIDE: Self = Self::of(ERROR_PIPE_NOT_CONNECTED);
    /// There is no memory.
    pub(crate) const NO_MEMORY: Self = Self::of(ERROR_NOT_ENOUGH_MEMORY);

    const fn of(number: u32) -> Self {
        Self::from_raw_os_error(number.cast_signed())
    }

    /// The failure of this thread's last call.
    pub(super) fn last() -> Self {
        Self::of_io(io::Error::last_os_error())
    }

    pub(super) fn of_io(error: io::Error) -> Self {
        error.raw_os_error().map_or(Self::IO, Self::from_raw_os_error)
    }

    /// Whether a file has ended, or a pipe that has no writer any more.
    pub(super) fn is_end(self) -> bool {
        [ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF].contains(&self.raw_os_error().cast_unsigned())
    }

    /// Whether the system does not do this, or forbids it.
    pub(crate) fn is_refusal(self) -> bool {
        [ERROR_NOT_SUPPORTED, ERROR_ACCESS_DENIED].contains(&self.raw_os_error().cast_unsigned())
    }

    /// Whether the peer went away.
    #[must_use]
    pub fn gone(self) -> bool {
        const OF_PIPES: [u32; 3] = [ERROR_BROKEN_PIPE, ERROR_NO_DATA, ERROR_PIPE_NOT_CONNECTED];
        const OF_SOCKETS: [i32; 3] = [WSAECONNRESET, WSAECONNABORTED, WSAENOTCONN];
        let number = self.raw_os_error();
        OF_PIPES.contains(&number.cast_unsigned()) || OF_SOCKETS.contains(&number)
    }
}
