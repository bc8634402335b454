//! What this system does with pipes.

use super::fd;
use super::handle::{Borrowed, Handle};
use crate::sys::error::Result;

/// A handle of our own of a pipe, to write to.
pub(crate) fn own_writer(pipe: Borrowed<'_>) -> Result<Handle> {
    fd::duplicate(pipe)
}
