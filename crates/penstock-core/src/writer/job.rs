//! One write, queued or in progress.

use std::any::Any;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::counter::Counter;
use crate::error::Error;
use crate::memory::pool::Buffer;
use crate::memory::region::Region;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::run_callers_code;
use crate::sync::ticket::{Completion, Ticket};
use crate::sys::span::Span;
use crate::sys::{AsHandle, Number, SysError, handle};
use crate::writer::transport::choice::{MemoryOwner, WriteOptions};

/// A destination as one owner has it: a writer, or calls by descriptor that share a descriptor.
pub(crate) struct Destination {
    pub(super) fd: ForkFd,
    /// Bytes of writes that the system has accepted.
    pub(super) written_bytes: Counter,
    /// Bytes that its owner has discarded.
    pub(super) aborted_bytes: Counter,
    /// Set first when its owner is closed: nothing more is accepted.
    pub(super) is_gone: AtomicBool,
}

impl Destination {
    pub(super) fn new(fd: ForkFd) -> Arc<Self> {
        Arc::new(Self {
            fd,
            written_bytes: Counter::default(),
            aborted_bytes: Counter::default(),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Closes the descriptor after its last use. If that fails, nobody knows which of its bytes have arrived: all count as
    /// lost.
    pub(super) fn release(self: Arc<Self>) -> Result<(), CloseFailure> {
        let Some(Self { fd, written_bytes, .. }) = Arc::into_inner(self) else { return Ok(()) };
        fd.close().map_err(|errno| CloseFailure { errno, bytes_lost: written_bytes.get() })
    }

    /// As [`release`](Self::release), for an owner that must not wait. `failed` learns of a failure, perhaps on another thread.
    pub(super) fn release_apart(self: Arc<Self>, failed: impl FnOnce(CloseFailure) + Send + 'static) {
        let Some(Self { fd, written_bytes, .. }) = Arc::into_inner(self) else { return };
        fd.close_apart(move |closed| {
            if let Err(errno) = closed {
                failed(CloseFailure { errno, bytes_lost: written_bytes.get() });
            }
        });
    }

    /// Fails if the owner aborted any of its writes.
    pub(super) fn check_aborted(&self) -> Result<(), Error> {
        match self.aborted_bytes.get() {
            0 => Ok(()),
            bytes_lost => Err(Error::Aborted { bytes_lost }),
        }
    }
}

/// Why writes that the system had accepted may not have arrived.
pub(super) struct CloseFailure {
    pub(super) errno: SysError,
    pub(super) bytes_lost: u64,
}

/// An accepted write. It stays in the queue until it has ended, so that the worker holds nothing.
pub(crate) struct Job {
    pub(super) number: u64,
    pub(super) options: WriteOptions,
    /// The memory.
    pub(crate) span: Span,
    /// Bytes that have yet to enter the stream when the worker begins.
    pub(super) bytes: u64,
    pub(crate) ticket: Ticket,
    /// Taken out when the write ends.
    pub(super) holds: Option<Holds>,
    /// What its caller has met on trying. The worker fails the stream with it.
    pub(super) failure: Option<SysError>,
    pub(super) progress: Progress,
    /// What the ticket will say: an abort, if the write was cut short with pages in the pipe.
    pub(super) outcome: Result<(), Error>,
}

/// What a write in flight holds.
pub(super) struct Holds {
    pub(super) destination: Arc<Destination>,
    pub(super) region: Box<dyn Region>,
    pub(super) completion: Completion,
}

impl Holds {
    /// Releases the descriptor and the memory, before the ticket ends: by then the reader has its end of file, and the caller
    /// its memory.
    pub(super) fn release(self) -> (Completion, Result<(), CloseFailure>) {
        let closed = self.destination.release();
        run_callers_code(|| drop(self.region));
        (self.completion, closed)
    }

    /// Ends a write that its caller has made. The caller goes on with the descriptor.
    pub(super) fn end_at_once(self) -> Arc<Destination> {
        run_callers_code(|| drop(self.region));
        self.completion.end(Ok(()));
        self.destination
    }
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Queued,
    /// In the stream; nobody reads the memory any more.
    Written,
    /// In the pipe as the caller's own pages; `end` is the stream position after them.
    AwaitsReader {
        end: u64,
    },
}

/// A write whose pages are in the pipe: its descriptor, and the stream position after them.
#[derive(Clone, Copy)]
pub(crate) struct Awaiting {
    pub(crate) fd: Number,
    pub(crate) end: u64,
}

/// The worker's view of a job. The queue keeps the descriptor open and the memory alive meanwhile.
#[derive(Clone)]
pub(crate) struct WriteView {
    pub(crate) number: u64,
    pub(crate) span: Span,
    pub(crate) fd: Number,
    pub(crate) options: WriteOptions,
    pub(crate) failure: Option<SysError>,
}

impl Job {
    pub(crate) fn view(&self) -> WriteView {
        let holds = self.holds.as_ref().expect("a job that is to be written has its descriptor");
        WriteView {
            number: self.number,
            span: self.span,
            fd: handle::number(holds.destination.fd.as_handle()),
            options: self.options.clone(),
            failure: self.failure,
        }
    }

    pub(super) fn destination(&self) -> Option<&Arc<Destination>> {
        self.holds.as_ref().map(|holds| &holds.destination)
    }

    pub(super) fn is_for(&self, destination: &Arc<Destination>) -> bool {
        self.destination().is_some_and(|own| Arc::ptr_eq(own, destination))
    }

    /// Whether its owner is gone.
    pub(super) fn is_of_nobody(&self) -> bool {
        // Relaxed: the queue's lock orders it.
        self.destination().is_none_or(|destination| destination.is_gone.load(Ordering::Relaxed))
    }

    /// Replaces the memory by the output of its transform. Returns the memory.
    pub(super) fn replace_memory(&mut self, made: Buffer) -> Option<Box<dyn Region>> {
        self.options.transform = None;
        self.options.memory = MemoryOwner::Ours;
        self.span = Span::of(&made);
        self.holds.as_mut().map(|holds| mem::replace(&mut holds.region, Box::new(made)))
    }

    /// Notes that the first bytes are in the stream. What is left stays a write of its own.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.span = self.span.skip(bytes);
        self.bytes -= bytes as u64;
        self.options.joins = false;
        if let Some(destination) = self.destination() {
            destination.written_bytes.add(bytes as u64);
        }
    }

    /// Takes over the content of a later write, if both are small copies of one owner's and there is room.
    pub(super) fn join(&mut self, later: &Self) -> bool {
        let (Some(own), Some(more)) = (&mut self.holds, &later.holds) else { return false };
        let is_of_same =
            self.options.joins && later.options.joins && Arc::ptr_eq(&own.destination, &more.destination);
        let Some(block) = (&mut *own.region as &mut dyn Any).downcast_mut::<Buffer>() else { return false };
        let Some(copy) = (&*more.region as &dyn Any).downcast_ref::<Buffer>() else { return false };
        let joins = is_of_same && block.append(copy);
        if joins {
            self.span = Span::of(block);
            self.bytes += later.bytes;
        }
        joins
    }

    /// What a job holds that has not ended.
    pub(super) fn whole(self) -> Holds {
        self.holds.expect("only a write that has ended holds nothing")
    }

    /// Ends a write that has failed or was discarded. Its descriptor's close has nothing to add.
    pub(super) fn fail(self, failure: Error) {
        if let Some(holds) = self.holds {
            let (completion, _) = holds.release();
            completion.end(self.outcome.and(Err(failure)));
        }
    }
}

/// A position in a stream: the end of the queue when it was marked.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub(super) u64);
