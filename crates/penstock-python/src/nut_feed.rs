//! Frames and sound with their times, in Python.

use std::time::Duration;

use penstock_core::{Error, Rejected};
use penstock_frames::{FrameTime, NutFeed as Feed, PREFIX_BYTES, Track};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arguments::Timeout;
use crate::buffer::{self, release_parked};
use crate::errors::{OrRaise, WRITER};
use crate::slot::Slot;
use crate::ticket::Ticket;
use crate::waiting::{Attempt, until};
use crate::writer::Writer;

/// Queues frames and sound of a NUT stream, each numbered in the step that queues it: whatever a signal handler
/// raises, its counts are those of the queue.
///
/// A track is a unit's number, what is added to a full time, and the scale, offset and divisor of its times. The
/// picture's comes first.
#[pyclass(frozen, name = "_NutFeed", module = "penstock._native")]
pub(crate) struct NutFeed {
    writer: Py<Writer>,
    feed: Feed,
}

#[pymethods]
impl NutFeed {
    /// Bytes before each frame, which its slot has room for.
    #[classattr]
    #[pyo3(name = "_PREFIX_BYTES")]
    const PREFIX: usize = PREFIX_BYTES;

    #[new]
    fn new(
        writer: Py<Writer>,
        head: Vec<u8>,
        unit_count: u64,
        tracks: Vec<(u64, u64, u64, u64, u64)>,
        py: Python<'_>,
    ) -> PyResult<Self> {
        let tracks = tracks.into_iter().map(|(unit, full_time, scale, offset, divisor)| Track {
            unit,
            full_time,
            scale,
            offset,
            divisor,
        });
        let feed = Feed::begin(&writer.get().writer, head, unit_count, tracks.collect()).or_raise(py)?;
        Ok(Self { writer, feed })
    }

    /// What comes before a frame of so many bytes at that tick.
    fn prefix(&self, tick: u64, nbytes: usize) -> [u8; PREFIX_BYTES] {
        self.feed.frame_prefix(tick, nbytes)
    }

    /// Queue a frame behind its prefix. At a constant rate, without ``tick``, the prefix is written now.
    ///
    /// None if ``after`` is not the tick of the frame before, which another thread has queued meanwhile.
    #[pyo3(signature = (slot, tick=None, after=None, *, timeout=None))]
    fn frame(
        &self,
        slot: &Bound<'_, Slot>,
        tick: Option<u64>,
        after: Option<u64>,
        timeout: Option<Timeout>,
    ) -> PyResult<Option<Ticket>> {
        let (writer, place) = (&self.writer.get().writer, slot.get());
        let time = tick.map_or(FrameTime::Next, |tick| FrameTime::At { tick, after });
        let mut frame = Some(buffer::export_for_write(slot)?);
        self.queue(slot.py(), timeout, || {
            let region = frame.take().expect("a rejected region came back");
            // SAFETY: at a constant rate, one feed has the slot, whose caller changes nothing any more.
            let write = |prefix: &[u8; PREFIX_BYTES]| unsafe { place.write_prefix(prefix) };
            self.feed.push_frame(writer, region, time, write).map_err(|Rejected { region, error }| {
                frame = Some(region);
                error
            })
        })
        .map(|ticket| ticket.map(Ticket))
    }

    /// Queue a copy of samples behind those before, in packets of at most ``most_bytes``.
    #[pyo3(signature = (track, samples, sample_bytes, most_bytes, *, timeout=None))]
    fn samples(
        &self,
        py: Python<'_>,
        track: usize,
        samples: PyBackedBytes,
        sample_bytes: usize,
        most_bytes: usize,
        timeout: Option<Timeout>,
    ) -> PyResult<Ticket> {
        let writer = &self.writer.get().writer;
        self.queue(py, timeout, || self.feed.push_samples(writer, track, &samples, sample_bytes, most_bytes))
            .map(Ticket)
    }

    /// Queue packets, their times in units and their bytes, unless the first, of that number, was queued before.
    #[pyo3(signature = (track, first, packets, *, timeout=None))]
    fn packets(
        &self,
        py: Python<'_>,
        track: usize,
        first: u64,
        packets: Vec<(u64, PyBackedBytes)>,
        timeout: Option<Timeout>,
    ) -> PyResult<()> {
        let writer = &self.writer.get().writer;
        self.queue(py, timeout, || self.feed.push_packets(writer, track, first, &packets))
    }

    /// Frames or samples of a track that were queued; of packets, the number of the next one.
    fn count(&self, track: usize) -> u64 {
        self.feed.count(track)
    }

    /// How many frames are in the first so many bytes of the stream.
    fn frames_until(&self, nbytes: u64) -> u64 {
        self.feed.frames_until(nbytes)
    }

    /// The first frame's tick, the last one's, and how long that is after the one before; None without frames.
    #[getter]
    fn times(&self) -> Option<(u64, u64, u64)> {
        self.feed.times().map(|times| (times.first, times.last, times.step))
    }

    /// Seconds that calls have waited for room.
    #[getter]
    fn waited_s(&self) -> f64 {
        self.feed.waited().as_secs_f64()
    }
}

impl NutFeed {
    /// Makes the attempt until there is room.
    fn queue<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Timeout>,
        mut attempt: impl FnMut() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let queued = until(py, timeout, |slice: Duration| {
            let queued = Attempt::from(attempt());
            if matches!(queued, Attempt::NotYet { .. }) {
                self.feed.wait_for_room(&self.writer.get().writer, slice);
            }
            queued
        });
        release_parked(py);
        queued?.or_raise_of(py, WRITER)
    }
}
