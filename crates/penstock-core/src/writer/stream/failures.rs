//! How a stream fails, and who learns of it.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Stream;
use crate::error::Error;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::passed;
use crate::sync::queue::Load;
use crate::sys::{AsHandle, Borrowed, SysError, fd, pipe};
use crate::writer::job::{CloseFailure, Progress};

/// How often a wait for a failure checks for another reader of the FIFO, with which there is none. Guessed.
const READER_CHECK: Duration = Duration::from_millis(50);

impl Stream {
    /// Fails the stream if its pipe has bytes and no reader: they arrive nowhere, although the kernel accepted them. Waits until
    /// the deadline for others' writes in flight, with which the worker is about to fail.
    pub(crate) fn check_reader(
        self: &Arc<Self>,
        fd: &ForkFd,
        start: Instant,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        while let Some(unread @ 1..) = self.bytes_without_reader(fd) {
            if let Some(failure) = self.fail_at_rest(SysError::NO_READER, unread) {
                return Err(failure);
            }
            let again = Instant::now() + READER_CHECK;
            let until = deadline.map_or(again, |deadline| deadline.min(again));
            match self.queue.flush(self.queue.accepted_items(), Some(until)) {
                Err(load) if passed(deadline) => {
                    return Err(Error::Stalled {
                        waited: start.elapsed(),
                        bytes_pending: load.pending_bytes,
                    });
                }
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(())) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// What a pipe holds that has no reader.
    fn bytes_without_reader(&self, fd: &ForkFd) -> Option<u64> {
        let is_alone = self.kind.is_pipe() && fd::peer_is_gone(fd.as_handle());
        let unread = is_alone.then(|| pipe::unread_bytes(fd.as_handle()).unwrap_or(0));
        // Read `taken_back` last: while the worker drains the pipe, it counts as a reader.
        self.taken_back.get().copied().or(unread)
    }

    /// What the pipe holds that nobody has read.
    pub(in crate::writer) fn unread_bytes(&self, fd: Borrowed<'_>) -> u64 {
        let unread = pipe::unread_bytes(fd).unwrap_or(0);
        self.taken_back.get().copied().unwrap_or(unread)
    }

    /// Called by the worker before it takes back what the pipe holds, and fails the stream.
    pub(in crate::writer) fn begin_to_take_back(&self, unread_bytes: u64) {
        let _ = self.taken_back.set(unread_bytes); // only the first time has found the pipe as the reader left it
    }

    /// The stream's failure, with the bytes delivered and lost. Called under the queue's lock, as all that discards: each byte
    /// counts once.
    fn failure(&self, unread_bytes: u64, load: Load, of: impl FnOnce(u64, u64) -> Error) -> Error {
        let delivered = self.meter.written_bytes().saturating_sub(unread_bytes);
        let undelivered = load.accepted_bytes.saturating_sub(delivered);
        // What was discarded on request is not lost.
        let lost = undelivered.saturating_sub(self.meter.lost_bytes.get());
        self.meter.lost_bytes.set(undelivered);
        self.unreported.add(lost);
        of(delivered, lost)
    }

    /// Fails the stream and everything queued on it. Only for its worker, or if there is none.
    pub(crate) fn fail(self: &Arc<Self>, errno: SysError, unread_bytes: u64) {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        self.fail_after(unread_bytes, of, |_| {});
    }

    /// Fails the stream if nothing is in flight, when no worker would notice. The failure, if it has one then.
    pub(crate) fn fail_at_rest(self: &Arc<Self>, errno: SysError, unread_bytes: u64) -> Option<Error> {
        let of = |delivered, lost| Error::of_stream(errno, delivered, lost);
        self.part(|| self.queue.fail_at_rest(|load| self.failure(unread_bytes, load, of)));
        self.queue.failure()
    }

    /// As [`fail`](Self::fail), if pages in the pipe cannot be taken back: their memory is never freed, because
    /// somebody may still read it.
    pub(crate) fn fail_keeping_memory(self: &Arc<Self>, errno: SysError, unread_bytes: u64) {
        let mut is_begun = true;
        let kept = self.queue.select(|job| {
            let holds = job.holds.as_mut().filter(|_| is_begun)?;
            is_begun = job.progress != Progress::Queued; // all that are written, and the next one
            Some(mem::replace(&mut holds.region, Box::new(Vec::new())))
        });
        mem::forget(kept);
        self.fail(errno, unread_bytes);
    }

    /// As [`fail`](Self::fail), with an error made from the bytes delivered and lost; `first` learns the failure before all
    /// that is queued.
    pub(in crate::writer) fn fail_after(
        self: &Arc<Self>,
        unread_bytes: u64,
        of: impl FnOnce(u64, u64) -> Error,
        first: impl FnOnce(&Error),
    ) {
        let removed = self.part(|| self.queue.fail(|load| self.failure(unread_bytes, load, of)));
        let failure = self.queue.failure().expect("a failed queue knows of what");
        first(&failure);
        self.queue.end(removed, |job| job.fail(failure.clone()));
    }

    /// The failure of an owner whose descriptor's close has reported one.
    pub(in crate::writer) fn close_failed(
        self: &Arc<Self>,
        CloseFailure { errno, bytes_lost }: CloseFailure,
    ) -> Error {
        let failed = self.fail_at_rest(errno, bytes_lost);
        failed.unwrap_or_else(|| {
            // Other owners' writes are in flight.
            self.unreported.add(bytes_lost);
            let delivered = self.meter.written_bytes().saturating_sub(bytes_lost);
            Error::of_stream(errno, delivered, bytes_lost)
        })
    }
}
