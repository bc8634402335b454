//! Frames of a fixed size out of a descriptor, read ahead by a native thread.
//!
//! The worker (`intake`) reads into memory of a pool, and hands whole frames over (`handover`). It never waits in a call that could
//! not be interrupted, so that a close ends it at once wherever it is.

pub(crate) mod handover;

#[cfg(not(loom))]
mod frame;
#[cfg(not(loom))]
mod front;
#[cfg(not(loom))]
mod intake;
#[cfg(not(loom))]
mod making;
#[cfg(not(loom))]
mod meter;

#[cfg(not(loom))]
pub use {
    frame::Frame,
    front::{Reader, ReaderOptions, ReaderStats},
};
