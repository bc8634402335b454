//! Every system call that needs care, one file a subject. Only here, and where memory changes hands, is `unsafe`.

pub(crate) mod faults;
pub(crate) mod fd;
pub(crate) mod inotify;
pub(crate) mod memory;
pub(crate) mod pipe;
pub(crate) mod signals;
pub(crate) mod span;
