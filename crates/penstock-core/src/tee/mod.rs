//! One stream to many destinations by tee(2) and splice(2).
//!
//! All destinations share the pages at the front of one pipe: the source itself, or an inner pipe that is filled from
//! it. A destination takes them by tee(2), which leaves them there, and is then *ahead* by so many bytes. What all are
//! ahead by is removed from the front. The last destination takes its bytes by splice(2), which also removes them. So a
//! short tee(2) neither loses nor repeats a byte, and no destination is further ahead than the front pipe is large. A
//! destination that is no pipe takes its bytes through an inner pipe of its own.

pub(crate) mod branch;
pub(crate) mod front;
pub(crate) mod handle;
pub(crate) mod outlets;
pub(crate) mod pump;
pub(crate) mod report;
