//! Frames of a fixed size out of a descriptor, read ahead by a native thread.
//!
//! The `worker` reads into memory of a pool, and passes whole frames on through the `frame_queue`. All its waits can be
//! interrupted, so that a close ends it at once.

pub(crate) mod frame_queue;

#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod frame_transform;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod meter;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use {
    frame::Frame,
    handle::{Reader, ReaderOptions, ReaderStats},
};
