//! What a stream counts.

use std::sync::Mutex;

use crate::counter::{Counter, Stopwatch};
use crate::sync::lock;
use crate::writer::transport::choice::{Reason, Transport};

#[derive(Default)]
pub(crate) struct Meter {
    /// Bytes that the destination has taken, by transport.
    written: [Counter; 3],
    /// Accepted bytes that will not arrive: discarded, or lost to a failure.
    pub(crate) lost_bytes: Counter,
    /// Time that callers waited for room.
    pub(crate) caller_blocked: Stopwatch,
    /// Time that the worker waited for the reader.
    pub(crate) worker_blocked: Stopwatch,
    /// Time that the worker spent on writes, waiting included.
    pub(crate) worker_busy: Stopwatch,
    /// Time spent in transforms.
    pub(crate) transforming: Stopwatch,
    /// The last transport and its reason; none before the first write.
    choice: Mutex<Option<(Transport, Reason)>>,
}

const TRANSPORTS: [Transport; 3] = [Transport::Write, Transport::Staged, Transport::ZeroCopy];

impl Meter {
    pub(crate) fn add_written(&self, transport: Transport, bytes: usize) {
        self.written[transport as usize].add(bytes as u64);
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written.iter().map(Counter::get).sum()
    }

    pub(crate) fn written_by(&self) -> [(Transport, u64); 3] {
        TRANSPORTS.map(|transport| (transport, self.written[transport as usize].get()))
    }

    pub(crate) fn set_choice(&self, transport: Transport, reason: Reason) {
        *lock(&self.choice) = Some((transport, reason));
    }

    pub(crate) fn choice(&self) -> Option<(Transport, Reason)> {
        *lock(&self.choice)
    }
}
