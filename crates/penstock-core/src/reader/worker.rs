//! A reader's worker: reads frames ahead of their callers.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::io::Errno;

use super::frame::Frame;
use super::frame_queue::FrameQueue;
use super::meter::Meter;
use super::transform::FrameTransform;

use crate::error::Error;
use crate::memory::pool::{Buffer, Pool};
use crate::reader::poll_source::PollSource;
use crate::runtime::task::Control;
use crate::sync::lock;

/// What the worker works with. When it has ended, the descriptor is closed.
pub(super) struct ReaderWorker {
    pub(super) source: PollSource,
    pub(super) pool: Pool,
    /// Of what comes out.
    pub(super) frame_bytes: usize,
    pub(super) transform: Option<FrameTransform>,
    pub(super) queue: Arc<FrameQueue<Frame>>,
    pub(super) meter: Arc<Meter>,
    /// What came of a frame that the stream ended in.
    pub(super) rest: Arc<Mutex<Option<Frame>>>,
}

/// How the filling of a piece of memory ended.
enum Filled {
    Whole,
    /// The stream ended with so many bytes in it.
    Short(usize),
    /// Nobody wants it any more.
    Stopped,
}

/// Sees to it that whoever waits learns of the end, also of one by a panic.
struct Ending(Arc<FrameQueue<Frame>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Err(Errno::IO.into()));
    }
}

impl ReaderWorker {
    /// Reads until the end, a failure, or until nobody wants more.
    pub(super) fn run(self, control: &Control) {
        let ending = Ending(Arc::clone(&self.queue));
        // After it, so that it goes before it: who has seen the end, also that by a panic, finds the descriptor closed.
        let mut worker = self;
        let outcome = worker.read_frames(control);
        drop(worker);
        ending.0.end(outcome);
    }

    fn read_frames(&mut self, control: &Control) -> Result<(), Error> {
        for index in 0.. {
            let start = Instant::now();
            let goes_on = self.queue.wait_for_room();
            self.meter.add_full(start.elapsed());
            if !goes_on {
                return Err(Error::Closed);
            }
            let mut slot = self.pool.take(self.frame_bytes)?;
            match self.fill_frame(&mut slot, control)? {
                Filled::Whole => self.hand_over(Frame::new(slot, index)),
                Filled::Short(0) => return Ok(()),
                Filled::Stopped => return Err(Error::Closed),
                Filled::Short(bytes_over) => {
                    self.keep_rest(slot, bytes_over, index);
                    let frame_bytes = self.frame_in_bytes();
                    return Err(Error::Truncated { frames: index, frame_bytes, bytes_over });
                }
            }
        }
        Ok(())
    }

    fn hand_over(&self, frame: Frame) {
        self.meter.add_frame_read();
        drop(self.queue.put(frame));
    }

    fn keep_rest(&self, mut slot: Buffer, bytes: usize, index: u64) {
        if self.transform.is_none() {
            slot.set_len(bytes);
            *lock(&self.rest) = Some(Frame::new(slot, index));
        }
    }

    fn frame_in_bytes(&self) -> usize {
        self.transform.as_ref().map_or(self.frame_bytes, FrameTransform::frame_in_bytes)
    }

    fn fill_frame(&mut self, slot: &mut Buffer, control: &Control) -> Result<Filled, Errno> {
        let Some(mut transform) = self.transform.take() else {
            return self.fill(slot, 0, control);
        };
        let filled = self.make_parts(&mut transform, slot, control);
        self.transform = Some(transform);
        filled
    }

    /// Reads and makes one part after the other: small ones are still in the cache when they are made.
    fn make_parts(
        &self,
        transform: &mut FrameTransform,
        slot: &mut [u8],
        control: &Control,
    ) -> Result<Filled, Errno> {
        for (part, output) in slot.chunks_exact_mut(transform.part_out_bytes()).enumerate() {
            let before = part * transform.part_in_bytes();
            match self.fill(&mut transform.scratch, before, control)? {
                Filled::Whole => {
                    let start = Instant::now();
                    transform.apply(output);
                    self.meter.add_transforming(start.elapsed());
                }
                Filled::Short(bytes) => return Ok(Filled::Short(before + bytes)),
                Filled::Stopped => return Ok(Filled::Stopped),
            }
        }
        Ok(Filled::Whole)
    }

    /// Reads until the memory is full; so many bytes of the frame came before it.
    fn fill(&self, memory: &mut [u8], before: usize, control: &Control) -> Result<Filled, Errno> {
        let mut bytes = 0;
        while bytes < memory.len() {
            if control.is_cancelled() {
                return Ok(Filled::Stopped);
            }
            if self.queue.is_going_live() {
                self.queue.go_live(self.stale_frames(before + bytes));
            }
            match self.source.read(&mut memory[bytes..])? {
                Some(0) => return Ok(Filled::Short(bytes)),
                Some(read) => {
                    bytes += read;
                    self.meter.add_read(read);
                }
                None => self.meter.add_worker_blocked(self.source.wait(&control.waker)),
            }
        }
        Ok(Filled::Whole)
    }

    /// Whole frames that have come and are not read, counted from so many bytes into one.
    fn stale_frames(&self, bytes: usize) -> u64 {
        (bytes as u64 + self.source.unread_bytes()) / self.frame_in_bytes() as u64
    }
}
