//! One stream to many destinations by tee(2) and splice(2).
//!
//! All destinations share the pages at the front of one pipe: the source itself, or an inner pipe that is filled from it. A
//! destination takes them by tee(2), which leaves them where they are, and is then *ahead* by so many bytes; what everybody
//! is ahead by is taken off the front. The last who is behind takes its bytes by splice(2), which does both at once. So a
//! short tee(2) neither loses nor repeats a byte, and nobody is further ahead than the front pipe is large. A destination that is no pipe
//! takes its bytes into an inner pipe of its own, and has them from there.

pub(crate) mod branch;
pub(crate) mod front;
pub(crate) mod handle;
pub(crate) mod outlets;
pub(crate) mod pump;
pub(crate) mod report;
pub(crate) mod shared;
