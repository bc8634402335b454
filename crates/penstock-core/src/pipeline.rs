//! A line of native stages: chunks come from a [`Source`], go through [`Stage`]s, and end in a [`Sink`].
//!
//! Each part works on a thread of its own, or on several with the order kept. Between two parts is a queue, bounded in bytes and
//! in items ([`Depth`]); when it is full, the part before waits, and so does in the end the source. All memory is a [`Pool`]'s
//! and is used again. A pipeline takes as much of it for a hundred thousand chunks as for a hundred.
//!
//! ```
//! use penstock_core::pipeline::{ChecksumKind, Codec, Options, Pipeline, Sink, Source, Stage};
//! # let packed = [0x78u8, 0x9c, 0x4b, 0x2b, 0x4a, 0xcc, 0x4d, 0x2d, 0x06, 0x00, 0x08, 0xac, 0x02, 0x7f];
//! # let path = std::env::temp_dir().join(format!("penstock-pipeline-{}", std::process::id()));
//! # std::fs::write(&path, packed)?;
//! let stages = vec![Stage::decompress(Codec::Zlib).workers(2), Stage::checksum(ChecksumKind::Xxh3)];
//! let pipeline = Pipeline::start(Source::files([path.clone()]), stages, Sink::iterate(), Options::default())?;
//! while let Some(chunk) = pipeline.next(None)? {
//!     assert_eq!(&chunk[..], b"frames");
//! }
//! println!("{}", pipeline.stats()?.bottleneck());
//! # std::fs::remove_file(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Failures
//!
//! A chunk that cannot be read or worked on is a [`ChunkError`] in its place: all before it come out first. With
//! [`OnError::Raise`] the pipeline ends there; with [`OnError::Skip`] it goes on, and the failures are on a list. Of a stream that
//! is decompressed in pieces, nothing after a failure can be had, so that it ends in both cases.
//!
//! # Leaving early
//!
//! [`Pipeline::close`], or dropping it, has all threads end, wherever they wait. Dropping it waits for none of them. A close waits
//! for what cannot be interrupted, for at most [`LEAVE_WITHIN`]: one call of a stage of the caller's, one asset that is being
//! decompressed, a disk, a socket that lingers. In the child of a fork there are no threads; there a pipeline says
//! [`Error::Forked`](crate::Error::Forked).

pub(crate) mod channel;

#[cfg(not(loom))]
mod chunk;
#[cfg(not(loom))]
mod line;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod run;
#[cfg(not(loom))]
mod sink;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod stage;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod stream;

#[cfg(not(loom))]
pub use {
    crate::codec::Codec,
    crate::latency::Latency,
    crate::memory::pool::{Buffer, Pool, Space},
    chunk::{Cause, Checksum, Chunk, ChunkError, Timing},
    run::{Depth, LEAVE_WITHIN, OnError, Options, Pipeline},
    sink::Sink,
    source::{Fed, Feed, Source},
    stage::{ChecksumKind, Context, Map, Spaces, Stage},
    stats::{StageStats, Stats},
};
