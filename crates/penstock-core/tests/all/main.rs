//! All integration tests of the crate, in one binary: cargo links and runs one instead of eight.

mod common;
mod examples;
mod fifo;
mod oracle;
mod reader;
mod relay;
mod tee;
mod transform;
mod writer;
