//! All integration tests of the crate, in one binary.

#[path = "../../../penstock-core/tests/all/common.rs"]
mod common;
mod policy;
mod topology;
