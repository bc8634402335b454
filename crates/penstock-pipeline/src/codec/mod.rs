//! Compressed formats: whole assets at once, and streams of any length.
//!
//! What follows the first member of an asset is treated as each format's own tool does:
//!
//! | format | further members | anything else behind it |
//! | --- | --- | --- |
//! | zlib | none: the format ends | ignored, as Python's `zlib.decompress` does |
//! | gzip | decompressed as well | ignored, as gzip(1) does, which warns |
//! | zstd | decompressed as well, skippable frames skipped | an error |
//! | lz4 frames | decompressed as well, skippable frames skipped | an error |
//!
//! An empty asset is truncated in every format.

// What a format needs is unused without it.
#![cfg_attr(not(all(feature = "deflate", feature = "lz4", feature = "zstd")), allow(dead_code))]

#[cfg(feature = "deflate")]
mod deflate;
mod format;
mod input;
#[cfg(feature = "lz4")]
mod lz4;
mod member;
mod members;
mod table;
mod whole;
#[cfg(feature = "zstd")]
mod zstd;

pub use format::Codec;
pub(crate) use format::WindowTooLarge;
pub(crate) use members::Members;
#[cfg(fuzzing)]
pub(crate) use whole::STRICTER;
pub(crate) use whole::{Decoder, Undecoded};

#[cfg(all(test, feature = "deflate", feature = "lz4", feature = "zstd"))]
mod tests;
