//! All integration tests of the crate, in one binary.

#[cfg(target_os = "linux")]
mod common;
mod machine;
mod policy;
mod thread;
#[cfg(target_os = "linux")]
mod topology;
