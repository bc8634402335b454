//! The one ownership contract for memory in flight.

use std::sync::Arc;

use crate::sys::span::Span;

/// Memory that a stream may read for as long as it owns the value.
///
/// A stream takes the value when it accepts a write and drops it as soon as nobody reads the memory any
/// more: not the worker, and with zero-copy not the reader of the pipe. To get the memory back, hand in an
/// [`Arc`] and keep a clone: once the ticket has ended, the stream's clone is gone.
///
/// # Safety
///
/// While the value lives, also while it is moved, `len` bytes from `as_ptr` stay mapped and readable, and
/// both answers stay the same.
pub unsafe trait Region: Send + 'static {
    /// The first byte.
    fn as_ptr(&self) -> *const u8;
    /// The size in bytes.
    fn len(&self) -> usize;
    /// Whether there is nothing to read.
    fn is_empty(&self) -> bool {
        self.len() == 0
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

// SAFETY: the heap block does not move with the box.
unsafe impl Region for Box<[u8]> {
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
unsafe impl<R: Region + Sync> Region for Arc<R> {
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
