//! Errors, told apart by whose fault they are.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::sys::SysError;

/// Why a write, a wait or a stream failed. Byte counts are those of the whole stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The handle was used after its `close` or `abort`, or what it stood for has ended or was taken.
    Closed,
    /// It was cancelled, by `abort` or `cancel`, before its end.
    Aborted {
        /// Accepted bytes that will not arrive.
        bytes_lost: u64,
    },
    /// The peer went away.
    Broken {
        /// The system's error number, usually `EPIPE` or `ECONNRESET`.
        os_error: i32,
        /// Bytes that the reader had taken (pipes) or the kernel had accepted (all else).
        bytes_delivered: u64,
        /// Accepted bytes that will not arrive.
        bytes_lost: u64,
    },
    /// The peer is there, and neither reads nor writes in time. Nothing is lost yet.
    Stalled {
        /// How long the call waited.
        waited: Duration,
        /// Bytes that were not delivered yet.
        bytes_pending: u64,
    },
    /// A stream of frames ended in the middle of a frame.
    Truncated {
        /// Whole frames before it.
        frames: u64,
        /// The size of a frame in the stream.
        frame_bytes: usize,
        /// Bytes of the incomplete frame.
        bytes_over: usize,
    },
    /// Any other failure of the operating system.
    Io {
        /// The system's error number.
        os_error: i32,
        /// Bytes that the kernel had accepted.
        bytes_delivered: u64,
        /// Accepted bytes that will not arrive.
        bytes_lost: u64,
    },
    /// The system refused a thread, for lack of memory or by a limit.
    NoThread {
        /// The system's error number, usually `EAGAIN`.
        os_error: i32,
        /// Bytes of the stream that the kernel had accepted; 0 without a stream.
        bytes_delivered: u64,
        /// Accepted bytes that will not arrive.
        bytes_lost: u64,
    },
    /// An argument is wrong, or the arguments do not suit each other; nothing was done.
    Unsuitable(Cow<'static, str>),
    /// A failure of something built upon this crate, such as a stage of a pipeline.
    Custom(CustomError),
    /// It was made before a `fork`, by the parent process, and can only end there.
    Forked,
}

impl Error {
    /// A failure of the system that concerns no stream, by its error number: [`Error::Io`] with nothing delivered or lost.
    #[must_use]
    pub fn from_raw_os_error(os_error: i32) -> Self {
        Self::Io { os_error, bytes_delivered: 0, bytes_lost: 0 }
    }

    pub(crate) fn of_system(errno: SysError) -> Self {
        Self::from_raw_os_error(errno.raw_os_error())
    }

    /// A failure of the stream itself, classified by its error number.
    pub(crate) fn of_stream(errno: SysError, bytes_delivered: u64, bytes_lost: u64) -> Self {
        let os_error = errno.raw_os_error();
        match errno.gone() {
            true => Self::Broken { os_error, bytes_delivered, bytes_lost },
            false => Self::Io { os_error, bytes_delivered, bytes_lost },
        }
    }

    /// Refuses options of 0, by their names.
    pub(crate) fn refuse_zeros<const N: usize>(options: [(&str, Option<usize>); N]) -> Result<(), Self> {
        match options.into_iter().find(|(_, value)| *value == Some(0)) {
            Some((name, _)) => Err(Self::Unsuitable(format!("{name} must be at least 1").into())),
            None => Ok(()),
        }
    }

    /// Wraps an error of something built upon this crate.
    pub fn custom(error: Arc<impl std::error::Error + Send + Sync + 'static>) -> Self {
        Self::Custom(CustomError(error))
    }
}

/// An error of a type that this crate does not know. Two are equal if their messages are.
#[derive(Clone, Debug)]
pub struct CustomError(Arc<dyn std::error::Error + Send + Sync>);

