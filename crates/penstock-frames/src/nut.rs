//! The packets of a NUT stream, numbered in the step that queues them.
//!
//! FFmpeg reads raw frames and sound with their times from one such stream. Each packet has a prefix, which names the packet's track
//! and its time. The encoder's layer (`python/penstock/_encoding/nut.py`) has FFmpeg write the head of the stream.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_core::engine::{Own, Stopwatch, lock};
use penstock_core::{Error, Region, Rejected, Ticket, Writer};

const SYNC_POINT: [u8; 8] = *b"\x4eK\xe4\xad\xee\xcaE\x69";
/// The frame code of FFmpeg's writer whose flags all come in the packet.
const FRAME_CODE: u8 = 1;
/// Key frame, coded time, number of the track, size and checksum, which frames of more than 64 KiB require.
const FLAGS: u64 = 1 | 8 | 16 | 32 | 64;
/// Nine bytes hold every time and every size.
const NUMBER_BYTES: usize = 9;
const POINT_BYTES: usize = 2 * NUMBER_BYTES;
const PACKET_BYTES: usize = 1 + 4 * NUMBER_BYTES;
const CHECKSUM_BYTES: usize = 4;
/// The size of a prefix.
pub const PREFIX_BYTES: usize =
    SYNC_POINT.len() + 1 + POINT_BYTES + CHECKSUM_BYTES + PACKET_BYTES + CHECKSUM_BYTES;

/// Frames whose ends in the stream are kept: more than any queue usually has.
const KEPT_ENDS: usize = 1 << 12;

/// How the times of a track are written.
#[derive(Clone, Copy, Debug)]
pub struct Track {
    /// The number of its unit of time among all of the stream's.
    pub unit: u64,
    /// What is added to a time that is written in full.
    pub full_time: u64,
    /// What is counted (frames, samples or the caller's ticks) begins at (`count` × `scale` + `offset`) / `divisor` units.
    pub scale: u64,
    /// See `scale`.
    pub offset: u64,
    /// See `scale`.
    pub divisor: u64,
}

impl Track {
    /// A time in units, rounded to the nearest.
    fn time(&self, count: u64) -> u64 {
        let (exact, divisor) =
            (u128::from(count) * u128::from(self.scale) + u128::from(self.offset), u128::from(self.divisor));
        ((2 * exact + divisor) / (2 * divisor)) as u64
    }
}

/// When a frame is shown.
#[derive(Clone, Copy, Debug)]
pub enum FrameTime {
    /// The next one at a constant rate. Its prefix is written when it is queued.
    Next,
    /// At that tick, if the frame before is that of the tick `after`. Its memory has the prefix already.
    At {
        /// When.
        tick: u64,
        /// None if there is no frame before.
        after: Option<u64>,
    },
}

/// The ticks of the picture; at a constant rate, the numbers of its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PictureTimes {
    /// The first frame's time.
    pub first: u64,
    /// The last frame's time.
    pub last: u64,
    /// From the frame before the last to the last; 0 if there is none.
    pub step: u64,
}

/// What was queued. The lock is held while an item is queued, and never in a wait.
#[derive(Default)]
struct State {
    /// Frames, samples or packets of each track.
    counts: Vec<u64>,
    times: Option<PictureTimes>,
    bytes: u64,
    /// Where the last frames end in the stream.
    ends: VecDeque<u64>,
}

impl State {
    fn note_frame(&mut self, tick: u64) {
        let step = self.times.map_or(0, |times| tick - times.last);
        self.times =
            Some(PictureTimes { first: self.times.map_or(tick, |times| times.first), last: tick, step });
        self.counts[PICTURE] += 1;
        self.ends.push_back(self.bytes);
        if self.ends.len() > KEPT_ENDS {
            self.ends.pop_front();
        }
    }
}

/// The number of the picture's track.
const PICTURE: usize = 0;

/// Queues the packets of a NUT stream. Nothing here waits for room: a full queue is [`Error::Stalled`] at once.
pub struct NutFeed {
    unit_count: u64,
    tracks: Vec<Track>,
    state: Own<Mutex<State>>,
    waited: Stopwatch,
}

impl std::fmt::Debug for NutFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NutFeed").field("tracks", &self.tracks.len()).finish_non_exhaustive()
    }
}

impl NutFeed {
    /// Queues the head of the stream.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`].
    pub fn begin(writer: &Writer, head: Vec<u8>, unit_count: u64, tracks: Vec<Track>) -> Result<Self, Error> {
        let state = State { counts: vec![0; tracks.len()], bytes: head.len() as u64, ..State::default() };
        writer.submit(head, None)?;
        Ok(Self { unit_count, tracks, state: Own::new(Mutex::new(state)), waited: Stopwatch::default() })
    }

    /// The prefix of a frame of so many bytes at that tick.
    #[must_use]
    pub fn frame_prefix(&self, tick: u64, bytes: usize) -> [u8; PREFIX_BYTES] {
        self.prefix(PICTURE, self.tracks[PICTURE].time(tick), bytes)
    }

    /// Queues a frame, which begins with room for its prefix. `write` writes the prefix where that is not done.
    ///
    /// None if the frame before is another one than the time says: the caller looks again whether its time grows.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit_transformed`].
    pub fn push_frame<R: Region>(
        &self,
        writer: &Writer,
        frame: R,
        time: FrameTime,
        write: impl FnOnce(&[u8; PREFIX_BYTES]),
    ) -> Result<Option<Ticket>, Rejected<R>> {
        let Some(state) = self.state.get() else {
            return Err(Rejected { region: frame, error: Error::Forked });
        };
        let mut state = lock(state);
        let bytes = frame.len();
        let tick = match time {
            FrameTime::Next => {
                let number = state.counts[PICTURE];
                write(&self.frame_prefix(number, bytes - PREFIX_BYTES));
                number
            }
            FrameTime::At { after, .. } if after != state.times.map(|times| times.last) => return Ok(None),
            FrameTime::At { tick, .. } => tick,
        };
        let ticket = writer.submit_transformed(frame, Some(Duration::ZERO))?;
        state.bytes += bytes as u64;
        state.note_frame(tick);
        Ok(Some(ticket))
    }

