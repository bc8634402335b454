//! What an ending program waits for of its writes.

use std::time::{Duration, Instant};

use crate::writer::handle::check_readers;
use crate::writer::stream::Stream;

/// Waits for what is queued now on all streams of the process, writers' too, for as long as any of them makes progress: the
/// last thing before a program ends. Gives the bytes that no destination has taken after `stall` without any, or when
/// `keep_on`, asked every 20 ms, says no. What failures have lost is not among them: see [`take_unheard_bytes`].
///
/// [`take_unheard_bytes`]: crate::take_unheard_bytes
#[must_use]
pub fn drain_all(stall: Duration, mut keep_on: impl FnMut() -> bool) -> u64 {
    const LOOK: Duration = Duration::from_millis(20);
    // What threads go on to queue meanwhile is not waited for, or they would keep the program for ever.
    let queued: Vec<_> =
        Stream::all().into_iter().map(|stream| (stream.queue.accepted_items(), stream)).collect();
    let mut seen = (u64::MAX, 0);
    let mut since = Instant::now();
    loop {
        let items: u64 = queued.iter().map(|(items, stream)| stream.queue.pending_of(*items)).sum();
        let written: u64 = queued.iter().map(|(_, stream)| stream.meter.written_bytes()).sum();
        if items == 0 {
            check_readers();
            return 0;
        }
        if (items, written) != seen {
            seen = (items, written);
            since = Instant::now();
        }
        if since.elapsed() >= stall || !keep_on() {
            return queued.iter().map(|(_, stream)| stream.unwritten_bytes()).sum();
        }
        std::thread::sleep(LOOK);
    }
}
