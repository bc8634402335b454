//! The process around us: threads (`task`), what a fork leaves to the child (`fork`, `kept`), and the end of the program
//! (`exit`).

pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod kept;
pub(crate) mod task;
