//! The reader's side of a [`Transform`]: frames are read and transformed part by part.

use std::sync::Arc;

use rustix::io::Errno;

use crate::memory::pool::{Buffer, Pool};
use crate::memory::transform::Transform;

/// The transform of each part of a frame, and the memory that parts are read into.
pub(super) struct FrameTransform {
    transform: Arc<dyn Transform>,
    parts: usize,
    pub(super) scratch: Buffer,
}

impl FrameTransform {
    pub(super) fn new(transform: Arc<dyn Transform>, parts: usize, pool: &Pool) -> Result<Self, Errno> {
        let scratch = pool.take(transform.input_bytes())?;
        Ok(Self { transform, parts, scratch })
    }

    pub(super) fn part_in_bytes(&self) -> usize {
        self.transform.input_bytes()
    }

    pub(super) fn part_out_bytes(&self) -> usize {
        self.transform.output_bytes()
    }

    pub(super) fn frame_in_bytes(&self) -> usize {
        self.parts.saturating_mul(self.part_in_bytes())
    }

    /// Transforms a part that was read.
    pub(super) fn apply(&self, output: &mut [u8]) {
        self.transform.apply_all(&self.scratch, output);
    }
}