    /// Queues a copy of samples behind those before, in packets of at most `most_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`].
    pub fn push_samples(
        &self,
        writer: &Writer,
        track: usize,
        samples: &[u8],
        sample_bytes: usize,
        most_bytes: usize,
    ) -> Result<Ticket, Error> {
        let mut state = lock(self.state.get().ok_or(Error::Forked)?);
        let (mut made, mut count) = (Vec::new(), state.counts[track]);
        for packet in samples.chunks(most_bytes) {
            self.append(&mut made, track, self.tracks[track].time(count), packet);
            count += (packet.len() / sample_bytes) as u64;
        }
        let ticket = push(&mut state, writer, made)?;
        state.counts[track] = count;
        Ok(ticket)
    }

    /// Queues a copy of packets as one item: their times in units, and their bytes. Does nothing if the first, of that number, was
    /// queued before.
    ///
    /// # Errors
    ///
    /// As [`Writer::submit`].
    pub fn push_packets<D: AsRef<[u8]>>(
        &self,
        writer: &Writer,
        track: usize,
        first: u64,
        packets: &[(u64, D)],
    ) -> Result<(), Error> {
        let mut state = lock(self.state.get().ok_or(Error::Forked)?);
        if first < state.counts[track] {
            return Ok(());
        }
        let mut made = Vec::new();
        for (time, data) in packets {
            self.append(&mut made, track, *time, data.as_ref());
        }
        push(&mut state, writer, made)?;
        state.counts[track] = first + packets.len() as u64;
        Ok(())
    }

    /// Waits until there may be room in the queue.
    pub fn wait_for_room(&self, writer: &Writer, timeout: Duration) {
        let start = Instant::now();
        if let Some(oldest) = writer.oldest() {
            let _ = oldest.wait_for(Some(timeout)); // the next attempt tells of a failure
        }
        self.waited.add(start.elapsed());
    }

    /// Time spent in [`wait_for_room`](Self::wait_for_room).
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited.sum()
    }

    /// Frames or samples of a track that were queued; of packets with numbers, the number of the next one.
    #[must_use]
    pub fn count(&self, track: usize) -> u64 {
        self.state.get().map_or(0, |state| lock(state).counts[track])
    }

    /// The times of the picture; none before its first frame.
    #[must_use]
    pub fn times(&self) -> Option<PictureTimes> {
        self.state.get().and_then(|state| lock(state).times)
    }

    /// How many frames are in the first so many bytes of the stream.
    #[must_use]
    pub fn frames_until(&self, bytes: u64) -> u64 {
        let Some(state) = self.state.get() else { return 0 };
        let state = lock(state);
        state.counts[PICTURE] - (state.ends.len() - state.ends.partition_point(|end| *end <= bytes)) as u64
    }

    fn append(&self, made: &mut Vec<u8>, track: usize, time: u64, data: &[u8]) {
        made.extend(self.prefix(track, time, data.len()));
        made.extend(data);
    }

    fn prefix(&self, track: usize, time: u64, bytes: usize) -> [u8; PREFIX_BYTES] {
        let clock = &self.tracks[track];
        let mut prefix = Vec::with_capacity(PREFIX_BYTES);
        prefix.extend(SYNC_POINT);
        prefix.push((POINT_BYTES + CHECKSUM_BYTES) as u8);
        // Times of more than 63 bits, longer than 292,000 years, have no form.
        let point = time.wrapping_mul(self.unit_count).wrapping_add(clock.unit);
        extend_checked(&mut prefix, &[], &[point, 0]);
        let packet = [FLAGS, track as u64, time.wrapping_add(clock.full_time), bytes as u64];
        extend_checked(&mut prefix, &[FRAME_CODE], &packet);
        prefix.try_into().expect("all parts have fixed sizes")
    }
}

fn push(state: &mut State, writer: &Writer, made: Vec<u8>) -> Result<Ticket, Error> {
    let bytes = made.len() as u64;
    let ticket = writer.submit(made, Some(Duration::ZERO))?;
    state.bytes += bytes;
    Ok(ticket)
}

/// Appends bytes and numbers, and their checksum.
fn extend_checked(prefix: &mut Vec<u8>, first: &[u8], numbers: &[u64]) {
    let start = prefix.len();
    prefix.extend(first);
    for number in numbers {
        // Seven bits a byte, the highest first; the last byte lacks the top bit.
        prefix.extend((1..NUMBER_BYTES).rev().map(|place| (number >> (7 * place)) as u8 & 127 | 128));
        prefix.push(*number as u8 & 127);
    }
    let crc = checksum(&prefix[start..]);
    prefix.extend(crc.to_be_bytes());
}

/// NUT's CRC-32: polynomial 0x04C11DB7, the highest bit first, from 0.
fn checksum(data: &[u8]) -> u32 {
    data.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            (crc << 1) ^ (0x04C1_1DB7 & (crc >> 31).wrapping_neg())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_specification() {
        assert_eq!(checksum(b"123456789"), 0x89A1_897F); // CRC-32/MPEG-2 from 0
    }

    #[test]
    fn times_are_rounded_to_the_nearest() {
        let track = Track { unit: 0, full_time: 0, scale: 2, offset: 1, divisor: 4 };
        assert_eq!([0, 1, 2, 3].map(|count| track.time(count)), [0, 1, 1, 2]);
    }
}
