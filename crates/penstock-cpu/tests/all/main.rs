//! All integration tests of the crate, in one binary.

mod policy;
mod topology;
