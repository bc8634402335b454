//! All integration tests of the crate, in one binary: cargo links and runs one instead of eight.

#[cfg(feature = "tokio")]
mod async_io;
mod common;
mod endings;
mod examples;
mod fifo;
mod kernels;
mod model;
mod oracle;
mod reader;
mod region;
mod relay;
mod tee;
mod transform;
mod writer;
