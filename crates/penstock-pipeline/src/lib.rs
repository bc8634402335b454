#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A graph of native stages: chunks come from a [`Source`], go through [`Stage`]s, and end in a [`Sink`].
//!
//! Each part works on a thread of its own, or on several with the order kept. Between two parts is a queue, bounded in bytes and
//! in items ([`Depth`]); when it is full, the part before waits, and so does in the end the source. All memory is a [`Pool`]'s
//! and is used again. A pipeline takes as much of it for a hundred thousand chunks as for a hundred.
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
//! [`Error::Forked`](penstock_core::Error::Forked).

mod chunk;
mod codec;
mod failures;
mod graph;
mod latency;
mod meter;
mod pipeline;
mod sink;
mod source;
mod stage;
mod stats;
mod stream;

pub use {
    chunk::{Cause, Checksum, Chunk, ChunkError, Timing},
    codec::Codec,
    failures::OnError,
    latency::Latency,
    penstock_core::{Buffer, Pool, Space},
    pipeline::{Depth, LEAVE_WITHIN, Options, Pipeline},
    sink::Sink,
    source::{Fed, Feed, Source},
    stage::{ChecksumKind, Context, Map, Spaces, Stage},
    stats::{StageStats, Stats},
};

/// For `fuzz/` alone, which compiles with this cfg: what is no part of the crate's face.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use std::io::{self, BufReader, Read};

    use penstock_core::Pool;

    use crate::codec::{Codec, Decoder, Members, Undecoded};

    /// A stream, in input of so many bytes at a time; what came before an error, and the error.
    pub fn streamed(codec: Codec, input: &[u8], step: usize, most: u64) -> (Vec<u8>, io::Result<()>) {
        let mut output = Vec::new();
        let mut members = Members::new(codec, BufReader::with_capacity(step, input)).take(most);
        let result = members.read_to_end(&mut output).map(drop);
        (output, result)
    }

    /// An asset at once; none for more than `most` bytes.
    pub fn whole(codec: Codec, input: &[u8], most: usize) -> Option<io::Result<Vec<u8>>> {
        match Decoder::new().decode(codec, input, &Pool::new(0), most) {
            Ok(buffer) => Some(Ok(buffer.to_vec())),
            Err(Undecoded::At { error, .. }) => Some(Err(error)),
            Err(_) => None,
        }
    }
}
