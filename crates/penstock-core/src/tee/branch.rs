//! One output, on the thread's side.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::outputs::{Output, TeeOutput};
use super::report::{OutputReport, TeeEnd, TeePolicy};
use crate::error::Error;
use crate::pipe::budget::{self, Reservation, WANTED_BYTES};
use crate::pipe::private::PrivatePipe;
use crate::relay::report::RelayOptions;
use crate::relay::transfer::{Idle, Transfer};
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::task::Live;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::{AsHandle, Borrowed, SysError, handle, pipe};

/// One output, on the thread's side.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) output: TeeOutput,
    pub(super) dst: ForkFd,
    kind: Kind,
    /// For an output that is no pipe.
    pub(super) inner: Option<Inner>,
    /// Bytes at the front that it has taken already.
    pub(super) ahead: u64,
    pub(super) taken: u64,
    may_grow: bool,
    pub(super) idle: Option<Idle>,
    pub(super) is_removed: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) reader: ForkFd,
    /// Closed when nothing more will come.
    pub(super) writer: Option<ForkFd>,
    pub(super) transfer: Transfer,
    _reservation: Option<Reservation>,
}

impl Branch {
    pub(super) fn open(
        dst: Borrowed<'_>,
        id: StreamId,
        kind: Kind,
        policy: TeePolicy,
    ) -> std::result::Result<(Self, TeeOutput), Error> {
        let number = handle::number(dst);
        let dst = ForkFd::make(|| fd::duplicate(dst)).map_err(Error::of_system)?;
        let inner = if kind == Kind::Pipe { None } else { Some(Inner::open(dst.as_handle())?) };
        let report = Live::new(OutputReport {
            through: inner.as_ref().map(|inner| inner.transfer.relayed()),
            ..OutputReport::default()
        });
        let leaves = AtomicBool::new(false);
        let output = TeeOutput(Arc::new(Output { number, id, policy, leaves, report }));
        let branch = Self {
            output: output.clone(),
            dst,
            kind,
            inner,
            ahead: 0,
            taken: 0,
            may_grow: kind == Kind::Pipe,
            idle: None,
            is_removed: false,
        };
        Ok((branch, output))
    }

    /// The pipe that takes its bytes; none when it takes no more.
    pub(super) fn entry(&self) -> Option<Borrowed<'_>> {
        match &self.inner {
            _ if self.is_removed => None,
            None => Some(self.dst.as_handle()),
            Some(inner) => inner.writer.as_ref().map(AsHandle::as_handle),
        }
    }

    /// Grows its pipe, once: it may be too small.
    pub(super) fn grow(&mut self) {
        if mem::take(&mut self.may_grow) {
            budget::grow(self.dst.as_handle(), self.output.0.id);
        }
    }

    /// Whether its bytes come before those of `other`, an output of the same stream that was added later.
    pub(super) fn precedes(&self, other: &Self) -> bool {
        self.is_removed && self.output.0.id == other.output.0.id
    }

    pub(super) fn is_behind(&self) -> bool {
        self.ahead == 0 && self.entry().is_some()
    }

    /// Whether its inner pipe would take something, which no event reports. For other pipes poll(2) does.
    pub(super) fn could_take(&self) -> bool {
        self.inner.is_some() && self.is_behind() && self.unread_bytes() == 0
    }

    /// Bytes on their way to its reader, also in its socket.
    pub(super) fn untaken_bytes(&self) -> u64 {
        let in_socket =
            if self.inner.is_some() { fd::untaken_bytes(self.dst.as_handle(), self.kind) } else { 0 };
        self.unread_bytes() + in_socket
    }

    /// Bytes taken for it that its reader has not read, as far as is known.
    pub(super) fn unread_bytes(&self) -> u64 {
        match &self.inner {
            None => pipe::unread_bytes(self.dst.as_handle()).unwrap_or(0),
            Some(inner) => {
                let held = inner.transfer.in_transit_bytes() as u64;
                pipe::unread_bytes(inner.reader.as_handle()).unwrap_or(0) + held
            }
        }
    }

    pub(super) fn note(&mut self, bytes: usize, refused: Option<SysError>) {
        self.output.0.report.change(|report| report.refused = refused.map(SysError::raw_os_error));
        self.taken += bytes as u64;
        self.idle = None;
        self.publish();
    }

    pub(super) fn publish(&self) {
        let through = self.inner.as_ref().map(|inner| inner.transfer.relayed());
        let delivered = through.map_or(self.taken, |through| through.bytes);
        self.output.0.report.change(|report| {
            report.bytes_delivered = delivered;
            report.through = through;
        });
    }

    /// Sets its final report. Bytes that were taken for it and have not arrived are lost.
    pub(super) fn end(self, end: TeeEnd, error: Option<Error>) {
        let held = if self.inner.is_some() { self.unread_bytes() } else { 0 };
        // The content of a caller's pipe can still be read, unless its reader is gone.
        let is_lost = self.kind.is_pipe() && end == TeeEnd::Broken;
        let unread = if is_lost { pipe::unread_bytes(self.dst.as_handle()).unwrap_or(0) } else { 0 };
        self.publish();
        let Self { output, dst, .. } = self;
        let closed = dst.close();
        output.0.report.change(|report| {
            let unread = unread.min(report.bytes_delivered);
            report.bytes_delivered -= unread;
            report.bytes_lost = held + unread;
            report.end = Some(end);
            report.error = error;
            if let (Err(errno), None) = (closed, &report.error) {
                report.fail_at_close(errno);
            }
        });
    }

    pub(super) fn fail(self, errno: SysError) {
        let end = match Error::of_stream(errno, 0, 0) {
            Error::Broken { .. } => TeeEnd::Broken,
            _ => TeeEnd::Failed,
        };
        let output = self.output.clone();
        self.end(end, None);
        output.0.report.change(|report| {
            report.error = Some(Error::of_stream(errno, report.bytes_delivered, report.bytes_lost));
        });
    }

    /// How long it has taken nothing, if that is longer than its policy allows.
    pub(super) fn overdue(&mut self) -> Option<Duration> {
        let TeePolicy::Evict { after } = self.output.0.policy else { return None };
        let untaken = self.untaken_bytes();
        let waited = self.idle.as_mut()?.go_on(untaken);
        (waited >= after).then_some(waited)
    }

    pub(super) fn eviction(&self) -> Option<Instant> {
        let TeePolicy::Evict { after } = self.output.0.policy else { return None };
        self.idle.and_then(|idle| idle.since.checked_add(after))
    }
}

impl Inner {
    pub(super) fn open(dst: Borrowed<'_>) -> std::result::Result<Self, Error> {
        let PrivatePipe { reader, writer, reservation, .. } =
            PrivatePipe::of_size(WANTED_BYTES).map_err(Error::of_system)?;
        let transfer = Transfer::plan(reader.as_handle(), dst, &RelayOptions::default())?;
        Ok(Self { reader, writer: Some(writer), transfer, _reservation: reservation })
    }
}
