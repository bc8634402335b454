//! All integration tests of the crate, in one binary: cargo links and runs one instead of eight.

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
