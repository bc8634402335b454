//! The process around us: threads (`thread`, and tasks on them, `task`), how to wake them (`waker`), reads that a waker
//! interrupts (`poll_source`), what a fork leaves to the child (`fork`, `fork_fd`, `gate`), and the end of the program
//! (`exit`).

pub(crate) mod gate;

#[cfg(not(loom))]
pub(crate) mod exit;
#[cfg(not(loom))]
pub(crate) mod fork;
#[cfg(not(loom))]
pub(crate) mod fork_fd;
#[cfg(not(loom))]
pub(crate) mod poll_source;
#[cfg(not(loom))]
pub(crate) mod task;
#[cfg(not(loom))]
pub(crate) mod thread;
#[cfg(not(loom))]
pub(crate) mod waker;
