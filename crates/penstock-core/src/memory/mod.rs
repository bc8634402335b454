//! Who owns bytes in flight, and what becomes of them.

pub(crate) mod pool;
pub(crate) mod region;
pub(crate) mod strided;
pub(crate) mod transform;
