//! Chunks, and why they fail.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::Arc;

use penstock_core::engine::SysError;
use penstock_core::{Buffer, Error};

use crate::codec::WindowTooLarge;

/// A piece of data on its way through a pipeline. A clone shares the bytes. Their memory returns to the pipeline's pool
/// when the last clone is dropped.
#[derive(Clone)]
pub struct Chunk {
    pub(super) bytes: Arc<Buffer>,
    pub(super) name: Arc<OsStr>,
    pub(super) offset: u64,
    pub(super) index: u64,
    pub(super) checksum: Option<Checksum>,
    /// Its place in the order of the part that gave it.
    pub(super) place: u64,
    pub(super) parts: Arc<[String]>,
    /// Start and end of each part's work on it, in nanoseconds since the pipeline began.
    pub(super) times: Vec<(u64, u64)>,
}

/// A checksum of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-32 as zlib, gzip and PNG have it.
    Crc32(u32),
    /// XXH3 with 64 bits and seed 0.
    Xxh3(u64),
}

impl Checksum {
    /// Its number, of 32 or 64 bits.
    #[must_use]
    pub fn value(self) -> u64 {
        match self {
            Self::Crc32(sum) => u64::from(sum),
            Self::Xxh3(sum) => sum,
        }
    }
}

/// When a part of a pipeline worked on a chunk, in nanoseconds since the pipeline began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The part's name.
    pub stage: String,
    /// When the part before had finished with it; for a source, when it began.
    pub queued_ns: u64,
    /// When the work began.
    pub started_ns: u64,
    /// When the work ended.
    pub ended_ns: u64,
}

impl Chunk {
    /// Its name: the path of its file as it was given, or what its source sets.
    #[must_use]
    pub fn name(&self) -> &Arc<OsStr> {
        &self.name
    }

    /// Offset of its first byte in the file or stream; for a decompressed stream, in the output.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its index in the source, from 0; for a decompressed stream, the index of the piece in the output.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The checksum, if a stage computed one.
    #[must_use]
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    /// When each part of the pipeline worked on it, in order.
    #[must_use]
    pub fn timings(&self) -> Vec<Timing> {
        let mut queued_ns = self.began_ns();
        let timing = |(stage, &(started_ns, ended_ns)): (&String, &(u64, u64))| {
            let timing = Timing { stage: stage.clone(), queued_ns, started_ns, ended_ns };
            queued_ns = ended_ns;
            timing
        };
        self.parts.iter().zip(&self.times).map(timing).collect()
    }

    /// Its size in bytes. Unlike the slice's, it forms no reference to the bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Its memory, shared.
    #[must_use]
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.bytes
    }

    /// The same chunk with other bytes, without a checksum.
    #[must_use]
    pub fn with_bytes(mut self, bytes: Buffer) -> Self {
        self.bytes = Arc::new(bytes);
        self.checksum = None;
        self
    }

    pub(super) fn began_ns(&self) -> u64 {
        self.times.first().map_or(0, |times| times.0)
    }

    pub(super) fn queued_ns(&self) -> u64 {
        self.times.last().map_or(0, |times| times.1)
    }
}

impl std::ops::Deref for Chunk {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("name", &self.name)
            .field("offset", &self.offset)
            .field("index", &self.index)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Why a chunk failed, and which one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChunkError {
    /// The chunk's name.
    pub name: Arc<OsStr>,
    /// Byte of its file or stream at which the failure occurred, as seen by the failing stage; the chunk's first byte
    /// if it is not known more precisely.
    pub offset: u64,
    /// The chunk's index.
    pub index: u64,
    /// The part of the pipeline that failed.
    pub stage: String,
    /// The cause.
    pub cause: Cause,
}

/// Why a chunk failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The system reported an error when its bytes were read or its memory was taken.
    Io {
        /// Its error number.
        os_error: i32,
    },
    /// Its bytes are invalid.
    Corrupt(Cow<'static, str>),
    /// Its bytes end too early.
    Truncated,
    /// It is larger than the pipeline allows, or than the memory for it.
    TooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// It is part of a stream whose decompression needs a larger window than the pipeline allows.
    WindowTooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// A stage or source of the caller's failed, or its codec is not built in.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// A stage or source of the caller's panicked.
    Panicked(String),
}

impl Cause {
    /// Wraps an error of a stage or source of the caller's.
    pub fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(error))
    }

    pub(super) fn of_system(errno: SysError) -> Self {
        Self::Io { os_error: errno.raw_os_error() }
    }

    pub(super) fn of_decoding(error: io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (_, Some(os_error)) => Self::Io { os_error },
            (io::ErrorKind::UnexpectedEof, _) => Self::Truncated,
            // Of `format_of` alone: what is decompressed is memory or `Pieces`, which fails with `Other`.
            (io::ErrorKind::Unsupported, _) => Self::failed(error),
            _ => match error.downcast() {
                Ok(WindowTooLarge { limit_bytes }) => Self::WindowTooLarge { limit_bytes },
                Err(error) => Self::Corrupt(error.to_string().into()),
            },
        }
    }

    pub(super) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        Self::Panicked(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }
}

/// A failure of the system that concerns no stream is [`Cause::Io`], any other error [`Cause::Failed`].
impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { os_error, bytes_delivered: 0, bytes_lost: 0 } => Self::Io { os_error },
            error => Self::failed(error),
        }
    }
}

/// A failure of the system is [`Cause::Io`], any other error [`Cause::Failed`].
impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::failed(error), |os_error| Self::Io { os_error })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { os_error } => io::Error::from_raw_os_error(*os_error).fmt(f),
            Self::Corrupt(why) => write!(f, "corrupt: {why}"),
            Self::Truncated => f.write_str("the chunk is truncated"),
            Self::TooLarge { limit_bytes } => {
                write!(f, "the chunk is larger than {limit_bytes} bytes. Raise max_chunk_bytes")
            }
            Self::WindowTooLarge { limit_bytes } => WindowTooLarge { limit_bytes: *limit_bytes }.fmt(f),
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

impl ChunkError {
    /// The chunk's failure in an error of a pipeline; none for other errors.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Custom(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, byte {} ({}): {}", self.name.display(), self.offset, self.stage, self.cause)
    }
}

impl std::error::Error for ChunkError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Failed(error) => Some(&**error),
            _ => None,
        }
    }
}

impl PartialEq for ChunkError {
    /// Two of the caller's errors are equal if their messages are.
    fn eq(&self, other: &Self) -> bool {
        let place = |error: &Self| (Arc::clone(&error.name), error.offset, error.index, error.stage.clone());
        place(self) == place(other) && self.cause.to_string() == other.cause.to_string()
    }
}
