//! The worker's side of a [`Transform`]: the outputs of writes that have not entered the stream yet.
//!
//! The write under the cursor is transformed as a whole before it is pushed. While the pipe has no room, the next write
//! is transformed, a step at a time. So a slow reader never waits for a transform, and one thread is enough.

use std::slice;
use std::sync::Arc;

use crate::memory::pool::{Buffer, Pool};
use crate::memory::transform::Transform;
use crate::sys::error::Result;
use crate::sys::memory::page_bytes;
use crate::sys::span::Span;

/// Output buffers that are kept for reuse: one in the pipe, one on its way there, and one in the making.
const KEPT_OUTPUTS: usize = 3;

/// The output of one write.
pub(crate) struct Output {
    number: u64,
    transform: Arc<dyn Transform>,
    buffer: Buffer,
    next_step: usize,
}

impl Output {
    pub(crate) fn is_complete(&self) -> bool {
        self.next_step == self.transform.steps()
    }

    /// Applies the next step.
    ///
    /// # Safety
    ///
    /// The span's memory is readable, and nobody writes to it, until this returns.
    pub(crate) unsafe fn step(&mut self, input: Span) {
        // SAFETY: the memory is readable and unwritten until this returns, by its own contract, and the slice does not outlive it.
        let input = unsafe { slice::from_raw_parts(input.as_ptr(), input.len()) };
        self.transform.apply(self.next_step, input, &mut self.buffer);
        self.next_step += 1;
    }

    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

/// The outputs of one worker.
#[derive(Default)]
pub(crate) struct Transformer {
    pool: Option<(Pool, usize)>,
    /// The output of the next write, as far as it is made; kept until the write is under the cursor.
    pub(super) ahead: Option<Output>,
}

impl Transformer {
    /// Returns the output of that write, as far as it is made.
    pub(crate) fn take(&mut self, number: u64, transform: &Arc<dyn Transform>) -> Result<Output> {
        match self.ahead.take() {
            Some(output) if output.number == number => Ok(output),
            _ => self.begin(number, transform),
        }
    }

    fn begin(&mut self, number: u64, transform: &Arc<dyn Transform>) -> Result<Output> {
        let bytes = transform.output_bytes();
        let buffer = self.pool_for(bytes).buffer(bytes)?;
        Ok(Output { number, transform: Arc::clone(transform), buffer, next_step: 0 })
    }

    fn pool_for(&mut self, bytes: usize) -> &Pool {
        // A class of the pool holds less than twice what was asked for, and a page.
        let keep_bytes = bytes.saturating_add(page_bytes()).saturating_mul(2 * KEPT_OUTPUTS);
        let pool = self.pool.take().filter(|(_, kept)| *kept >= keep_bytes);
        let (pool, _) = self.pool.insert(pool.unwrap_or_else(|| (Pool::new(keep_bytes), keep_bytes)));
        pool
    }
}
