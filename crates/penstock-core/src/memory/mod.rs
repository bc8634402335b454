//! Who owns bytes in flight, and what they are transformed by.

#[cfg(all(feature = "pixels", not(loom)))]
pub(crate) mod float_frame;
pub(crate) mod pool;
pub(crate) mod region;
pub(crate) mod strided;
pub(crate) mod transform;
