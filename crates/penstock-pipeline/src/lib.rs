#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! A graph of native stages: chunks come from a [`Source`], go through [`Stage`]s, and end in a [`Sink`].
//!
//! Each part works on a thread of its own, or on several with the order kept. Between two parts is a queue, bounded in
//! bytes and items ([`Depth`]). When it is full, the part before waits, and finally the source. All chunks' memory comes from a
//! [`Pool`] and is reused: a hundred thousand chunks take as much memory as a hundred. A decompressor has some besides: up to
//! 8 MiB, and for a zstd stream a window of at most [`Options::max_chunk_bytes`].
//!
//! # Failures
//!
//! A chunk that cannot be read or processed is replaced by a [`ChunkError`]: all chunks before it come out first. With
//! [`OnError::Raise`] the pipeline ends there. With [`OnError::Skip`] it continues, and the failures are listed. A
//! stream that is decompressed in pieces ends in both cases, because nothing after the failure can be decompressed. If a thread
//! panics outside of such work, the pipeline fails with `EIO`. Every later call, and every other caller, gets the same error.
//!
//! # Leaving early
//!
//! [`Pipeline::close`], or dropping the pipeline, makes all threads end, wherever they wait. Dropping waits for none of
//! them. A close waits for what cannot be interrupted, for at most [`LEAVE_WITHIN`]: one call of a caller's stage, the
//! decompression of one asset, a disk, a socket that lingers. In the child of a fork there are no threads; there a
//! pipeline returns [`Error::Forked`].

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
    graph::{Depth, Options},
    latency::Latency,
    penstock_core::{
        AppliedPolicy, Buffer, CustomError, Error, Near, Pool, Priority, Space, ThreadPolicy, Ticket, Writer,
        WriterOptions,
    },
    pipeline::{LEAVE_WITHIN, Pipeline},
    sink::Sink,
    source::{Fed, Feed, Source},
    stage::{ChecksumKind, Context, Map, Spaces, Stage},
    stats::{StageStats, Stats},
};

/// For `fuzz/` alone, which compiles with this cfg. Hidden, because it is not part of the interface.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use std::io::{self, BufReader, Read};

    use penstock_core::Pool;

    use crate::codec::{Codec, Decoder, Members, STRICTER, Undecoded, WindowTooLarge};

    /// Decompresses a stream, from input of `step` bytes at a time. Returns the output before an error, and the error.
    pub fn streamed(codec: Codec, input: &[u8], step: usize, most: u64) -> (Vec<u8>, io::Result<()>) {
        let mut output = Vec::new();
        let mut members =
            Members::new(codec, BufReader::with_capacity(step, input), most as usize).take(most);
        let result = members.read_to_end(&mut output).map(drop);
        (output, result)
    }

    /// Decompresses an asset at once; none if it has more than `most` bytes.
    pub fn whole(codec: Codec, input: &[u8], most: usize) -> Option<io::Result<Vec<u8>>> {
        match Decoder::default().decode(codec, input, &Pool::new(0), most) {
            Ok(buffer) => Some(Ok(buffer.to_vec())),
            Err(Undecoded::At { error, .. }) => Some(Err(error)),
            Err(_) => None,
        }
    }

    /// Whether a stream failed because its window is limited; an asset is its own.
    pub fn needs_a_larger_window(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<WindowTooLarge>())
    }

    /// Whether an asset failed where a stream doesn't.
    pub fn is_stricter(error: &io::Error) -> bool {
        error.to_string().contains(STRICTER)
    }
}
