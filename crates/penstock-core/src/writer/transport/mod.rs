//! How bytes enter a stream: a closed set of transports behind one `engine`.
//!
//! - [`write`](mod@write): the kernel copies. The portable way, and the way for files and sockets.
//! - [`staged`]: copies into pages that are then given to the pipe.
//! - [`zero_copy`]: the caller's own pages are given to the pipe.

pub(crate) mod at_once;
pub(crate) mod choice;
pub(crate) mod engine;
pub(crate) mod meter;
pub(crate) mod sink;
pub(crate) mod staged;
pub(crate) mod write;
pub(crate) mod zero_copy;
