//! What a system call reports when it fails.

use std::{fmt, io};

/// A failure of the system, by its number. What the number means, the platform says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SysError(i32);

/// The answer of a system call.
pub(crate) type Result<T> = std::result::Result<T, SysError>;

impl SysError {
    /// The failure of that number.
    #[must_use]
    pub const fn from_raw_os_error(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn raw_os_error(self) -> i32 {
        self.0
    }

    /// Whether the call could do nothing without waiting.
    #[must_use]
    pub fn would_block(self) -> bool {
        self == Self::WOULD_BLOCK
    }

    /// Whether a signal came first.
    #[must_use]
    pub fn interrupted(self) -> bool {
        self == Self::INTERRUPTED
    }
}

impl fmt::Debug for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SysError({}: {self})", self.0)
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from(*self).fmt(f)
    }
}

impl From<SysError> for io::Error {
    fn from(error: SysError) -> Self {
        Self::from_raw_os_error(error.0)
    }
}
