//! The thread of a tee: lets every output take, and waits for those that cannot.

use std::mem;
use std::time::Instant;

use super::branch::Branch;
use super::front::{Advance, Front, advance};
use super::outputs::{Outputs, TeeOutput};
use super::report::TeeEnd;
use crate::error::Error;
use crate::pipe::budget;
use crate::relay::splice::PIECE_BYTES;
use crate::relay::transfer::{DEFAULT_PIPE_BYTES, Idle};
use crate::runtime::task::{Control, Live};
use crate::sync::mailbox::Mailbox;
use crate::sys::error::Result;
use crate::sys::fd::{self, Kind, StreamId};
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{AsHandle, SysError, pipe};

/// What the thread of a tee shares with its owners.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) source: StreamId,
    pub(super) orders: Mailbox<Order>,
    pub(super) progress: Live<Progress>,
    pub(super) outputs: Live<Outputs>,
}

#[derive(Debug)]
pub(super) enum Order {
    Add(Box<Branch>),
    Remove(TeeOutput),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) taken: u64,
    pub(super) lost: u64,
    pub(super) source_ended: bool,
}

/// The thread's state.
pub(super) struct Pump<'a> {
    pub(super) front: Front,
    pub(super) branches: Vec<Branch>,
    progress: Progress,
    may_grow_source: bool,
    pub(super) shared: &'a Shared,
    pub(super) control: &'a Control,
}

impl<'a> Pump<'a> {
    pub(super) fn new(front: Front, shared: &'a Shared, control: &'a Control) -> Self {
        Self {
            front,
            branches: Vec::new(),
            progress: Progress::default(),
            may_grow_source: true,
            shared,
            control,
        }
    }

    pub(super) fn run(mut self) -> std::result::Result<(), Error> {
        loop {
            self.obey();
            if self.control.is_cancelled() {
                return Err(Error::Aborted { bytes_lost: self.end_all(TeeEnd::Cancelled, None) });
            }
            self.front.fill();
            let progress = match self.distribute() {
                Ok(progress) => self.deliver() | progress,
                Err(error) => {
                    self.end_all(TeeEnd::Failed, Some(&error)); // a failure of our own descriptors
                    return Err(error);
                }
            };
            if self.branches.is_empty() && self.shared.orders.close_if_empty() {
                return self.outcome();
            }
            if !progress {
                // Asked once: bytes that come between two answers would be missed.
                let has_bytes = self.front.unread_bytes() > 0;
                if has_bytes && self.branches.iter().any(Branch::could_take) {
                    continue; // they came after we had looked
                }
                self.mark_stalled(has_bytes);
                self.wait(has_bytes);
                self.evict();
            }
        }
    }

    /// Adds and removes outputs as ordered.
    fn obey(&mut self) {
        for order in self.shared.orders.take() {
            match order {
                Order::Add(branch) => self.admit(*branch),
                Order::Remove(output) => self.close(TeeEnd::Removed, |branch| branch.output.is(&output)),
            }
        }
    }

    /// An output that is added later begins where the furthest other one is.
    fn admit(&mut self, mut branch: Branch) {
        branch.ahead = self.furthest();
        branch.output.0.report.change(|report| report.start = self.progress.taken + branch.ahead);
        self.branches.push(branch);
    }

    /// Ends the intake of these outputs. A pipe is done then; others get what was taken for them first. One that takes no
    /// more already stays in its place, before one that was added after it.
    fn close(&mut self, end: TeeEnd, which: impl Fn(&Branch) -> bool) {
        let is_closed = |branch: &mut Branch| branch.entry().is_some() && which(branch);
        let closed: Vec<_> = self.branches.extract_if(.., is_closed).collect();
        for mut branch in closed {
            branch.ahead = 0; // it takes no more part
            match &mut branch.inner {
                None => branch.end(end, None),
                Some(inner) => {
                    inner.writer = None;
                    branch.is_removed |= end == TeeEnd::Removed;
                    self.branches.push(branch);
                }
            }
        }
    }

    fn furthest(&self) -> u64 {
        self.branches.iter().map(|branch| branch.ahead).max().unwrap_or(0)
    }

