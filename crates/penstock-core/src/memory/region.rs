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
/// # Safety
///
/// While the value lives, `len` bytes from `as_ptr` must stay mapped and readable, and both methods must return the same results.
/// This includes moves of the value.
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

// SAFETY: it is never moved, for it has no size of its own.
unsafe impl Region for [u8] {
    fn as_ptr(&self) -> *const u8 {
        self.as_ptr()
    }
    fn len(&self) -> usize {
        self.len()
    }
}

// SAFETY: a vector that nobody can reach neither reallocates nor shrinks, and its heap block does not move with it.
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

// SAFETY: static memory is never unmapped.
unsafe impl Region for &'static [u8] {
    fn as_ptr(&self) -> *const u8 {
        (**self).as_ptr()
    }
    fn len(&self) -> usize {
        (**self).len()
    }
}

// SAFETY: the inner region keeps the promise for as long as any clone lives.
unsafe impl<R: Region + Sync + ?Sized> Region for Arc<R> {
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
