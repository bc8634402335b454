//! Waits for the writes of a program that is about to end.

use std::time::Duration;

use crate::runtime::exit::drain;
use crate::writer::handle::check_readers;
use crate::writer::stream::Stream;

/// Waits at the end of a program until all streams have delivered what is queued now, those of writers included.
///
/// Gives up when no stream has made progress for `stall`, or when `keep_on`, called every 20 ms, returns false. Returns the
/// number of bytes that were not delivered then. Bytes lost to failures do not count: see [`take_unheard_bytes`].
///
/// [`take_unheard_bytes`]: crate::process::take_unheard_bytes
#[must_use]
pub fn drain_streams(stall: Duration, keep_on: impl FnMut() -> bool) -> u64 {
    // Only what is queued now, or threads that go on writing would keep the program running.
    let queued: Vec<_> =
        Stream::all().into_iter().map(|stream| (stream.queue.accepted_items(), stream)).collect();
    let pending = || queued.iter().map(|(items, stream)| stream.queue.pending_of(*items)).sum();
    let written = || queued.iter().map(|(_, stream)| stream.meter.written_bytes()).sum();
    drain(stall, keep_on, || (pending(), written()));
    if pending() > 0 {
        return queued.iter().map(|(_, stream)| stream.unwritten_bytes()).sum();
    }
    check_readers();
    0
}
