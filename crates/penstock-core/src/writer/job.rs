//! One write, queued or in progress.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use crate::error::Error;
use crate::memory::pool::Buffer;
use crate::memory::region::Region;
use crate::runtime::fork_fd::ForkFd;
use crate::sync::ticket::{Completion, Ticket};
use crate::sys::span::Span;
use crate::writer::transport::choice::{Memory, WriteOptions};

/// An accepted write. It stays in the queue until it has ended, so that the worker holds nothing.
pub(crate) struct Job {
    pub(super) number: u64,
    pub(super) owner: u64,
    pub(super) options: WriteOptions,
    /// The memory.
    pub(crate) span: Span,
    /// Bytes that enter the stream.
    pub(super) bytes: u64,
    pub(crate) ticket: Ticket,
    /// The memory, the descriptor and the ticket's other side. They are taken out one by one as the write ends.
    pub(super) region: Option<Box<dyn Region>>,
    pub(super) fd: Option<Arc<ForkFd>>,
    pub(super) completion: Option<Completion>,
    pub(super) progress: Progress,
    /// What the ticket will say: an abort, if the write was cut short with pages in the pipe.
    pub(super) outcome: Result<(), Error>,
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
    pub(crate) fd: RawFd,
    pub(crate) end: u64,
}

/// The worker's view of a job. The queue keeps the descriptor open and the memory alive meanwhile.
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

    /// Replaces the memory by the output of its transform. Returns the memory.
    pub(super) fn replace_memory(&mut self, made: Buffer) -> Option<Box<dyn Region>> {
        self.options.transform = None;
        self.options.memory = Memory::Ours;
        self.span = Span::of(&made);
        self.region.replace(Box::new(made))
    }

    /// Releases the descriptor and the memory, then ends the ticket. So the reader has its end of file, and the caller
    /// its memory, before the ticket has ended.
    pub(super) fn fail(mut self, failure: Error) {
        drop(self.fd.take());
        drop(self.region.take());
        if let Some(completion) = self.completion.take() {
            completion.end(self.outcome.and(Err(failure)));
        }
    }

    /// Releases the memory in the child of a fork, and leaves the parent's ticket as it is.
    pub(super) fn disown(mut self) {
        if let Some(completion) = self.completion.take() {
            completion.disown();
        }
    }
}

/// A position in a stream: the end of the queue when it was marked.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub(super) u64);
