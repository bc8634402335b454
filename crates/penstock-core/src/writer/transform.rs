//! A worker's side of a [`Transform`]: what it has made of writes that have yet to enter the stream.
//!
//! The write at the cursor is made whole before it is pushed. While the pipe has no room, the one behind it is made, a step at a
//! time: so that a reader that is the slower side never waits for a conversion, and one thread does for both.

use std::slice;
use std::sync::Arc;

use rustix::io::Result;

use crate::memory::pool::{Buffer, Pool};
use crate::memory::transform::Transform;
use crate::sys::span::Span;

/// Outputs that are kept for the next: one in the pipe, one on its way there, and one that is being made.
const KEPT_OUTPUTS: usize = 3;

/// What is made of one write.
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

    /// Makes one step more.
    ///
    /// # Safety
    ///
    /// The span's memory is readable, and nobody writes to it, until this returns.
    pub(crate) unsafe fn step(&mut self, input: Span) {
        // SAFETY: the caller's promise.
        let input = unsafe { slice::from_raw_parts(input.as_ptr(), input.len()) };
        self.transform.apply(self.next_step, input, &mut self.buffer);
        self.next_step += 1;
    }

    pub(crate) fn into_buffer(self) -> Buffer {
        self.buffer
    }
}

/// One worker's outputs.
#[derive(Default)]
pub(crate) struct Transformer {
    pool: Option<(Pool, usize)>,
    /// What has been begun of the write behind the cursor.
    ahead: Option<Output>,
}

impl Transformer {
    /// The output of that write, as far as it has been made.
    pub(crate) fn take(&mut self, number: u64, transform: &Arc<dyn Transform>) -> Result<Output> {
        match self.ahead.take() {
            Some(output) if output.number == number => Ok(output),
            _ => self.begin(number, transform),
        }
    }

    /// Keeps an output that is not complete until its write is at the cursor.
    pub(crate) fn keep(&mut self, output: Output) {
        self.ahead = Some(output);
    }

    fn begin(&mut self, number: u64, transform: &Arc<dyn Transform>) -> Result<Output> {
        let bytes = transform.output_bytes();
        let buffer = self.pool_for(bytes).take(bytes)?;
        Ok(Output { number, transform: Arc::clone(transform), buffer, next_step: 0 })
    }

    fn pool_for(&mut self, bytes: usize) -> &Pool {
        // A class of the pool holds less than twice what was asked for, and a page.
        let keep_bytes = KEPT_OUTPUTS * 2 * (bytes + (4 << 10));
        let pool = self.pool.take().filter(|(_, kept)| *kept >= keep_bytes);
        let (pool, _) = self.pool.insert(pool.unwrap_or_else(|| (Pool::new(keep_bytes), keep_bytes)));
        pool
    }
}
