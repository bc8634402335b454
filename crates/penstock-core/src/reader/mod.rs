//! Frames of a fixed size out of a descriptor, read ahead by a native thread.
//!
//! The `worker` reads into memory of a pool, and passes whole frames on through a queue of `sync`. All its waits can be
//! interrupted, so that a close ends it at once. `byte_reader` makes bytes of the frames.

mod byte_reader;
mod frame;
mod handle;
mod worker;

pub use {
    byte_reader::ByteReader,
    frame::Frame,
    handle::{Reader, ReaderOptions, ReaderStats},
};
