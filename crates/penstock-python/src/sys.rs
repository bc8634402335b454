//! What descriptors and failures of the system are in Python, and what only one system does. Only this folder names a system.

pub(crate) mod confinement;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(windows)]
use windows as system;

pub(crate) use system::{MODES, borrow, confine, descriptor_of, errno, topology};
