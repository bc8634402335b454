//! Waits for the writes of a program that is about to end.

use std::time::{Duration, Instant};

use crate::runtime::exit::{self, ProcessEnd, STALL};
use crate::writer::stream::Stream;
use crate::writer::unreported::take_unreported_bytes;

pub(super) static DRAIN: ProcessEnd = ProcessEnd::new(run);

extern "C" fn run() {
    let lost = drain_streams(STALL, || true);
    if lost > 0 {
        exit::report(&format!(
            "{lost} bytes were lost, because the program ended and nothing moved for {} s",
            STALL.as_secs()
        ));
    }
    let unreported = take_unreported_bytes();
    if unreported > 0 {
        exit::report(&format!(
            "{unreported} bytes were lost, because the reader went away or the destination failed. Call flush() or close() \
             to get this as an error"
        ));
    }
}

/// Waits at the end of a program until all streams have delivered what is queued now, those of writers included.
///
/// Gives up when no stream has made progress for `stall`, or when `keep_on`, called every 20 ms, returns false. Returns the
/// number of bytes that were not delivered then. Bytes lost to failures do not count: see [`take_unreported_bytes`].
///
/// [`take_unreported_bytes`]: crate::process::take_unreported_bytes
#[must_use]
pub fn drain_streams(stall: Duration, keep_on: impl FnMut() -> bool) -> u64 {
    // Only what is queued now, or threads that go on writing would keep the program running.
    let queued: Vec<_> =
        Stream::all().into_iter().map(|stream| (stream.queue.accepted_items(), stream)).collect();
    let pending = || queued.iter().map(|(items, stream)| stream.queue.pending_of(*items)).sum::<usize>();
    let written = || queued.iter().map(|(_, stream)| stream.meter.written_bytes()).sum();
    exit::drain(stall, keep_on, || (pending() as u64, written()));
    if pending() > 0 {
        return queued.iter().map(|(_, stream)| stream.unwritten_bytes()).sum();
    }
    for (_, stream) in &queued {
        stream.writers().iter().for_each(|writer| {
            let now = Instant::now();
            let _ = stream.check_reader(&writer.fd, now, Some(now)); // which counts as not reported
        });
    }
    0
}
