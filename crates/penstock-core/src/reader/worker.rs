//! The native thread of a reader, which reads frames ahead of their callers.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::frame::Frame;
use crate::counter::{Counter, Stopwatch};
use crate::error::Error;
use crate::memory::pool::{Buffer, Pool};
use crate::runtime::poll_source::PollSource;
use crate::runtime::task::Control;
use crate::sync::frame_queue::FrameQueue;
use crate::sync::lock;
use crate::sys::SysError;

/// The worker's state. The descriptor is closed when the worker ends.
pub(super) struct ReaderWorker {
    pub(super) source: PollSource,
    pub(super) pool: Pool,
    pub(super) frame_bytes: usize,
    /// For small frames.
    pub(super) gathered: Option<Gathered>,
    pub(super) queue: Arc<FrameQueue<Frame>>,
    pub(super) meter: Arc<Meter>,
    /// The incomplete last frame.
    pub(super) rest: Arc<Mutex<Option<Frame>>>,
}

/// Small frames, which are read several together and copied: to read each by itself would take longer.
pub(super) struct Gathered {
    pub(super) memory: Buffer,
    /// Bytes of a frame that is not whole yet.
    bytes: usize,
}

/// Memory for frames that are read together. Chosen: what a pipe holds by default.
const GATHERED_BYTES: usize = 64 << 10;

/// A copy of larger frames takes longer than the system call that it saves. Guessed: a page.
const SMALL_FRAME_BYTES: usize = 4 << 10;

/// How many frames of that size are read together at most.
pub(super) fn frames_together(frame_bytes: usize) -> usize {
    if frame_bytes <= SMALL_FRAME_BYTES { GATHERED_BYTES / frame_bytes } else { 1 }
}

impl Gathered {
    /// In memory for several frames.
    pub(super) fn new(memory: Buffer) -> Self {
        Self { memory, bytes: 0 }
    }
}

/// What a reader counts.
#[derive(Default)]
pub(super) struct Meter {
    pub(super) frames_read: Counter,
    pub(super) frames_delivered: Counter,
    pub(super) bytes_read: Counter,
    /// Time that callers waited for frames.
    pub(super) caller_blocked: Stopwatch,
    /// Time that the worker waited for the source.
    pub(super) worker_blocked: Stopwatch,
    /// Time that the worker waited for room.
    pub(super) worker_full: Stopwatch,
}

/// The result of filling a piece of memory.
enum Filled {
    Whole,
    /// The stream ended after so many bytes.
    Short(usize),
    /// The frame is not wanted any more.
    Stopped,
}

/// Ends the queue also after a panic.
struct Ending(Arc<FrameQueue<Frame>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(Err(Error::of_system(SysError::IO)));
    }
}

impl ReaderWorker {
    /// Reads until the end, a failure, or until no frame is wanted any more.
    pub(super) fn run(self, control: &Control) {
        let ending = Ending(Arc::clone(&self.queue));
        // Dropped before `ending`: whoever has seen the end, also after a panic, finds the descriptor closed.
        let mut worker = self;
        let outcome = worker.read_frames(control);
        worker.pool.keep_nothing(); // a frame that its caller keeps for long keeps the pool
        drop(worker);
        ending.0.end(outcome);
    }

    fn read_frames(&mut self, control: &Control) -> Result<(), Error> {
        let mut frames = 0;
        loop {
            let start = Instant::now();
            let room = self.queue.wait_for_room();
            self.meter.worker_full.add(start.elapsed());
            if room == 0 {
                return Err(Error::Closed);
            }
            let mut slots = Vec::new();
            match self.fill_slots(&mut slots, room, control).map_err(Error::of_system)? {
                Filled::Whole => {
                    self.meter.frames_read.add(slots.len() as u64);
                    let whole: Vec<_> =
                        (frames..).zip(slots).map(|(index, slot)| Frame::new(slot, index)).collect();
                    frames += whole.len() as u64;
                    drop(self.queue.put(whole));
                }
                Filled::Short(0) => return Ok(()),
                Filled::Stopped => return Err(Error::Closed),
                Filled::Short(bytes_over) => {
                    if let Some(mut slot) = slots.pop() {
                        slot.set_len(bytes_over);
                        *lock(&self.rest) = Some(Frame::new(slot, frames));
                    }
                    let frame_bytes = self.frame_bytes;
                    return Err(Error::Truncated { frames, frame_bytes, bytes_over });
                }
            }
        }
    }

    /// Fills a slot, or several at once if the frames are small. At the end of the stream the last one is filled in part.
    fn fill_slots(
        &mut self,
        slots: &mut Vec<Buffer>,
        room: usize,
        control: &Control,
    ) -> Result<Filled, SysError> {
        if let Some(mut gathered) = self.gathered.take() {
            let filled = self.gather(&mut gathered, slots, room, control);
            self.gathered = Some(gathered);
            return filled;
        }
        let mut slot = self.pool.buffer(self.frame_bytes)?;
        let filled = self.read_some(&mut slot, &mut 0, self.frame_bytes, control);
        slots.push(slot);
        filled
    }

    /// Reads until there is a whole frame, for as many frames as there is room, and copies them to slots.
    fn gather(
        &self,
        Gathered { memory, bytes }: &mut Gathered,
        slots: &mut Vec<Buffer>,
        room: usize,
        control: &Control,
    ) -> Result<Filled, SysError> {
        let wanted = self.frame_bytes.saturating_mul(room).min(memory.len());
        let filled = self.read_some(&mut memory[..wanted], bytes, self.frame_bytes, control)?;
        for frame in memory[..*bytes].chunks(self.frame_bytes) {
            if frame.len() == self.frame_bytes || matches!(filled, Filled::Short(_)) {
                let mut slot = self.pool.buffer(self.frame_bytes)?;
                slot[..frame.len()].copy_from_slice(frame);
                slots.push(slot);
            }
        }
        let over = *bytes % self.frame_bytes;
        memory.copy_within(*bytes - over..*bytes, 0);
        *bytes = over;
        Ok(filled)
    }

    /// Reads into the memory, which has so many `bytes`, until it has at least so many.
    fn read_some(
        &self,
        memory: &mut [u8],
        bytes: &mut usize,
        at_least: usize,
        control: &Control,
    ) -> Result<Filled, SysError> {
        while *bytes < at_least {
            if control.is_cancelled() {
                return Ok(Filled::Stopped);
            }
            if self.queue.is_going_live() {
                self.queue.go_live(self.stale_frames(*bytes));
            }
            match self.source.read(&mut memory[*bytes..])? {
                Some(0) => return Ok(Filled::Short(*bytes)),
                Some(read) => {
                    *bytes += read;
                    self.meter.bytes_read.add(read as u64);
                }
                None => self.meter.worker_blocked.add(self.source.wait(&control.waker)),
            }
        }
        Ok(Filled::Whole)
    }

    /// Whole frames that have come and are not read. `bytes` is the position in the present frame.
    fn stale_frames(&self, bytes: usize) -> u64 {
        (bytes as u64 + self.source.unread_bytes()) / self.frame_bytes as u64
    }
}
