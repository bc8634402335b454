//! How bytes enter a stream: a closed set of transports behind one `engine`.
//!
//! - [`write`](mod@write): the kernel copies. The portable way, and the way for files and sockets.
//! - [`staged`]: we copy into pages that are then given to the pipe.
//! - [`zero_copy`]: the caller's own pages are given to the pipe.

pub(crate) mod choice;
pub(crate) mod engine;
pub(crate) mod sink;
pub(crate) mod staged;
pub(crate) mod write;
pub(crate) mod zero_copy;
<<<<<<< HEAD
=======

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};

use crate::memory::region::Span;
use crate::memory::transform::Recipe;
use crate::sys::{fd, memory, pipe};
use crate::writer::meter::Meter;
use staged::Staging;
pub use staged::set_staging_budget;

/// Which transport a write asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The fastest that is safe for this destination, its reader and this size.
    #[default]
    Auto,
    /// Copied by the kernel.
    Write,
    /// Copied by us into pages that the pipe takes over. Pipes only; anything else is written.
    Staged,
    /// The caller's own pages. The ticket ends when the reader has read them; right only for readers that copy
    /// (read(2)), as a reader that splices onward would see what the memory holds later. Pipes only.
    ZeroCopy,
}

/// What is known of the process at the other end of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderKind {
    /// Nothing: it may pass pages on without reading them.
    #[default]
    Unknown,
    /// It takes bytes with read(2), as FFmpeg does, so that a page is free once the pipe has let go of it.
    Reads,
}

/// How one write is to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) mode: Mode,
    pub(crate) reader: ReaderKind,
    pub(crate) memory: Memory,
    /// What is to be made of the memory; none if it is what enters the stream.
    pub(crate) recipe: Option<Arc<dyn Recipe>>,
}

/// Whose memory a write is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Memory {
    #[default]
    Callers,
    /// What a recipe made, or what was taken at the call: nobody writes to it again.
    Ours,
}

/// A way in which bytes enter a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// See [`Mode::Write`].
    Write,
    /// See [`Mode::Staged`].
    Staged,
    /// See [`Mode::ZeroCopy`].
    ZeroCopy,
}

impl Transport {
    /// Its name in statistics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Staged => "staged",
            Self::ZeroCopy => "zero-copy",
        }
    }
}

/// Why a transport was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// The mode named it.
    Asked,
    /// Nothing but a pipe takes pages.
    NotAPipe,
    /// `auto`: below [`STAGED_MIN_BYTES`] a system call costs more than a copy.
    SmallPiece,
    /// The pipe is too small for pages to be worth it.
    SmallPipe,
    /// The kernel gives no huge pages, without which fresh pages cost more than they save.
    NoHugePages,
    /// The staging memory could not be had.
    NoMemory,
    /// Other streams have all of the process's staging memory: see [`set_staging_budget`].
    NoShare,
    /// The kernel cannot pin the caller's memory.
    CannotBeGiven,
    /// The system lacks vmsplice(2), or forbids it.
    GivingIsRefused,
    /// `auto`: the reader copies and is the slower side, so that sparing a copy leaves it the CPU.
    ReaderIsSlower,
    /// `auto`: the reader copies and keeps up, which it does best with pages that are in the cache.
    ReaderKeepsUp,
    /// `auto`: the reader is not known, so that a page in flight must never be written again.
    ReaderUnknown,
    /// `auto`: the bytes are in pages of ours, and the reader copies.
    MadeHere,
}

impl Reason {
    const ALL: [Self; 13] = [
        Self::Asked,
        Self::NotAPipe,
        Self::SmallPiece,
        Self::SmallPipe,
        Self::NoHugePages,
        Self::NoMemory,
        Self::NoShare,
        Self::CannotBeGiven,
        Self::GivingIsRefused,
        Self::ReaderIsSlower,
        Self::ReaderKeepsUp,
        Self::ReaderUnknown,
        Self::MadeHere,
    ];

    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Asked => "asked for",
            Self::NotAPipe => "the destination is not a pipe",
            Self::SmallPiece => "auto: small pieces are cheaper to write",
            Self::SmallPipe => "the pipe is too small for pages to pay",
            Self::NoHugePages => "the system gives no transparent huge pages",
            Self::NoMemory => "the system gave no memory for staging",
            Self::NoShare => "other streams have all of the process's staging memory",
            Self::CannotBeGiven => "the kernel cannot pin this memory (EFAULT)",
            Self::GivingIsRefused => "the system lacks vmsplice(2), or forbids it",
            Self::ReaderIsSlower => "auto: the reader copies what it reads, and is the slower side",
            Self::ReaderKeepsUp => "auto: the reader copies what it reads, and keeps up",
            Self::ReaderUnknown => "auto: the reader is not known",
            Self::MadeHere => "auto: the bytes are in pages of our own, and the reader copies what it reads",
        }
    }

    pub(crate) fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

/// Below this, `auto` writes. Guessed from the size of a default pipe, above which a write has to wait anyway.
pub const STAGED_MIN_BYTES: usize = 64 << 10;

