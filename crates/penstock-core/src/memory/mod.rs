//! Who owns bytes in flight, and what they are transformed by.

pub(crate) mod pool;
pub(crate) mod region;
pub(crate) mod transform;
