//! Chooses a transport for each write, and falls back to write(2) where it is refused.

use std::time::{Duration, Instant};

use super::choice::{MemoryOwner, Mode, ReaderKind, Reason, STAGED_MIN_BYTES, Transport, WriteOptions};
use super::sink::{Sink, Stop};
use super::staged::Staging;
use super::write::{BouncePipe, Copier};
use super::zero_copy;
use crate::sys::span::Span;
use crate::sys::{SysError, fd, memory, pipe};

/// Smaller pipes are written: staging needs room for the reader to work on one piece while the next is filled.
const STAGED_MIN_CAPACITY_BYTES: usize = 256 << 10;

/// The transports of one worker, with their memory.
#[derive(Default)]
pub(crate) struct Engine {
    copier: Copier,
    staging: Option<Staging>,
    has_huge_pages: Option<bool>,
    /// Why pipes get no pages.
    against_pages: Option<Reason>,
    balance: Balance,
}

/// Which side is slower: a running mean of the share of time that large writes waited for the reader.
#[derive(Default)]
struct Balance {
    waiting_share: f64,
    reader_is_slower: bool,
}

impl Balance {
    /// The weight of the last write. Guessed: some ten writes decide, a single odd one does not.
    const WEIGHT: f64 = 0.2;
    /// Above, the reader counts as the slower side, below not. In between nothing changes.
    ///
    /// Measured with FFmpeg, 2-core x86-64 VM, Linux 6.18, 2026-11-21 (records of that day in `benchmarks/`): encoding
    /// with x264 it is waited for nearly all the time, and zero-copy leaves it 0.1 to 0.2 s of CPU time a GB. Reading to
    /// null on an idle machine it is waited for a tenth to a quarter of the time, and reused staging is ahead by 1.1 to 1.2.
    const SLOWER_ABOVE: f64 = 0.6;
    const FASTER_BELOW: f64 = 0.4;

    fn note(&mut self, waited: Duration, took: Duration) {
        if took.is_zero() {
            return;
        }
        let share = (waited.as_secs_f64() / took.as_secs_f64()).min(1.0);
        self.waiting_share += Self::WEIGHT * (share - self.waiting_share);
        if self.waiting_share > Self::SLOWER_ABOVE {
            self.reader_is_slower = true;
        } else if self.waiting_share < Self::FASTER_BELOW {
            self.reader_is_slower = false;
        }
    }
}

impl Engine {
    pub(crate) fn new(bounce: Option<BouncePipe>) -> Self {
        let against_pages = Reason::against_pages();
        Self { copier: Copier::new(bounce), against_pages, ..Self::default() }
    }

    /// Puts the span into the stream. Returns the transport of its last byte.
    ///
    /// # Safety
    ///
    /// The span's memory is readable until this returns, and with zero-copy unwritten until it has been read.
    pub(crate) unsafe fn push(
        &mut self,
        sink: &Sink<'_>,
        span: Span,
        options: &WriteOptions,
    ) -> std::result::Result<Transport, (Stop, Transport)> {
        let (transport, mut reason) = self.choose(sink, span.len(), options);
        if transport == Transport::Write && self.copier.is_slow(sink, span.len()) {
            reason = Reason::NoNonBlockingWrite;
        }
        sink.meter.set_choice(transport, reason);
        let (start, waited_before) = (Instant::now(), sink.meter.worker_blocked.sum());
        // SAFETY: this function's own contract.
        let outcome = unsafe { self.push_or_write(transport, sink, span) };
        if span.len() >= STAGED_MIN_BYTES {
            self.balance.note(sink.meter.worker_blocked.sum() - waited_before, start.elapsed());
        }
        outcome
    }

    /// Pushes by that transport. Uses write(2) for memory that a pipe cannot be given.
    ///
    /// Not a copy of ours: if the memory is gone, write(2) fails, where a copy would end the program.
    ///
    /// # Safety
    ///
    /// As for `push`.
    unsafe fn push_or_write(
        &mut self,
        transport: Transport,
        sink: &Sink<'_>,
        span: Span,
    ) -> std::result::Result<Transport, (Stop, Transport)> {
        // SAFETY: by the contract of this function, the span is readable until it returns, and with zero-copy unwritten until it has
        // been read: no transport asks for more.
        let mut outcome = unsafe {
            match (transport, &mut self.staging) {
                (Transport::ZeroCopy, _) => zero_copy::push(sink, span),
                (Transport::Staged, Some(staging)) => staging.push(sink, span),
                _ => self.copier.push(sink, span),
            }
        };
        if let Err(Stop::Failed { errno, rest }) = outcome
            && transport != Transport::Write
            && let Some(reason) = self.reason_to_write(errno)
        {
            sink.meter.set_choice(Transport::Write, reason);
            // SAFETY: as above; the rest is a part of the span.
            outcome = unsafe { self.copier.push(sink, rest) };
        }
        // Also after writing the rest: what went before may still be in the pipe as the caller's pages.
        outcome.map(|()| transport).map_err(|stop| (stop, transport))
    }

    fn reason_to_write(&mut self, errno: SysError) -> Option<Reason> {
        if errno.is_refusal() {
            self.against_pages = Some(Reason::NoVmsplice);
            self.against_pages
        } else {
            pipe::cannot_pin(errno).then_some(Reason::CannotPin)
        }
    }

    fn choose(&mut self, sink: &Sink<'_>, bytes: usize, options: &WriteOptions) -> (Transport, Reason) {
        let reader = options.reader;
        let reason = match (options.mode, reader, self.against_pages) {
            (Mode::Write, ..) => return (Transport::Write, Reason::Asked),
            _ if sink.kind != fd::Kind::Pipe => return (Transport::Write, Reason::NotAPipe),
            (Mode::Auto, ..) if bytes < STAGED_MIN_BYTES => {
                return (Transport::Write, Reason::SmallPiece);
            }
            (.., Some(reason)) => return (Transport::Write, reason),
            (Mode::ZeroCopy, ..) => return (Transport::ZeroCopy, Reason::Asked),
            (Mode::Auto, ReaderKind::Reads, _) if options.memory == MemoryOwner::Ours => {
                return (Transport::ZeroCopy, Reason::OurPages);
            }
            (Mode::Auto, ReaderKind::Reads, _) if self.balance.reader_is_slower => {
                return (Transport::ZeroCopy, Reason::ReaderIsSlower);
            }
            (Mode::Auto, ReaderKind::Reads, _) => Reason::ReaderKeepsUp,
            (Mode::Staged, ..) => Reason::Asked,
            (Mode::Auto, ReaderKind::Unknown, _) => Reason::ReaderUnknown,
        };
        if !pipe::capacity(sink.fd).is_ok_and(|bytes| bytes >= STAGED_MIN_CAPACITY_BYTES) {
            (Transport::Write, Reason::SmallPipe)
        } else if reader == ReaderKind::Unknown
            && !*self.has_huge_pages.get_or_insert_with(memory::has_huge_pages)
        {
            (Transport::Write, Reason::NoHugePages)
        } else {
            match Staging::suited(self.staging.take(), reader) {
                Ok(staging) => {
                    self.staging = Some(staging);
                    (Transport::Staged, reason)
                }
                Err(reason) => (Transport::Write, reason),
            }
        }
    }
}
