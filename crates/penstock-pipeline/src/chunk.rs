//! What goes through a pipeline, and what goes wrong with it.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::codec::Undecoded;
use penstock_core::Buffer;
use penstock_core::{Error, Region};

/// A piece of data on its way through a pipeline. A clone shares the bytes, whose memory goes back to the pipeline's pool when
/// the last one is dropped.
#[derive(Clone)]
pub struct Chunk {
    pub(super) bytes: Arc<Buffer>,
    pub(super) name: Arc<OsStr>,
    pub(super) offset: u64,
    pub(super) index: u64,
    pub(super) checksum: Option<Checksum>,
    pub(super) parts: Arc<[String]>,
    /// When each part began and ended its work on it, in nanoseconds since the pipeline began.
    pub(super) times: Vec<(u64, u64)>,
}

/// A checksum of a chunk's bytes, and of which kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32 as zlib, gzip and PNG have it.
    Crc32(u32),
    /// XXH3 with 64 bits and seed 0.
    Xxh3(u64),
}

/// When a part of a pipeline had a chunk. Nanoseconds since the pipeline began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The part's name.
    pub stage: String,
    /// When the part before was done with it; for a source, when it began.
    pub queued_ns: u64,
    /// When the work began.
    pub started_ns: u64,
    /// When the work ended.
    pub ended_ns: u64,
}

impl Chunk {
    /// What it is called: the path of its file as it was given, or what else its source says.
    #[must_use]
    pub fn name(&self) -> &Arc<OsStr> {
        &self.name
    }

    /// Where its first byte lies in the file or stream; that of a stream which was decompressed, in what came out of it.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The how manieth of its source it is, from 0; of a decompressed stream, the how manieth piece that came out.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// What a stage for checksums has found.
    #[must_use]
    pub fn checksum(&self) -> Option<Checksum> {
        self.checksum
    }

    /// When each part of the pipeline had it, in order.
    #[must_use]
    pub fn timings(&self) -> Vec<Timing> {
        let mut queued_ns = self.times.first().map_or(0, |times| times.0);
        let timing = |(stage, &(started_ns, ended_ns)): (&String, &(u64, u64))| {
            let timing = Timing { stage: stage.clone(), queued_ns, started_ns, ended_ns };
            queued_ns = ended_ns;
            timing
        };
        self.parts.iter().zip(&self.times).map(timing).collect()
    }

    /// The memory of its bytes, shared.
    #[must_use]
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.bytes
    }

    /// The same chunk with other bytes, and so without a checksum.
    #[must_use]
    pub fn with_bytes(mut self, bytes: Buffer) -> Self {
        self.bytes = Arc::new(bytes);
        self.checksum = None;
        self
    }

    /// Its bytes to write to; none while a clone shares them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.checksum = None;
        Arc::get_mut(&mut self.bytes).map(|bytes| &mut **bytes)
    }

    /// The memory that it takes up.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn began_ns(&self) -> u64 {
        self.times.first().map_or(0, |times| times.0)
    }

    pub(super) fn queued_ns(&self) -> u64 {
        self.times.last().map_or(0, |times| times.1)
    }

    /// What an error says of it, once it is gone.
    pub(super) fn label(&self) -> Label {
        Label { name: Arc::clone(&self.name), offset: self.offset, index: self.index }
    }
}

/// Which chunk it was.
pub(super) struct Label {
    pub(super) name: Arc<OsStr>,
    pub(super) offset: u64,
    pub(super) index: u64,
}

impl Label {
    /// A failure, so many bytes into the chunk.
    pub(super) fn fault(self, stage: &str, cause: Cause, further: u64) -> ChunkError {
        let Self { name, offset, index } = self;
        ChunkError { name, offset: offset + further, index, stage: stage.into(), cause }
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

/// A chunk's bytes as memory for a [`Writer`](penstock_core::Writer).
pub(super) struct Written(pub(super) Arc<Buffer>);

// SAFETY: the buffer keeps its memory in place until its last owner is gone.
unsafe impl Region for Written {
    fn as_ptr(&self) -> *const u8 {
        Region::as_ptr(&*self.0)
    }
    fn len(&self) -> usize {
        Region::len(&*self.0)
    }
}

/// Why a chunk could not be had or worked on, and which it was.
#[derive(Clone, Debug)]
pub struct ChunkError {
    /// The chunk's name.
    pub name: Arc<OsStr>,
    /// The byte of its file or stream, as the stage that failed had it, at which that showed; the chunk's first where it
    /// cannot be told more closely.
    pub offset: u64,
    /// The chunk's index.
    pub index: u64,
    /// The part of the pipeline that it failed in.
    pub stage: String,
    /// Why.
    pub cause: Cause,
}

/// Why a chunk failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The system refused to give or to take its bytes.
    Io(Errno),
    /// Its bytes are not what they should be.
    Corrupt(Cow<'static, str>),
    /// Its bytes end too early.
    Truncated,
    /// It is larger than the pipeline allows, or than the memory that it was to go to.
    TooLarge {
        /// The largest that was allowed.
        limit_bytes: usize,
    },
    /// A stage or source of the caller's failed.
    Failed(Arc<dyn std::error::Error + Send + Sync>),
    /// A stage or source of the caller's panicked.
    Panicked(String),
}

impl Cause {
    /// A failure of a stage or source of the caller's.
    pub fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Arc::new(error))
    }

    pub(super) fn of_decoding(error: io::Error) -> Self {
        match (error.kind(), Errno::from_io_error(&error)) {
            (_, Some(errno)) => Self::Io(errno),
            (io::ErrorKind::UnexpectedEof, _) => Self::Truncated,
            _ => Self::Corrupt(error.to_string().into()),
        }
    }

    /// With the byte of the compressed chunk at which it showed.
    pub(super) fn of_undecoded(undecoded: Undecoded, limit_bytes: usize) -> (Self, u64) {
        match undecoded {
            Undecoded::At { byte, error } => (Self::of_decoding(error), byte),
            Undecoded::TooLarge => (Self::TooLarge { limit_bytes }, 0),
            Undecoded::NoMemory(errno) => (Self::Io(errno), 0),
        }
    }

    pub(super) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(ToString::to_string);
        Self::Panicked(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    }
}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::Io(errno)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(errno) => errno.fmt(f),
            Self::Corrupt(why) => write!(f, "corrupt: {why}"),
            Self::Truncated => f.write_str("truncated"),
            Self::TooLarge { limit_bytes } => write!(f, "larger than {limit_bytes} bytes"),
            Self::Failed(error) => error.fmt(f),
            Self::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

impl ChunkError {
    /// The failure that an error of a pipeline carries, if it is one of a chunk.
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
    /// The caller's own errors are equal when they say the same.
    fn eq(&self, other: &Self) -> bool {
        let place = |error: &Self| (Arc::clone(&error.name), error.offset, error.index, error.stage.clone());
        place(self) == place(other) && self.cause.to_string() == other.cause.to_string()
    }
}
