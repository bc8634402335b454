//! An address and a length, as system calls take them.

/// Memory by its address and length. Whoever owns the memory keeps it in place while the span is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: *const u8,
    len: usize,
}

// SAFETY: no safe function reads the memory. The unsafe ones that do so require that it is readable when they are called, on
// whatever thread.
unsafe impl Send for Span {}

impl Span {
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
        // SAFETY: it was checked that the result lies in the same memory, or one past its end.
        let start = unsafe { self.start.add(bytes) };
        Self { start, len: self.len - bytes }
    }

    /// Whether the two share a byte.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let (a, b) = (self.start.addr(), other.start.addr());
        self.len > 0 && other.len > 0 && a < b + other.len && b < a + self.len
    }

    /// Memory given by its address and length.
    pub(crate) fn at(start: *const u8, len: usize) -> Self {
        Self { start, len }
    }
}
