//! The operating system, and the only room that names one: the others use what is here. Theirs are the words [`SysError`] for what a
//! call reports, and those of each file of the platform's room.
//!
//! Also system calls that need `unsafe` or several steps, one file a subject. Other rooms use `unsafe` only where memory or
//! descriptors change hands.

pub(crate) mod error;
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) mod faults;
#[cfg(not(loom))]
pub(crate) mod kind;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(loom))]
pub(crate) mod span;
#[cfg(windows)]
mod windows;

pub use error::SysError;
#[cfg(all(target_os = "linux", not(loom)))]
pub use linux::handle::{self, AsHandle, Borrowed, Handle, Number};
#[cfg(all(target_os = "linux", not(loom)))]
pub(crate) use linux::{facts, fd, fifo, file, inotify, kernel, memory, pipe, process, signals, wait};
#[cfg(windows)]
pub use windows::handle::{self, AsHandle, Borrowed, Handle, Number};
#[cfg(windows)]
pub(crate) use windows::{fd, fifo, file, inotify, kernel, memory, pipe, process, signals, wait};
