//! Windows.

mod error;
mod interrupt;
pub(crate) mod memory;
