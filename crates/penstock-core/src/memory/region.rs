//! The one ownership contract for memory in flight.

use std::sync::Arc;

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

/// Where a region lies: what a worker keeps of it while the queue owns the region itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: *const u8,
    len: usize,
}

// SAFETY: a span is an address and a length; using them is what needs a promise.
unsafe impl Send for Span {}

impl Span {
    pub(crate) fn of(region: &dyn Region) -> Self {
        Self { start: region.as_ptr(), len: region.len() }
    }

    pub(crate) fn as_ptr(self) -> *const u8 {
        self.start
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The first `len` bytes of the span, or all of it if it is shorter.
    pub(crate) fn first(self, len: usize) -> Self {
        Self { start: self.start, len: self.len.min(len) }
    }

    /// What remains behind the first `bytes`.
    pub(crate) fn skip(self, bytes: usize) -> Self {
        assert!(bytes <= self.len, "a span cannot be left by more than its length");
        // SAFETY: the result lies in the same region, or one past its end.
        let start = unsafe { self.start.add(bytes) };
        Self { start, len: self.len - bytes }
    }

    /// Whether the two share a byte.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.start.addr(), other.start.addr());
        self.len > 0 && other.len > 0 && a < b + other.len && b < a + self.len
    }

    /// Memory given by its address and length, to be compared and never read.
    pub(crate) fn at(start: *const u8, len: usize) -> Self {
        Self { start, len }
    }
}