/// Pipes below this are written: staging needs room for the reader to work on one piece while we fill the next.
const STAGED_MIN_CAPACITY_BYTES: usize = 256 << 10;

/// How long a worker waits for its reader before it looks whether it was told to stop.
const STOP_CHECK: Duration = Duration::from_millis(50);

/// Why a worker stopped in the middle of a write.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The caller gave the write up.
    Cut,
    /// The system refused; this is what it did not take.
    Failed { errno: Errno, rest: Span },
}

/// The destination of one write: handles what every transport meets (EINTR, EAGAIN, short writes), once.
pub(crate) struct Sink<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) kind: fd::Kind,
    pub(crate) meter: &'a Meter,
    /// The number of the write that is to be cut.
    pub(crate) cut: &'a AtomicU64,
    pub(crate) number: u64,
    /// Called whenever the reader may have made progress.
    pub(crate) on_progress: &'a dyn Fn(),
    /// Called when there is no room: does something short that is of use, or says that there is nothing.
    pub(crate) use_wait: &'a dyn Fn() -> bool,
}

impl Sink<'_> {
    /// Puts all of the span in, in pieces, by an attempt that may take less, be interrupted or find no room.
    pub(crate) fn push_all(
        &self,
        mut span: Span,
        piece_bytes: usize,
        transport: Transport,
        mut attempt: impl FnMut(Span) -> Result<usize>,
    ) -> std::result::Result<(), Stop> {
        while span.len() > 0 {
            // Relaxed: the number is all there is to see, and seeing it a piece later is soon enough.
            if self.cut.load(Ordering::Relaxed) == self.number {
                return Err(Stop::Cut);
            }
            match attempt(span.first(piece_bytes)) {
                // For a length above zero POSIX leaves 0 to odd devices; to go on would be to spin.
                Ok(0) => {
                    return Err(Stop::Failed { errno: Errno::IO, rest: span });
                }
                Ok(taken) => {
                    self.meter.add_written(transport, taken);
                    span = span.skip(taken);
                    (self.on_progress)();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room(),
                Err(errno) => return Err(Stop::Failed { errno, rest: span }),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self) {
        if (self.use_wait)() {
            return;
        }
        let start = Instant::now();
        fd::wait_writable(self.fd, STOP_CHECK);
        self.meter.add_worker_blocked(start.elapsed());
        (self.on_progress)();
    }

    /// The pipe's size now; none if the system does not say.
    fn capacity_bytes(&self) -> Option<usize> {
        pipe::capacity(self.fd).ok()
    }
}

/// One worker's transports, with the memory that they need.
#[derive(Default)]
pub(crate) struct Engine {
    staging: Option<Staging>,
    has_huge_pages: Option<bool>,
    giving_is_refused: bool,
    balance: Balance,
}

/// Who waits for whom: a running share of the time of large writes that went into waiting for the reader.
#[derive(Default)]
struct Balance {
    waiting_share: f64,
    reader_is_slower: bool,
}

impl Balance {
    /// How much the last write counts. Guessed: some ten writes decide, and one odd one does not.
    const WEIGHT: f64 = 0.2;
    /// Above, the reader is the slower side, and below it is not; in between all stays as it is.
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
    /// Puts the span into the stream. Says by which transport its last byte went.
    ///
    /// # Safety
    ///
    /// The span's memory is readable until this returns, and with zero-copy unwritten until it has been read.
    pub(crate) unsafe fn push(
        &mut self,
        sink: &Sink<'_>,
        span: Span,
        manner: &Manner,
    ) -> std::result::Result<Transport, (Stop, Transport)> {
        let (transport, reason) = self.choose(sink, span.len(), manner);
        sink.meter.set_choice(transport, reason);
        let (start, waited_before) = (Instant::now(), sink.meter.worker_blocked());
        // SAFETY: this function's own contract.
        let outcome = unsafe { self.push_or_write(transport, sink, span) };
        if span.len() >= STAGED_MIN_BYTES {
            self.balance.note(sink.meter.worker_blocked() - waited_before, start.elapsed());
        }
        outcome
    }

    /// Pushes by that transport, and writes what turns out to be no memory that a pipe can be given.
    ///
    /// By write(2) and not by a copy of ours: where the memory has gone, that is an error and not the end of the program.
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
        // SAFETY: the caller's promise.
        let mut outcome = unsafe { self.push_by(transport, sink, span) };
        if let Err(Stop::Failed { errno, rest }) = outcome
            && transport != Transport::Write
            && let Some(reason) = self.reason_to_write(errno)
        {
            sink.meter.set_choice(Transport::Write, reason);
            // SAFETY: as above; the rest is a part of the span.
            outcome = unsafe { write::push(sink, rest) };
        }
        // Also after a write of the rest: what went before may still be in the pipe as the caller's pages.
        outcome.map(|()| transport).map_err(|stop| (stop, transport))
    }

    fn reason_to_write(&mut self, errno: Errno) -> Option<Reason> {
        if pipe::giving_is_refused(errno) {
            self.giving_is_refused = true;
            Some(Reason::GivingIsRefused)
        } else {
            pipe::cannot_be_given(errno).then_some(Reason::CannotBeGiven)
        }
    }

    /// # Safety
    ///
    /// As for `push`.
    unsafe fn push_by(
        &mut self,
        transport: Transport,
        sink: &Sink<'_>,
        span: Span,
    ) -> std::result::Result<(), Stop> {
        // SAFETY: the caller's promise covers what each transport asks for.
        unsafe {
            match (transport, &mut self.staging) {
                (Transport::ZeroCopy, _) => zero_copy::push(sink, span),
                (Transport::Staged, Some(staging)) => staging.push(sink, span),
                _ => write::push(sink, span),
            }
        }
    }

    fn choose(&mut self, sink: &Sink<'_>, bytes: usize, manner: &Manner) -> (Transport, Reason) {
        let reader = manner.reader;
        let wish = match (manner.mode, reader) {
            (Mode::Write, _) => return (Transport::Write, Reason::Asked),
            _ if sink.kind != fd::Kind::Pipe => return (Transport::Write, Reason::NotAPipe),
            _ if self.giving_is_refused => return (Transport::Write, Reason::GivingIsRefused),
            (Mode::Auto, _) if bytes < STAGED_MIN_BYTES => {
                return (Transport::Write, Reason::SmallPiece);
            }
            (Mode::ZeroCopy, _) => return (Transport::ZeroCopy, Reason::Asked),
            (Mode::Auto, ReaderKind::Reads) if manner.memory == Memory::Ours => {
                return (Transport::ZeroCopy, Reason::MadeHere);
            }
            (Mode::Auto, ReaderKind::Reads) if self.balance.reader_is_slower => {
                return (Transport::ZeroCopy, Reason::ReaderIsSlower);
            }
            (Mode::Auto, ReaderKind::Reads) => Reason::ReaderKeepsUp,
            (Mode::Staged, _) => Reason::Asked,
            (Mode::Auto, ReaderKind::Unknown) => Reason::ReaderUnknown,
        };
        if sink.capacity_bytes().is_none_or(|bytes| bytes < STAGED_MIN_CAPACITY_BYTES) {
            (Transport::Write, Reason::SmallPipe)
        } else if reader == ReaderKind::Unknown && !self.has_huge_pages() {
            (Transport::Write, Reason::NoHugePages)
        } else {
            match Staging::suited(self.staging.take(), reader) {
                Ok(staging) => {
                    self.staging = Some(staging);
                    (Transport::Staged, wish)
                }
                Err(reason) => (Transport::Write, reason),
            }
        }
    }

    fn has_huge_pages(&mut self) -> bool {
        *self.has_huge_pages.get_or_insert_with(memory::has_huge_pages)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    use super::*;

    /// Pushes ten bytes through an attempt that answers by a script, and gives the answers that were left.
    fn push(script: Vec<Result<usize>>, cut: u64) -> (std::result::Result<(), Stop>, u64, u32) {
        let (_reader, writer) = std::io::pipe().unwrap();
        let (meter, cut, progress) = (Meter::default(), AtomicU64::new(cut), Cell::new(0));
        let sink = Sink {
            fd: writer.as_fd(),
            kind: fd::Kind::Pipe,
            meter: &meter,
            cut: &cut,
            number: 1,
            on_progress: &|| progress.set(progress.get() + 1),
            use_wait: &|| false,
        };
        let bytes = [0u8; 10];
        let mut answers = script.into_iter();
        let attempt = |_: Span| answers.next().expect("the script is long enough");
        let outcome = sink.push_all(Span::at(bytes.as_ptr(), 10), 4, Transport::Write, attempt);
        (outcome, meter.written_bytes(), progress.get())
    }

    #[test]
    fn short_writes_interruptions_and_full_pipes_are_got_over() {
        let script = vec![Ok(3), Err(Errno::INTR), Ok(1), Err(Errno::AGAIN), Err(Errno::INTR), Ok(4), Ok(2)];
        let (outcome, written, progress) = push(script, 0);
        assert!(outcome.is_ok());
        assert_eq!(written, 10);
        assert_eq!(progress, 5, "four pieces, and the wait for room");
    }

    #[test]
    fn a_failure_says_what_was_not_taken() {
        let (outcome, written, _) = push(vec![Ok(3), Err(Errno::NOSPC)], 0);
        let Err(Stop::Failed { errno, rest }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((errno, rest.len(), written), (Errno::NOSPC, 7, 3));
    }

    #[test]
    fn a_destination_that_takes_nothing_is_a_failure_and_no_endless_loop() {
        let (outcome, ..) = push(vec![Ok(3), Ok(0)], 0);
        assert!(matches!(outcome, Err(Stop::Failed { errno: Errno::IO, .. })));
    }

    #[test]
    fn a_cut_stops_between_pieces() {
        let (outcome, written, _) = push(vec![], 1);
        assert!(matches!(outcome, Err(Stop::Cut)));
        assert_eq!(written, 0);
    }

    #[test]
    fn every_reason_has_its_index() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_index(reason as u8), Some(reason));
        }
    }
}
>>>>>>> 08f6f06 (penstock_core::process: what concerns the whole process has a module of its own)
