//! Linux.

mod error;
#[cfg(not(loom))]
pub(crate) mod facts;
#[cfg(not(loom))]
pub(crate) mod fd;
#[cfg(not(loom))]
pub(crate) mod fifo;
#[cfg(not(loom))]
pub(crate) mod file;
#[cfg(not(loom))]
pub mod handle;
#[cfg(not(loom))]
pub(crate) mod inotify;
#[cfg(not(loom))]
pub(crate) mod kernel;
#[cfg(not(loom))]
pub(crate) mod memory;
#[cfg(not(loom))]
pub(crate) mod pipe;
#[cfg(not(loom))]
pub(crate) mod process;
#[cfg(not(loom))]
pub(crate) mod signals;
#[cfg(not(loom))]
pub(crate) mod wait;
