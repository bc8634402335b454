//! The numbers of failures: errno(3).

use rustix::io::Errno;

use crate::sys::error::SysError;

impl SysError {
    /// The call could do nothing without waiting.
    pub(crate) const WOULD_BLOCK: Self = Self::of(Errno::AGAIN);
    /// A signal came first.
    pub(crate) const INTERRUPTED: Self = Self::of(Errno::INTR);
    /// There is no reader.
    pub(crate) const NO_READER: Self = Self::of(Errno::PIPE);
    /// The system does not say what went wrong, or we do not.
    pub(crate) const IO: Self = Self::of(Errno::IO);
    /// The call is not for this.
    pub(crate) const INVALID: Self = Self::of(Errno::INVAL);
    /// There is no memory.
    pub(crate) const NO_MEMORY: Self = Self::of(Errno::NOMEM);
    /// The system does not do that here.
    pub(crate) const UNSUPPORTED: Self = Self::of(Errno::OPNOTSUPP);
    /// Nobody has opened the other side of a FIFO.
    pub(crate) const NO_OTHER_SIDE: Self = Self::of(Errno::NXIO);
    /// A message does not fit.
    pub(crate) const TOO_LONG: Self = Self::of(Errno::MSGSIZE);

    const fn of(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.raw_os_error())
    }

    fn is_any_of(self, failures: &[Errno]) -> bool {
        failures.iter().any(|errno| errno.raw_os_error() == self.raw_os_error())
    }

    /// Whether the peer went away.
    #[must_use]
    pub fn gone(self) -> bool {
        self.is_any_of(&[Errno::PIPE, Errno::CONNRESET, Errno::CONNABORTED, Errno::NOTCONN])
    }

    /// Whether a call is missing or forbidden here, as in sandboxes.
    pub(crate) fn is_refusal(self) -> bool {
        self.is_any_of(&[Errno::NOSYS, Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP])
    }

    /// Whether a call that moves bytes inside the kernel does not support this pair of descriptors (the man pages' `ERRORS`), or is
    /// forbidden here.
    pub(crate) fn is_refusal_of_pair(self) -> bool {
        const OF_PAIR: [Errno; 8] = [
            Errno::INVAL,
            Errno::XDEV,
            Errno::BADF,
            Errno::TXTBSY,
            Errno::SPIPE,
            Errno::OVERFLOW,
            Errno::NOTSOCK,
            Errno::OPNOTSUPP,
        ];
        self.is_refusal() || self.is_any_of(&OF_PAIR)
    }
}

impl From<Errno> for SysError {
    fn from(errno: Errno) -> Self {
        Self::of(errno)
    }
}
