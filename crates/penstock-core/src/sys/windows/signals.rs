//! There are no signals.

pub(crate) fn block_signals() {}
