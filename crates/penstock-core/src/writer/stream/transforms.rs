//! The transforms of a stream's writes.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Stream;
use crate::sys::SysError;
use crate::writer::job::WriteView;
use crate::writer::transformer::Transformer;

impl Stream {
    /// Called when a writer that transforms is opened.
    pub(in crate::writer) fn expect_transforms(&self) {
        // Relaxed: the waker's eventfd(2) orders it for a worker that waits for room by now.
        self.has_transforms.store(true, Ordering::Relaxed);
        self.wake_worker();
    }

    pub(in crate::writer) fn has_transforms(&self) -> bool {
        self.has_transforms.load(Ordering::Relaxed)
    }

    /// Transforms the write under the cursor. The caller's memory is released afterwards.
    pub(crate) fn transform(
        &self,
        transformer: &mut Transformer,
        work: &WriteView,
    ) -> Result<WriteView, SysError> {
        let Some(transform) = &work.options.transform else { return Ok(work.clone()) };
        let start = Instant::now();
        let mut output = transformer.take(work.number, transform)?;
        while !output.is_complete() {
            // SAFETY: the job at the cursor holds the region, and only its worker takes it out.
            unsafe { output.step(work.span) };
        }
        self.meter.transforming.add(start.elapsed());
        let made = output.into_buffer();
        let (used, work) = self.queue.current(|job| (job.replace_memory(made), job.view()));
        drop(used); // outside of the queue's lock
        Ok(work)
    }

    /// Applies one step to the write after the one under the cursor. Returns whether there was one to apply.
    pub(crate) fn transform_following(&self, transformer: &mut Transformer) -> bool {
        let next = self.queue.following(|job| (job.number, job.options.transform.clone()));
        let Some((number, Some(transform))) = next else { return false };
        // Without memory the write waits until it is under the cursor, where that is a failure.
        let Ok(mut output) = transformer.take(number, &transform) else { return false };
        let start = Instant::now();
        // Under the lock, so that nobody discards the write meanwhile: a step is short.
        let used = self.queue.following(|job| {
            if job.number != number {
                return None;
            }
            if !output.is_complete() {
                // SAFETY: the job holds the region, and the lock holds the job.
                unsafe { output.step(job.span) };
            }
            if !output.is_complete() {
                transformer.ahead = Some(output);
                return None;
            }
            job.replace_memory(output.into_buffer())
        });
        self.meter.transforming.add(start.elapsed());
        drop(used);
        true
    }
}
