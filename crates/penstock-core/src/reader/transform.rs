//! A reader's side of a [`Recipe`]: frames are read and made part by part.

use std::sync::Arc;

use rustix::io::Errno;

use crate::memory::pool::{Buffer, Pool};
use crate::memory::transform::Recipe;

/// What is made of each part of a frame, and where a part is read to.
pub(super) struct Making {
    recipe: Arc<dyn Recipe>,
    parts: usize,
    pub(super) scratch: Buffer,
}

impl Making {
    pub(super) fn new(recipe: Arc<dyn Recipe>, parts: usize, pool: &Pool) -> Result<Self, Errno> {
        let scratch = pool.take(recipe.input_bytes())?;
        Ok(Self { recipe, parts, scratch })
    }

    pub(super) fn part_in_bytes(&self) -> usize {
        self.recipe.input_bytes()
    }

    pub(super) fn part_out_bytes(&self) -> usize {
        self.recipe.output_bytes()
    }

    pub(super) fn frame_in_bytes(&self) -> usize {
        self.parts * self.part_in_bytes()
    }

    /// Makes a part of what has been read.
    pub(super) fn make(&self, output: &mut [u8]) {
        (0..self.recipe.steps()).for_each(|step| self.recipe.make(step, &self.scratch, output));
    }
}
