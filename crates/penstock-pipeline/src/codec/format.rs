//! The compressed formats, and how to recognize them.

use std::fmt;
use std::io;

/// A compressed format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// Recognized by the first bytes.
    #[default]
    Auto,
    /// RFC 1950; with the feature `deflate`.
    Zlib,
    /// RFC 1952, any number of members; with the feature `deflate`.
    Gzip,
    /// RFC 8878, any number of frames; with the feature `zstd`.
    Zstd,
    /// LZ4 frames, any number; not the legacy format; with the feature `lz4`.
    Lz4,
}

/// The magic numbers, as `lz4 --version` 1.9 and the formats' descriptions have them.
pub(super) const LZ4_MAGIC: u32 = 0x184D_2204;
pub(super) const ZSTD_MAGIC: u32 = 0xFD2F_B528;
pub(super) const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];

/// Skippable frames of zstd and lz4 have one of sixteen magic numbers.
pub(super) fn is_skippable(magic: u32) -> bool {
    magic & 0xFFFF_FFF0 == 0x184D_2A50
}

impl Codec {
    /// Its name, as in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Zlib => "zlib",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    /// The format of an asset that begins so.
    pub(super) fn of_start(start: &[u8]) -> Option<Self> {
        match start.first_chunk().copied().map(u32::from_le_bytes) {
            Some(LZ4_MAGIC) => return Some(Self::Lz4),
            Some(ZSTD_MAGIC) => return Some(Self::Zstd),
            _ => {}
        }
        match start {
            _ if start.starts_with(&GZIP_MAGIC) => Some(Self::Gzip),
            // RFC 1950, 2.2: method 8, a window of up to 32 KiB, and a multiple of 31.
            [method, flags, ..]
                if method & 0x0F == 8
                    && method >> 4 <= 7
                    && u16::from_be_bytes([*method, *flags]) % 31 == 0 =>
            {
                Some(Self::Zlib)
            }
            _ => None,
        }
    }
}

pub(crate) fn corrupt(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

pub(crate) fn truncated() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// Decompressing a stream takes a larger window than is allowed.
#[derive(Debug)]
pub(crate) struct WindowTooLarge {
    pub(crate) limit_bytes: usize,
}

impl fmt::Display for WindowTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the window is larger than {} bytes. Raise max_chunk_bytes", self.limit_bytes)
    }
}

impl std::error::Error for WindowTooLarge {}
