//! The process around us: threads (`thread`, and tasks on them, `task`), how to wake them (`waker`), reads that a waker
//! interrupts (`poll_source`), files by their path (`file_source`), what a fork leaves to the child (`fork`, `fork_fd`), closes that take long (`closing`), and the end of
//! the program (`exit`).

mod closing;
pub(crate) mod exit;
pub(crate) mod file_source;
pub(crate) mod fork;
pub(crate) mod fork_fd;
pub(crate) mod poll_source;
pub(crate) mod task;
pub(crate) mod thread;
pub(crate) mod waker;
