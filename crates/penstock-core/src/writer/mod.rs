//! Memory into descriptors, by native threads.
//!
//! `handle` and `by_descriptor` find the `stream` that a descriptor leads to, and put a job into its queue. The stream's `worker`
//! lets a `transport` put it into the destination; a small one need not wait for it (`at_once`). `byte_writer` and `async_write` copy slices first.

#[cfg(feature = "tokio")]
pub(crate) mod async_write;
pub(crate) mod by_descriptor;
pub(crate) mod byte_writer;
pub(crate) mod exit;
pub(crate) mod handle;
pub(crate) mod job;
mod policy;
mod read_watch;
pub(crate) mod rejected;
pub(crate) mod state;
pub(crate) mod stream;
pub(crate) mod transformer;
pub(crate) mod transport;
pub(crate) mod unreported;
pub(crate) mod worker;
