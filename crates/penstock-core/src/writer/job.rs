//! One write: as it is accepted, while it is in the queue, or as it is given back.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use crate::error::Error;
use crate::memory::pool::Buffer;
use crate::memory::region::Region;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::ticket::{Completion, Ticket};
use crate::sys::span::Span;
use crate::writer::transport::choice::{Memory, WriteOptions};

/// One accepted write. It stays in the queue until it has ended, so that the worker needs to hold nothing.
pub(crate) struct Job {
    pub(super) number: u64,
    pub(super) owner: u64,
    pub(super) options: WriteOptions,
    /// Where the memory lies.
    pub(crate) span: Span,
    /// How many bytes enter the stream.
    pub(super) bytes: u64,
    pub(crate) ticket: Ticket,
    /// The memory, the descriptor and the waiter's other end; taken out one by one as the write ends.
    pub(super) region: Option<Box<dyn Region>>,
    pub(super) fd: Option<Arc<ForkFd>>,
    pub(super) completion: Option<Completion>,
    pub(super) progress: Progress,
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Queued,
    /// All in the stream, nobody looks at the memory.
    Written,
    /// All in the pipe as the caller's own pages; the number is the stream's position behind it.
    AwaitsReader {
        end: u64,
    },
}

/// A write whose pages are in the pipe: its descriptor, and the stream's position behind it.
#[derive(Clone, Copy)]
pub(crate) struct Awaiting {
    pub(crate) fd: RawFd,
    pub(crate) end: u64,
}

/// What a worker gets to see of a job: the queue keeps the descriptor open and the memory alive meanwhile.
#[derive(Clone)]
pub(crate) struct Work {
    pub(crate) number: u64,
    pub(crate) span: Span,
    pub(crate) fd: RawFd,
    pub(crate) options: WriteOptions,
}

impl Job {
    pub(crate) fn work(&self) -> Work {
        let fd = self.fd.as_ref().expect("a job that is to be written has its descriptor");
        Work {
            number: self.number,
            span: self.span,
            fd: fd.as_fd().as_raw_fd(),
            options: self.options.clone(),
        }
    }

    /// Puts what was made in the place of what it was made of, which is given back.
    pub(super) fn replace_memory(&mut self, made: Buffer) -> Option<Box<dyn Region>> {
        self.options.transform = None;
        self.options.memory = Memory::Ours;
        self.span = Span::of(&made);
        self.region.replace(Box::new(made))
    }

    /// Lets go of the descriptor and the memory, then tells who waits: so that a reader has its end of file,
    /// and the caller its memory, before the ticket says that the write is over.
    pub(super) fn end(mut self, outcome: Result<(), Error>) {
        drop(self.fd.take());
        drop(self.region.take());
        if let Some(completion) = self.completion.take() {
            completion.end(outcome);
        }
    }

    /// In the child of a fork: lets go of the memory and leaves the parent's ticket be.
    pub(super) fn disown(mut self) {
        if let Some(completion) = self.completion.take() {
            completion.disown();
        }
    }
}

/// A place in a stream: behind everything that was queued when it was marked.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub(super) u64);
