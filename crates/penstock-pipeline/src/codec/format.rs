//! The compressed formats, and how each is recognised.

use std::io;

/// A compressed format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// Whichever of the others the first bytes say.
    #[default]
    Auto,
    /// RFC 1950.
    Zlib,
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames.
    Zstd,
    /// LZ4 frames, any number; not the legacy format.
    Lz4,
}

/// What `lz4 --version` 1.9 and the format's description have as magic numbers.
pub(super) const LZ4_MAGIC: u32 = 0x184D_2204;
pub(super) const ZSTD_MAGIC: u32 = 0xFD2F_B528;
pub(super) const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];

/// Frames that both zstd and lz4 skip have one of sixteen numbers.
pub(super) fn is_skippable(magic: u32) -> bool {
    magic & 0xFFFF_FFF0 == 0x184D_2A50
}

impl Codec {
    /// Its name, as Python has it.
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

    /// The format that an asset begins like. A skippable frame is taken for zstd's, whose tool makes them.
    pub(crate) fn of_start(start: &[u8]) -> Option<Self> {
        if start.starts_with(&GZIP_MAGIC) {
            return Some(Self::Gzip);
        }
        if let Some(magic) = start.first_chunk().copied().map(u32::from_le_bytes) {
            if magic == ZSTD_MAGIC || is_skippable(magic) {
                return Some(Self::Zstd);
            }
            if magic == LZ4_MAGIC {
                return Some(Self::Lz4);
            }
        }
        match start {
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

    /// Itself, or what `Auto` comes to for such a start.
    pub(crate) fn settled(self, start: &[u8]) -> io::Result<Self> {
        match self {
            Self::Auto if start.is_empty() => Err(truncated()),
            Self::Auto => {
                Self::of_start(start).ok_or_else(|| corrupt("it is neither zlib, gzip, zstd nor lz4"))
            }
            codec => Ok(codec),
        }
    }
}

pub(crate) fn corrupt(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

pub(crate) fn truncated() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
