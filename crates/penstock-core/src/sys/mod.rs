//! System calls that need `unsafe` or several steps, one file a subject. Other rooms use `unsafe` only where memory or
//! descriptors change hands.

pub(crate) mod faults;
pub(crate) mod fd;
pub(crate) mod inotify;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod pipe;
pub(crate) mod signals;
pub(crate) mod span;
