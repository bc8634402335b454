//! The frames that a reader returns.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::memory::pool::Buffer;

/// The bytes of one frame, in page-aligned memory that its reader reuses once the frame is dropped.
pub struct Frame {
    bytes: Buffer,
    index: u64,
}

impl Frame {
    pub(super) fn new(bytes: Buffer, index: u64) -> Self {
        Self { bytes, index }
    }

    /// Its number in the stream, from 0. Dropped frames count.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Its size in bytes. Unlike the slice's, it forms no reference to the bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The memory of its bytes.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.bytes
    }
}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("index", &self.index)
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}
