//! Frames of a fixed size out of a descriptor, read ahead by a native thread.
//!
//! The `worker` reads into memory of a pool, and passes whole frames on through a queue of `sync`. All its waits can be
//! interrupted, so that a close ends it at once. `byte_reader` and `async_read` make bytes of the
//! frames, and `frame_stream` a `Stream`.

#[cfg(feature = "tokio")]
mod async_read;
mod byte_reader;
mod frame;
#[cfg(feature = "futures")]
mod frame_stream;
mod handle;
mod worker;

#[cfg(feature = "tokio")]
pub use async_read::AsyncByteReader;
#[cfg(feature = "futures")]
pub use frame_stream::FrameStream;
pub use {
    byte_reader::ByteReader,
    frame::Frame,
    handle::{Reader, ReaderOptions, ReaderStats},
};
