//! All system calls that need care, one file a subject. `unsafe` is used only here and where memory changes hands.

pub(crate) mod faults;
pub(crate) mod fd;
pub(crate) mod inotify;
pub(crate) mod memory;
pub(crate) mod pipe;
pub(crate) mod signals;
pub(crate) mod span;
