//! The process around us: threads (`task`), what a fork leaves to the child (`fork`, `fork_fd`, `gate`), descriptors that
//! close slowly (`reaper`), and the end of the program (`exit`).

pub(crate) mod gate;

#[cfg(not(loom))]
pub(crate) mod exit;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub(crate) mod fork_fd;
#[cfg(not(loom))]
pub(crate) mod reaper;
#[cfg(not(loom))]
pub(crate) mod task;
