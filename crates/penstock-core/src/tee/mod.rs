//! One stream to many outputs by tee(2) and splice(2).
//!
//! All outputs share the pages at the front of one pipe: the source itself, or an inner pipe that is filled from
//! it. An output takes them by tee(2), which leaves them there, and is then *ahead* by so many bytes. What all are
//! ahead by is removed from the front. The last output takes its bytes by splice(2), which also removes them. So a
//! short tee(2) neither loses nor repeats a byte, and no output is further ahead than the front pipe is large. An
//! output that is no pipe takes its bytes through an inner pipe of its own.

pub(crate) mod branch;
pub(crate) mod front;
pub(crate) mod handle;
pub(crate) mod outputs;
pub(crate) mod pump;
pub(crate) mod report;
