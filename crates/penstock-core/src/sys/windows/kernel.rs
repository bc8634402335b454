//! What this system does with pipes.

use super::fd;
use super::handle::{Borrowed, Handle};
use crate::sys::error::Result;
pub(crate) use crate::sys::kind::Vmsplice;

/// A handle of our own of a pipe, to write to.
pub(crate) fn own_writer(pipe: Borrowed<'_>) -> Result<Handle> {
    fd::duplicate(pipe)
}

/// A write waits for its reader, whatever its size, and is cut where it is.
pub(crate) fn needs_small_parts(_: Borrowed<'_>) -> bool {
    false
}

pub(crate) fn vmsplice() -> Vmsplice {
    Vmsplice::Refused
}
