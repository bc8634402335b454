//! Frames of a fixed size out of a descriptor, read ahead by a native thread.
//!
//! The `worker` reads into memory of a pool, and passes whole frames on through a queue of `sync`. All its waits can be
//! interrupted, so that a close ends it at once.

mod frame;
mod handle;
mod worker;

pub use {
    frame::Frame,
    handle::{Reader, ReaderOptions, ReaderStats},
};
