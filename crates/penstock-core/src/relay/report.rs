//! The options of a relay, and its results.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::error::Error;

/// What a relay is asked for. The default is everything up to the end of the source, from its position, for as long as it
/// takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayOptions {
    /// Bytes to move at most.
    pub count: Option<u64>,
    /// Where in a source file to begin; the file's position then stays where it is.
    pub offset: Option<u64>,
    /// How long to go on without a byte moved, whichever side it is that does nothing.
    pub timeout: Option<Duration>,
    /// Which methods may be used.
    pub mode: RelayMode,
}

setters!(RelayOptions: count: u64, offset: u64, timeout: Duration, mode: RelayMode);

/// Which methods a relay may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayMode {
    /// The best that the pair allows.
    #[default]
    Auto,
    /// read(2) and write(2) only: what was moved is then independent of the source. (Pages of a file that are spliced into a
    /// pipe stay the file's, so that a reader sees what is written to the file before it reads.)
    ReadWrite,
}

/// How bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// splice(2): one end is a pipe.
    Splice,
    /// splice(2) into a pipe of our own, and out of it.
    SpliceThroughPipe,
    /// copy_file_range(2).
    CopyFileRange,
    /// sendfile(2).
    SendFile,
    /// read(2) and write(2).
    ReadWrite,
}

impl Method {
    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::SpliceThroughPipe => "splice-through-pipe",
            Self::CopyFileRange => "copy_file_range",
            Self::SendFile => "sendfile",
            Self::ReadWrite => "read-write",
        }
    }
}

/// Why a method was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MethodReason {
    /// The mode asks for it.
    Asked,
    /// A pipe is at one end, or at both.
    APipe,
    /// The source is a file.
    SourceIsFile,
    /// Both are files.
    BothAreFiles,
    /// Neither is a pipe or a source file.
    NeitherIsPipe,
    /// The destination was opened with `O_APPEND`, to which the kernel refuses to splice.
    Appends,
    /// One of them keeps messages apart, which splicing would join.
    KeepsMessages,
    /// The destination is a socket into which the kernel would splice no piece without waiting in its middle.
    WouldWait,
    /// The system refused the better methods.
    Refused {
        /// Its error number, for the last of them.
        os_error: i32,
    },
    /// copy_file_range(2) saw no bytes where a read(2) may see some, as in /proc.
    NothingToCopy,
}

impl fmt::Display for MethodReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked for",
            Self::APipe => "there is a pipe at one end",
            Self::SourceIsFile => "the source is a file",
            Self::BothAreFiles => "both are files",
            Self::NeitherIsPipe => "neither end is a pipe",
            Self::Appends => "the destination is in append mode, which the system can't splice to",
            Self::KeepsMessages => "one end keeps messages apart",
            Self::WouldWait => {
                "the destination's send buffer is too small to be spliced to, or of unknown size"
            }
            Self::Refused { os_error } => {
                let why = io::Error::from_raw_os_error(*os_error);
                return write!(f, "the system refused the better methods: {why}");
            }
            Self::NothingToCopy => "the file reports a size of 0, but may contain bytes, as in /proc",
        })
    }
}

/// What a relay has moved, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayReport {
    /// Bytes that the destination has taken.
    pub bytes: u64,
    /// How they were moved; the last method, if there was more than one.
    pub method: Method,
    /// Why that method was used.
    pub reason: MethodReason,
    /// Whether the source has ended, and not only the count.
    pub source_ended: bool,
}

/// Why a relay failed, and how far it had come.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RelayError {
    /// The failure.
    pub error: Error,
    /// What had been moved by then.
    pub relayed: RelayReport,
    /// Bytes taken from the source that could not be put back and have not reached the destination.
    pub bytes_held: u64,
}

impl RelayError {
    /// Bytes that arrived. If the destination is a pipe whose reader is gone, only those that it had read.
    #[must_use]
    pub fn bytes_delivered(&self) -> u64 {
        match self.error {
            Error::Broken { bytes_delivered, .. } | Error::Io { bytes_delivered, .. } => bytes_delivered,
            _ => self.relayed.bytes,
        }
    }

    /// Bytes that have left the source and will not arrive.
    #[must_use]
    pub fn bytes_lost(&self) -> u64 {
        match self.error {
            Error::Broken { bytes_lost, .. } | Error::Io { bytes_lost, .. } => bytes_lost,
            _ => self.bytes_held,
        }
    }
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (after {} bytes were relayed)", self.error, self.relayed.bytes)
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<RelayError> for Error {
    fn from(error: RelayError) -> Self {
        error.error
    }
}

/// Keeps the error with what had been moved: `downcast` returns the `RelayError`.
///
/// A failure of the system before the first byte becomes the bare error number, as that of an [`Error`] does.
impl From<RelayError> for io::Error {
    fn from(error: RelayError) -> Self {
        let plain = Self::from(error.error.clone());
        if plain.raw_os_error().is_some() { plain } else { Self::new(plain.kind(), error) }
    }
}

impl RelayError {
    pub(super) fn before(error: Error, options: &RelayOptions) -> Self {
        let method = if options.mode == RelayMode::ReadWrite { Method::ReadWrite } else { Method::Splice };
        let relayed = RelayReport { bytes: 0, method, reason: MethodReason::Asked, source_ended: false };
        Self { error, relayed, bytes_held: 0 }
    }
}
