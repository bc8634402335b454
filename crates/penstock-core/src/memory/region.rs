//! The ownership contract for memory in flight.

use std::any::Any;
use std::sync::Arc;

use crate::sys::span::Span;

/// Memory that a stream may read while it owns the value.
///
/// A stream takes the value when it accepts a write. It drops the value once neither the worker nor, with zero-copy, the reader of
/// the pipe needs the memory. To use the memory again, pass an [`Arc`] and keep a clone: the stream's clone is dropped before
/// the ticket ends.
///
/// The stream may drop the value on any thread, and on the caller's before its call returns. If the drop panics, the stream catches
/// the panic and goes on. In the child of a fork, values that the parent has queued are leaked: their drop may need a thread or a lock
/// that the child does not have.
///
/// [`conformance::check_region`](crate::conformance::check_region) tests a type of your own, as far as a test can.
///
/// # Safety
///
/// This is the contract for all memory that is not Penstock's own; [`Space`](crate::Space) adds to it for memory that is written
/// to. From the moment a stream accepts the value, or an [`Arc`] of it, until the stream has dropped it or given it back:
///
/// - **It stays in place.** `as_ptr` and `len` return the same results at each call, also after the value was moved.
/// - **It is a valid slice.** [`slice::from_raw_parts`](std::slice::from_raw_parts) may be called with them: the address is not
///   null, not even for 0 bytes, and the bytes are mapped, readable and initialized. Memory that a fault handler fills on access is
///   readable.
/// - **Its content does not change.** Nobody writes to the bytes: no thread, no other process that shares them, no device. A
///   [`Transform`](crate::Transform) gets a `&[u8]` of them, for which a change is undefined behavior, and with zero-copy a later
///   change reaches the reader, also after the worker is done with them.
pub unsafe trait Region: Any + Send {
    /// The first byte.
    fn as_ptr(&self) -> *const u8;
    /// The size in bytes.
    fn len(&self) -> usize;
    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: it is never moved, for it has no size of its own, and whoever owns or shares it keeps others from changing it.
unsafe impl Region for [u8] {
    fn as_ptr(&self) -> *const u8 {
        self.as_ptr()
    }
    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: whoever owns the vector or shares it, a stream included, keeps others from changing it; its heap block does not move
// with it.
unsafe impl Region for Vec<u8> {
    fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }
    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

// SAFETY: the inner region keeps the promise, and does not move with the box.
unsafe impl<R: Region + ?Sized> Region for Box<R> {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: static memory is never unmapped, and a shared reference to plain bytes keeps them from changing.
unsafe impl Region for &'static [u8] {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: the inner region keeps the promise for as long as the stream's clone lives, and a shared value is not moved.
unsafe impl<R: Region + Sync + ?Sized> Region for Arc<R> {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: nobody gets mutable access to the bytes while a clone lives, and they do not move with it.
#[cfg(feature = "bytes")]
unsafe impl Region for bytes::Bytes {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

impl Span {
    /// Where the region lies.
    pub(crate) fn of(region: &dyn Region) -> Self {
        Self::at(region.as_ptr(), region.len())
    }
}
