//! Windows.

mod error;
mod facts;
pub(crate) mod fd;
pub(crate) mod fifo;
pub(crate) mod file;
pub mod handle;
pub(crate) mod inotify;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod pipe;
pub(crate) mod process;
pub(crate) mod signals;
pub(crate) mod wait;
