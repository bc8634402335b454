//! All integration tests of the crate, in one binary.

mod common;
mod policy;
mod topology;
