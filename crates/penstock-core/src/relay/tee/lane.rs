//! One destination, as the thread has it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::front::inner_pipe;
use super::{Outlet, OutletReport, TeeEnd, TeeOutlet, TeePolicy};
use crate::background::Live;
use crate::error::Error;
use crate::kept::Kept;
use crate::relay::RelayOptions;
use crate::relay::course::{Course, Ends};
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::pipe;

/// One destination, as the thread has it.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) outlet: TeeOutlet,
    pub(super) dst: Kept,
    /// For a destination that is no pipe.
    pub(super) inner: Option<Inner>,
    /// Bytes at the front that it has taken already.
    pub(super) ahead: u64,
    pub(super) taken: u64,
    pub(super) may_grow: bool,
    pub(super) stall: Option<Stall>,
    pub(super) is_removed: bool,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) reader: Kept,
    /// Gone when nothing more will come.
    pub(super) writer: Option<Kept>,
    pub(super) course: Course,
}

/// Since when a destination takes nothing, and what it had taken by then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    pub(super) since: Instant,
    pub(super) unread: u64,
}

impl Lane {
    pub(super) fn open(
        dst: BorrowedFd<'_>,
        id: StreamId,
        kind: Kind,
        policy: TeePolicy,
    ) -> std::result::Result<(Self, TeeOutlet), Error> {
        let number = dst.as_raw_fd();
        let dst = Kept::make(|| fd::duplicate(dst))?;
        let inner = if kind == Kind::Pipe { None } else { Some(Inner::open(dst.as_fd())?) };
        let report = Live::new(OutletReport {
            start: 0,
            bytes_delivered: 0,
            bytes_lost: 0,
            through: inner.as_ref().map(|inner| inner.course.relayed()),
            end: None,
            error: None,
        });
        let outlet = TeeOutlet(Arc::new(Outlet { number, id, policy, report }));
        let lane = Self {
            outlet: outlet.clone(),
            dst,
            inner,
            ahead: 0,
            taken: 0,
            may_grow: kind == Kind::Pipe,
            stall: None,
            is_removed: false,
        };
        Ok((lane, outlet))
    }

    /// The pipe that takes its bytes; none when it takes no more.
    pub(super) fn entry(&self) -> Option<BorrowedFd<'_>> {
        match &self.inner {
            _ if self.is_removed => None,
            None => Some(self.dst.as_fd()),
            Some(inner) => inner.writer.as_ref().map(AsFd::as_fd),
        }
    }

    pub(super) fn is_behind(&self) -> bool {
        self.ahead == 0 && self.entry().is_some()
    }

    /// Whether its own inner pipe would take something: for that no event tells. Of other pipes poll(2) does.
    pub(super) fn could_take(&self) -> bool {
        self.inner.is_some() && self.is_behind() && self.unread_bytes() == 0
    }

    /// Bytes that were taken for it and that it has not read.
    pub(super) fn unread_bytes(&self) -> u64 {
        match &self.inner {
            None => pipe::unread_bytes(self.dst.as_fd()).unwrap_or(0),
            Some(inner) => {
                let held = inner.course.mover.held_bytes() as u64;
                pipe::unread_bytes(inner.reader.as_fd()).unwrap_or(0) + held
            }
        }
    }

    pub(super) fn note(&mut self, bytes: usize) {
        self.taken += bytes as u64;
        self.stall = None;
        self.publish();
    }

    pub(super) fn publish(&self) {
        let through = self.inner.as_ref().map(|inner| inner.course.relayed());
        let delivered = through.map_or(self.taken, |through| through.bytes);
        self.outlet.0.report.change(|report| {
            report.bytes_delivered = delivered;
            report.through = through;
        });
    }

    /// Says for good what became of it. Of what was taken for it, that which has not arrived is lost.
    pub(super) fn end(self, end: TeeEnd, error: Option<Error>) {
        let unread = self.unread_bytes();
        self.publish();
        let lost = match (&self.inner, end) {
            (Some(_), _) => unread,
            // What is in somebody else's pipe can still be read, unless nobody is left to read it.
            (None, TeeEnd::Broken) => unread.min(self.taken),
            (None, _) => 0,
        };
        self.outlet.0.report.change(|report| {
            if self.inner.is_none() {
                report.bytes_delivered -= lost;
            }
            report.bytes_lost = lost;
            report.end = Some(end);
            report.error = error;
        });
    }

    pub(super) fn fail(self, errno: Errno) {
        let end = match Error::of_stream(errno, 0, 0) {
            Error::Broken { .. } => TeeEnd::Broken,
            _ => TeeEnd::Failed,
        };
        let outlet = self.outlet.clone();
        self.end(end, None);
        outlet.0.report.change(|report| {
            report.error = Some(Error::of_stream(errno, report.bytes_delivered, report.bytes_lost));
        });
    }

    /// Whether it has taken nothing for longer than its policy allows, and for how long.
    pub(super) fn overdue(&mut self) -> Option<Duration> {
        let TeePolicy::Evict { after } = self.outlet.0.policy else { return None };
        let unread = self.unread_bytes();
        let stall = self.stall.as_mut()?;
        if unread < stall.unread {
            *stall = Stall { since: Instant::now(), unread };
        }
        let waited = stall.since.elapsed();
        (waited >= after).then_some(waited)
    }

    pub(super) fn eviction(&self) -> Option<Instant> {
        let TeePolicy::Evict { after } = self.outlet.0.policy else { return None };
        self.stall.and_then(|stall| stall.since.checked_add(after))
    }
}

impl Inner {
    pub(super) fn open(dst: BorrowedFd<'_>) -> std::result::Result<Self, Error> {
        let [reader, writer] = inner_pipe()?;
        let course = Course::plan(&Ends { src: reader.as_fd(), dst }, &RelayOptions::default())?;
        Ok(Self { reader, writer: Some(writer), course })
    }
}
