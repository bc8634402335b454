//! What a process is confined to.

use std::path::PathBuf;
use std::time::Duration;

/// What a confined process may still do, besides using the descriptors that it has.
#[derive(Debug)]
pub(crate) struct Confinement<'a> {
    /// Folders and files that it may read and run. Those that are missing are left out.
    pub(crate) readable: &'a [PathBuf],
    /// The descriptor of a file that it may open again, by `/proc/self/fd`, to read it.
    pub(crate) source: i32,
    /// Its private memory (`RLIMIT_DATA`).
    pub(crate) memory_bytes: u64,
    /// Its CPU time. Then the kernel sends SIGXCPU, and kills it some seconds later.
    pub(crate) cpu: Duration,
}