impl CustomError {
    /// The error itself, if it has that type.
    #[must_use]
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl PartialEq for CustomError {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

/// Keeps the error with its byte counts: `get_ref` and `downcast` return it. The kind is that of the error number.
///
/// A failure of the system with nothing delivered or lost becomes the bare error number, for `raw_os_error`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Broken { os_error, bytes_delivered: 0, bytes_lost: 0 }
            | Error::Io { os_error, bytes_delivered: 0, bytes_lost: 0 }
            | Error::NoThread { os_error, bytes_delivered: 0, bytes_lost: 0 } => {
                return Self::from_raw_os_error(os_error);
            }
            Error::Broken { os_error, .. }
            | Error::Io { os_error, .. }
            | Error::NoThread { os_error, .. } => Self::from_raw_os_error(os_error).kind(),
            Error::Stalled { .. } => io::ErrorKind::TimedOut,
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::Unsuitable(_) => io::ErrorKind::InvalidInput,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the stream is closed"),
            Self::Aborted { bytes_lost } => {
                write!(f, "the stream was aborted. {bytes_lost} bytes were lost")
            }
            Self::Broken { bytes_delivered, bytes_lost, .. } => {
                write!(
                    f,
                    "the reader went away. {bytes_delivered} bytes were delivered, {bytes_lost} were lost"
                )
            }
            Self::Stalled { waited, bytes_pending } => {
                write!(f, "timed out after {:.3} s. {bytes_pending} bytes are pending", waited.as_secs_f64())
            }
            Self::Truncated { frames, frame_bytes, bytes_over } => write!(
                f,
                "the stream ended inside a frame, after {frames} whole frames and {bytes_over} of {frame_bytes} bytes"
            ),
            Self::Io { os_error, bytes_delivered, bytes_lost } => {
                io::Error::from_raw_os_error(*os_error).fmt(f)?;
                match (bytes_delivered, bytes_lost) {
                    (0, 0) => Ok(()),
                    _ => write!(f, ". {bytes_delivered} bytes were delivered, {bytes_lost} were lost"),
                }
            }
            Self::NoThread { os_error, bytes_delivered, bytes_lost } => {
                write!(f, "no thread could be started: {}", io::Error::from_raw_os_error(*os_error))?;
                match bytes_lost {
                    0 => Ok(()),
                    _ => write!(f, ". {bytes_delivered} bytes were delivered, {bytes_lost} were lost"),
                }
            }
            Self::Unsuitable(why) => f.write_str(why),
            Self::Custom(error) => error.0.fmt(f),
            Self::Forked => f.write_str("the stream belongs to the parent process"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Custom(error) => error.0.source(),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_io_error_has_the_error_and_its_kind_or_the_number_alone() {
        let of = |bytes_delivered, bytes_lost| {
            [SysError::NO_READER, SysError::INVALID, SysError::WOULD_BLOCK].into_iter().flat_map(
                move |errno| {
                    let stream = Error::of_stream(errno, bytes_delivered, bytes_lost);
                    [stream, Error::NoThread { os_error: errno.raw_os_error(), bytes_delivered, bytes_lost }]
                        .map(|error| (error, errno))
                },
            )
        };
        for (error, errno) in of(0, 0) {
            assert_eq!(io::Error::from(error).raw_os_error(), Some(errno.raw_os_error()));
        }
        for (error, errno) in of(1, 0).chain(of(0, 2)).chain(of(1, 2)) {
            let converted = io::Error::from(error.clone());
            assert_eq!(converted.kind(), io::Error::from(errno).kind());
            assert_eq!(converted.downcast::<Error>().unwrap(), error);
        }
        for (error, kind) in [
            (Error::Stalled { waited: Duration::ZERO, bytes_pending: 3 }, io::ErrorKind::TimedOut),
            (Error::Truncated { frames: 1, frame_bytes: 2, bytes_over: 1 }, io::ErrorKind::UnexpectedEof),
            (Error::Unsuitable("why".into()), io::ErrorKind::InvalidInput),
            (Error::Closed, io::ErrorKind::Other),
        ] {
            let converted = io::Error::from(error.clone());
            assert_eq!(converted.kind(), kind);
            assert_eq!(converted.downcast::<Error>().unwrap(), error);
        }
    }
}