    fn outcome(mut self) -> std::result::Result<(), Error> {
        self.progress.lost = self.front.put_back();
        self.publish();
        self.front.failure.take().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// Ends all outputs, also those that were added meanwhile, and closes the mailbox. Returns the bytes that were lost.
    fn end_all(&mut self, end: TeeEnd, error: Option<&Error>) -> u64 {
        let arrivals = self.shared.orders.close().into_iter().filter_map(|order| match order {
            Order::Add(branch) => Some(*branch),
            Order::Remove(_) => None,
        });
        self.progress.lost = self.front.put_back();
        let mut lost = self.progress.lost;
        for branch in mem::take(&mut self.branches).into_iter().chain(arrivals) {
            let output = branch.output.clone();
            branch.end(end, error.cloned());
            lost += output.report().bytes_lost;
        }
        self.publish();
        lost
    }

    fn publish(&self) {
        self.shared.progress.set(self.progress);
        self.control.moved_bytes.set(self.progress.taken);
    }

    /// Lets outputs that are no pipes take from their inner pipes. Returns whether any did.
    fn deliver(&mut self) -> bool {
        let mut progress = false;
        let mut index = 0;
        while index < self.branches.len() {
            match self.deliver_to(index) {
                Advance::Moved => progress = true,
                Advance::Blocked => index += 1,
                Advance::Ended => {
                    let branch = self.branches.remove(index);
                    let end = if branch.is_removed { TeeEnd::Removed } else { self.source_end() };
                    branch.end(end, None);
                    progress = true;
                }
                Advance::Failed(failure) => {
                    let branch = self.branches.remove(index);
                    match failure.error {
                        Error::Broken { os_error, .. } | Error::Io { os_error, .. } => {
                            branch.fail(SysError::from_raw_os_error(os_error));
                        }
                        error => branch.end(TeeEnd::Failed, Some(error)),
                    }
                    progress = true;
                }
            }
        }
        progress
    }

    fn deliver_to(&mut self, index: usize) -> Advance {
        if self.is_held_back(index) {
            return Advance::Blocked;
        }
        let branch = &mut self.branches[index];
        let Some(inner) = &mut branch.inner else { return Advance::Blocked };
        let advanced = advance(&mut inner.transfer, inner.reader.as_handle(), branch.dst.as_handle());
        if matches!(advanced, Advance::Moved) {
            branch.idle = None;
            branch.publish();
        }
        advanced
    }

    /// Whether it waits for a removed output of the same stream that has not delivered everything yet.
    fn is_held_back(&self, index: usize) -> bool {
        self.branches[..index].iter().any(|other| other.precedes(&self.branches[index]))
    }

    fn source_end(&self) -> TeeEnd {
        if self.front.failure.is_some() { TeeEnd::SourceFailed } else { TeeEnd::SourceEnded }
    }

    /// Lets every output that is behind take what is at the front, then removes what all have. Returns whether
    /// anything moved.
    fn distribute(&mut self) -> std::result::Result<bool, Error> {
        let mut progress = self.take_off()?;
        let mut index = 0;
        while index < self.branches.len() {
            if !self.branches[index].is_behind() {
                index += 1;
                continue;
            }
            match self.take(index) {
                Ok(0) if !pipe::awaits_first_writer(self.front.reader.as_handle(), Kind::Pipe) => {
                    self.end_source();
                    return Ok(true);
                }
                Ok(0) => index += 1,
                Err(error) if error.would_block() => index += 1,
                Ok(_) => {
                    progress = true;
                    index += 1;
                }
                Err(error) if error.interrupted() => {}
                Err(errno) => {
                    self.branches.remove(index).fail(errno);
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    /// Lets one output take from the front: by splice(2) if all others have taken it, otherwise by tee(2).
    fn take(&mut self, index: usize) -> Result<usize> {
        let window = match self.furthest() {
            0 => PIECE_BYTES as u64,
            furthest => furthest, // nobody overtakes, so that all take the same pieces
        };
        let others = self
            .branches
            .iter()
            .enumerate()
            .filter(|(other, branch)| *other != index && branch.entry().is_some());
        let covered = others.map(|(_, branch)| branch.ahead).min().unwrap_or(window);
        let is_last = covered > 0;
        let at_most = if is_last { covered } else { window } as usize;
        let branch = &mut self.branches[index];
        let entry = branch.entry().expect("who is behind has an entry");
        let taken = self.front.give(entry, at_most, is_last)?;
        if taken >= DEFAULT_PIPE_BYTES {
            // The source was full, so that its writer waits for room, and so is a small output now.
            branch.grow();
            if mem::take(&mut self.may_grow_source)
                && let Some(source) = self.front.callers_pipe()
            {
                budget::grow(source, self.shared.source);
            }
        }
        branch.ahead += taken as u64;
        branch.note(taken, self.front.refused());
        if is_last {
            self.forget_front(taken as u64);
        }
        Ok(taken)
    }

    /// Removes from the front what all have. Needed when the last one behind has gone.
    fn take_off(&mut self) -> std::result::Result<bool, Error> {
        let takers = self.branches.iter().filter(|branch| branch.entry().is_some());
        let mut left = takers.map(|branch| branch.ahead).min().unwrap_or(0);
        let progress = left > 0;
        while left > 0 {
            match self.front.discard(left as usize) {
                Ok(0) => return Err(Error::of_system(SysError::IO)), // it was there a moment ago, and nobody else reads it
                Ok(taken) => {
                    left -= taken as u64;
                    self.forget_front(taken as u64);
                }
                Err(error) if error.interrupted() => {}
                Err(errno) => return Err(Error::of_system(errno)),
            }
        }
        Ok(progress)
    }

    fn forget_front(&mut self, bytes: u64) {
        self.progress.taken += bytes;
        for branch in self.branches.iter_mut().filter(|branch| branch.entry().is_some()) {
            branch.ahead -= bytes;
        }
        self.publish();
    }

    fn end_source(&mut self) {
        self.progress.source_ended = self.front.failure.is_none();
        self.close(self.source_end(), |_| true);
        self.publish();
    }

    /// Marks outputs that take nothing although there is something. Such a pipe may be too small: it is grown,
    /// once.
    fn mark_stalled(&mut self, has_bytes: bool) {
        for index in 0..self.branches.len() {
            let is_held_back = self.is_held_back(index);
            let branch = &mut self.branches[index];
            let waits = match branch.inner {
                Some(_) => !is_held_back && branch.unread_bytes() > 0,
                None => has_bytes && branch.is_behind(),
            };
            if !waits {
                branch.idle = None;
            } else if branch.idle.is_none() {
                branch.idle = Some(Idle::begin(branch.untaken_bytes()));
            }
            if waits {
                branch.grow();
            }
        }
    }

    /// Waits until an output can take something, comes, goes, or is overdue.
    fn wait(&self, has_bytes: bool) {
        let mut fds = vec![Watched::new(self.control.waker.as_handle(), Events::READ)];
        if !has_bytes && self.branches.iter().any(|branch| branch.entry().is_some()) {
            fds.push(Watched::new(self.front.source(), Events::READ));
        }
        for branch in &self.branches {
            match (&branch.inner, branch.idle) {
                (_, Some(_)) => fds.push(Watched::new(branch.dst.as_handle(), Events::WRITE)),
                // poll(2) reports a lost reader whether asked or not.
                (None, None) => fds.push(Watched::new(branch.dst.as_handle(), Events::NONE)),
                // While a process is between fork(2) and execve(2), the pipe ends only when that has closed its copy.
                (Some(inner), None) if inner.writer.is_none() => {
                    fds.push(Watched::new(inner.reader.as_handle(), Events::READ));
                }
                (Some(_), None) => {}
            }
        }
        let due = self.branches.iter().filter_map(Branch::eviction).min();
        wait::wait(&mut fds, due.map(|due| due.saturating_duration_since(Instant::now())));
        if !fds[0].found().is_empty() {
            self.control.waker.clear();
        }
    }

    fn evict(&mut self) {
        let mut index = 0;
        while index < self.branches.len() {
            let overdue = self.branches[index].overdue();
            if overdue.is_some() && !matches!(self.deliver_to(index), Advance::Blocked) {
                index += 1; // poll(2) may report a terminal late. The next call returns an end or a failure again.
            } else if let Some(waited) = overdue {
                let branch = self.branches.remove(index);
                let bytes_pending = branch.unread_bytes();
                branch.end(TeeEnd::Evicted, Some(Error::Stalled { waited, bytes_pending }));
            } else if self.branches[index].inner.is_none()
                && fd::peer_is_gone(self.branches[index].dst.as_handle())
            {
                self.branches.remove(index).fail(SysError::NO_READER);
            } else {
                index += 1;
            }
        }
    }
}
