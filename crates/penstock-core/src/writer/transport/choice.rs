//! What a write asks for, and which transport was chosen.

use std::fmt;
use std::sync::Arc;

use crate::memory::transform::Transform;
use crate::sys::kernel::{self, Vmsplice};

/// Which transport a write asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The fastest that is safe for this destination, its reader and this size.
    #[default]
    Auto,
    /// Copied by the kernel.
    Write,
    /// Copied by us into pages that the pipe takes over. Pipes only; other destinations are written.
    Staged,
    /// The caller's own pages. The ticket ends when the reader has read them. Right only for readers that copy
    /// (read(2)): a reader that splices onward would see later content of the memory. Pipes only.
    ZeroCopy,
}

/// What is known of the process at the other end of a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReaderKind {
    /// Nothing: it may pass pages on without copying them.
    #[default]
    Unknown,
    /// It reads with read(2), as FFmpeg does, so that a page is free once the pipe has released it.
    Reads,
}

/// How one write is to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    pub(crate) mode: Mode,
    pub(crate) reader: ReaderKind,
    pub(crate) memory: MemoryOwner,
    /// Whether it may become one write with others: a small copy, for a destination that keeps no messages.
    pub(crate) joins: bool,
    /// When the caller may write it.
    pub(crate) at_once: When,
    /// Applied to the memory first; none if the memory enters the stream as it is.
    pub(crate) transform: Option<Arc<dyn Transform>>,
}

/// When the caller of a small write may make it, instead of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum When {
    #[default]
    Never,
    /// As the stream's first, which may be its only one: for copies, of which the worker gathers many into one write.
    First,
    /// Whenever nothing is in flight.
    Idle,
}

/// Who owns the memory of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemoryOwner {
    #[default]
    Callers,
    /// A transform's output, or a copy that was taken at the call: nobody writes to it again.
    Ours,
}

/// How bytes enter a stream.
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

/// Why a transport was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The mode asks for it.
    Asked,
    /// Only pipes take pages.
    NotAPipe,
    /// `auto`: below 64 KiB a system call costs more than a copy. Below 128 KiB, the start of a worker for a stream's first write does.
    SmallPiece,
    /// The pipe is too small for pages to pay.
    SmallPipe,
    /// The kernel gives no huge pages, without which fresh pages cost more than they save.
    NoHugePages,
    /// The system gave no memory for staging.
    NoMemory,
    /// Other streams have all of the process's staging memory, 16 MiB.
    BudgetSpent,
    /// The kernel cannot pin the caller's memory.
    CannotPin,
    /// The system lacks vmsplice(2), or forbids it.
    NoVmsplice,
    /// vmsplice(2) copies on this kernel, so that it saves nothing.
    VmspliceCopies,
    /// The system cannot write to this pipe without blocking (Linux before 6.4, or a FIFO), and the pipe could not be opened
    /// again as non-blocking: it is written `PIPE_BUF` bytes at a time.
    NoNonBlockingWrite,
    /// `auto`: the reader copies and is the slower side, so that sparing a copy leaves it the CPU.
    ReaderIsSlower,
    /// `auto`: the reader copies and keeps up, which it does best with pages that are in the cache.
    ReaderKeepsUp,
    /// `auto`: the reader is not known, so that a page in flight must never be written again.
    ReaderUnknown,
    /// `auto`: the bytes are in pages of ours, and the reader copies.
    OurPages,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked for",
            Self::NotAPipe => "the destination is not a pipe",
            Self::SmallPiece => "auto: small pieces are cheaper to write",
            Self::SmallPipe => "the pipe is too small for pages to pay",
            Self::NoHugePages => "the system gives no transparent huge pages",
            Self::NoMemory => "the system gave no memory for staging",
            Self::BudgetSpent => "other streams have all of the process's staging memory",
            Self::CannotPin => "the kernel cannot pin this memory",
            Self::NoVmsplice => "the system lacks vmsplice(2), or forbids it",
            Self::VmspliceCopies => "vmsplice(2) copies on this kernel, so it saves nothing",
            Self::NoNonBlockingWrite => "the system has no non-blocking write for this pipe: 4 KiB at a time",
            Self::ReaderIsSlower => "auto: the reader copies what it reads, and is the slower side",
            Self::ReaderKeepsUp => "auto: the reader copies what it reads, and keeps up",
            Self::ReaderUnknown => "auto: the reader is not known",
            Self::OurPages => "auto: the bytes are in pages of our own, and the reader copies what it reads",
        })
    }
}

impl Reason {
    /// Why pipes get no pages from this kernel; none if they do.
    pub(crate) fn against_pages() -> Option<Self> {
        match kernel::vmsplice() {
            Vmsplice::Shares => None,
            Vmsplice::Copies => Some(Self::VmspliceCopies),
            Vmsplice::Refused => Some(Self::NoVmsplice),
        }
    }
}

/// Below this, `auto` uses `write`. Guessed from the size of a default pipe, above which a write has to wait anyway.
pub(crate) const STAGED_MIN_BYTES: usize = 64 << 10;
