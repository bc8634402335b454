//! What the operating system tells and grants. Only this folder names a system.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(windows)]
use windows as system;

pub(crate) use system::{
    class, cpus, cpus_of, last_cpu_of, nice, nice_limit, set_class, set_cpus, set_nice, yield_when_woken,
};

use crate::topology::Topology;

impl Topology {
    /// Reads the topology of this machine. `allowed` refers to the calling thread.
    #[must_use]
    pub fn detect() -> Self {
        system::topology()
    }
}
