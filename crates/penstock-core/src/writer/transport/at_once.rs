//! Small writes on the caller's thread, while nothing else is in flight: that costs less than to wake a worker.
//!
//! Measured: a submit and a wait of 100 bytes take 1.2 µs, and 7.6 by a worker that is awake (medians, from Python into a pipe, 2-core
//! x86-64 VM, Linux 6.18, 2026-11-29). Of 16 KiB, they take as long as by a worker.
//!
//! One wait is left: no call gets past a pipe's lock, which a reader keeps while the memory or file that it moves bytes to is slow. The
//! same holds for all that asks a pipe how much it holds.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::choice::{Mode, Reason, WriteOptions};
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind};
use crate::sys::span::Span;
use crate::sys::{Borrowed, SysError, pipe};

/// Larger writes are left to a worker: the copy would keep the caller. Chosen: what a pipe takes as a whole or not at all (`PIPE_BUF`,
/// pipe(7)).
const MOST_BYTES: usize = pipe::ATOMIC_BYTES;

/// A stream's first write may be larger: it may be the only one, and a worker would have to be started for it. Chosen: some 30 µs of
/// copying, which a thread takes to start.
const MOST_FIRST_BYTES: usize = 128 << 10;

/// What is known of such writes to one destination.
#[derive(Default)]
pub(crate) struct AtOnce {
    /// Whether the system has refused one whatever the descriptor's mode. Relaxed: whoever does not see it yet asks again.
    is_refused: AtomicBool,
}

impl AtOnce {
    /// The reason for the transport, which is `write`, if such a write may be made on the caller's thread.
    pub(crate) fn suits(kind: Kind, bytes: usize, options: &WriteOptions, is_first: bool) -> Option<Reason> {
        let most_bytes = if is_first && kind.joins_writes() { MOST_FIRST_BYTES } else { MOST_BYTES };
        if bytes > most_bytes || options.transform.is_some() {
            return None;
        }
        match (options.mode, kind) {
            (_, Kind::File | Kind::Other) => None, // may wait for a disk or a device
            (Mode::Write, _) => Some(Reason::Asked),
            (_, Kind::Packets | Kind::StreamSocket | Kind::Messages) => Some(Reason::NotAPipe),
            (Mode::Auto, Kind::Pipe) => Some(Reason::SmallPiece),
            (Mode::Staged | Mode::ZeroCopy, Kind::Pipe) => None,
        }
    }

    /// Writes what the destination takes without waiting, and returns how much that is; none where a worker must try. A failure counts: a
    /// socket reports what became of earlier bytes only once.
    ///
    /// # Safety
    ///
    /// The span's memory is readable until this returns.
    pub(crate) unsafe fn write(&self, fd: Borrowed<'_>, kind: Kind, span: Span) -> Option<Result<usize>> {
        let mut answer = Err(SysError::UNSUPPORTED);
        if !self.is_refused.load(Relaxed) {
            // SAFETY: this function's own contract.
            answer = unsafe { fd::write_at_once(fd, kind, span) };
        }
        if answer.is_err_and(SysError::is_refusal) {
            self.is_refused.store(true, Relaxed);
            // SAFETY: as above.
            answer = unsafe { fd::write_if_non_blocking(fd, span) };
        }
        match answer {
            Err(error) if error.would_block() || error.interrupted() || error.is_refusal() => None,
            answer => Some(answer),
        }
    }
}
