//! Kernel pipes: their ends, their sizes, and those with a name.

pub(crate) mod budget;
pub(crate) mod ends;
pub(crate) mod fifo;
pub(crate) mod private;
