//! The thread's work: has everybody take, and waits for those who cannot.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, Result};

use super::branch::Lane;
use super::front::{Advance, Front, advance};
use super::report::TeeEnd;
use super::shared::{Order, Progress, Shared};
use crate::error::Error;
use crate::pipe::budget;
use crate::relay::splice::PIECE_BYTES;
use crate::relay::transfer::Idle;
use crate::runtime::task::Control;
use crate::sys::fd::{self, Kind};
use crate::sys::pipe;

/// The thread's work.
pub(super) struct Pump<'a> {
    pub(super) front: Front,
    pub(super) lanes: Vec<Lane>,
    pub(super) taken: u64,
    lost: u64,
    pub(super) source_ended: bool,
    pub(super) shared: &'a Shared,
    pub(super) control: &'a Control,
}

impl<'a> Pump<'a> {
    pub(super) fn new(front: Front, shared: &'a Shared, control: &'a Control) -> Self {
        Self { front, lanes: Vec::new(), taken: 0, lost: 0, source_ended: false, shared, control }
    }

    pub(super) fn run(mut self) -> std::result::Result<(), Error> {
        loop {
            self.obey();
            if self.control.is_cancelled() {
                return self.give_up();
            }
            self.front.fill();
            let progress = match self.distribute() {
                Ok(progress) => self.deliver() | progress,
                Err(error) => return self.fail(error),
            };
            if self.lanes.is_empty() && self.shared.orders.close_if_empty() {
                return self.outcome();
            }
            if !progress {
                // Asked once: bytes that come between two answers would be waited for by nobody.
                let has_bytes = self.front.unread_bytes() > 0;
                if has_bytes && self.lanes.iter().any(Lane::could_take) {
                    continue; // they came after we had looked
                }
                self.mark_stalled(has_bytes);
                self.wait(has_bytes);
                self.evict();
            }
        }
    }

    /// Takes in who was added, and lets go who was removed.
    fn obey(&mut self) {
        for order in self.shared.orders.take() {
            match order {
                Order::Add(lane) => self.admit(*lane),
                Order::Remove(outlet) => {
                    // Who takes nothing any more stays in its place, before who comes after it.
                    for lane in self.take_lanes(|lane| lane.outlet.is(&outlet) && lane.entry().is_some()) {
                        self.close_entry(lane, TeeEnd::Removed);
                    }
                }
            }
        }
    }

    /// Who comes later begins where the furthest of the others is: it missed what somebody has taken.
    fn admit(&mut self, mut lane: Lane) {
        lane.ahead = self.furthest();
        lane.outlet.0.report.change(|report| report.start = self.taken + lane.ahead);
        self.lanes.push(lane);
    }

    fn take_lanes(&mut self, mut which: impl FnMut(&Lane) -> bool) -> Vec<Lane> {
        self.lanes.extract_if(.., |lane| which(lane)).collect()
    }

    /// Nothing more will come for that destination. A pipe is through with it; all else has what it has taken first.
    fn close_entry(&mut self, mut lane: Lane, end: TeeEnd) {
        lane.ahead = 0; // it takes no more part
        match &mut lane.inner {
            None => lane.end(end, None),
            Some(inner) => {
                inner.writer = None;
                lane.is_removed |= end == TeeEnd::Removed;
                self.lanes.push(lane);
            }
        }
    }

    fn furthest(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ahead).max().unwrap_or(0)
    }

    fn outcome(mut self) -> std::result::Result<(), Error> {
        self.lost = self.front.put_back();
        self.publish();
        self.front.failure.take().map_or(Ok(()), |failure| Err(failure.error))
    }

    /// A failure of what is ours, which the destinations share.
    fn fail(mut self, error: Error) -> std::result::Result<(), Error> {
        let arrivals = self.arrivals();
        for lane in std::mem::take(&mut self.lanes).into_iter().chain(arrivals) {
            lane.end(TeeEnd::Failed, Some(error.clone()));
        }
        self.lost = self.front.put_back();
        self.publish();
        Err(error)
    }

    /// Who was added and not taken in yet; nobody is added from now on.
    fn arrivals(&self) -> impl Iterator<Item = Lane> + use<> {
        self.shared.orders.close().into_iter().filter_map(|order| match order {
            Order::Add(lane) => Some(*lane),
            Order::Remove(_) => None,
        })
    }

    fn give_up(mut self) -> std::result::Result<(), Error> {
        let arrivals = self.arrivals();
        self.lost = self.front.put_back();
        let mut lost = self.lost;
        for lane in std::mem::take(&mut self.lanes).into_iter().chain(arrivals) {
            let outlet = lane.outlet.clone();
            lane.end(TeeEnd::Cancelled, None);
            lost += outlet.report().bytes_lost;
        }
        self.publish();
        Err(Error::Aborted { bytes_lost: lost })
    }

    fn publish(&self) {
        let Self { taken, lost, source_ended, .. } = *self;
        self.shared.progress.set(Progress { taken, lost, source_ended });
        self.control.set_moved_bytes(self.taken);
    }

    /// Has destinations that are no pipes take what is in their inner pipes; true if any did.
    fn deliver(&mut self) -> bool {
        let mut progress = false;
        let mut index = 0;
        while index < self.lanes.len() {
            match self.deliver_to(index) {
                Advance::Moved => progress = true,
                Advance::Blocked => index += 1,
                Advance::Ended => {
                    let lane = self.lanes.remove(index);
                    let end = self.end_of(&lane);
                    lane.end(end, None);
                    progress = true;
                }
                Advance::Failed(failure) => {
                    let lane = self.lanes.remove(index);
                    match failure.error {
                        Error::Broken { errno, .. } | Error::Io { errno, .. } => lane.fail(errno),
                        error => lane.end(TeeEnd::Failed, Some(error)),
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
        let lane = &mut self.lanes[index];
        let Some(inner) = &mut lane.inner else { return Advance::Blocked };
        let advanced = advance(&mut inner.course, inner.reader.as_fd(), lane.dst.as_fd());
        if matches!(advanced, Advance::Moved) {
            lane.idle = None;
            lane.publish();
        }
        advanced
    }

    /// Whether it must wait for one of the same stream that was removed and has not delivered all yet.
    fn is_held_back(&self, index: usize) -> bool {
        self.lanes[..index].iter().any(|other| other.precedes(&self.lanes[index]))
    }

    fn end_of(&self, lane: &Lane) -> TeeEnd {
        match &self.front.failure {
            _ if lane.is_removed => TeeEnd::Removed,
            Some(_) => TeeEnd::SourceFailed,
            None => TeeEnd::SourceEnded,
        }
    }

    /// Has everybody who is behind take what is at the front, then takes off what all have; true if anything moved.
    fn distribute(&mut self) -> std::result::Result<bool, Error> {
        let mut progress = self.take_off()?;
        let window = match self.furthest() {
            0 => PIECE_BYTES,
            // Nobody overtakes, so that all take the same pieces.
            furthest => usize::try_from(furthest).expect("no pipe holds more than memory does"),
        };
        let mut index = 0;
        while index < self.lanes.len() {
            if !self.lanes[index].is_behind() {
                index += 1;
                continue;
            }
            match self.take(index, window) {
                Ok(0) if !pipe::awaits_first_writer(self.front.reader.as_fd(), Kind::Pipe) => {
                    self.end_source();
                    return Ok(true);
                }
                Ok(0) | Err(Errno::AGAIN) => index += 1,
                Ok(_) => {
                    progress = true;
                    index += 1;
                }
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.lanes.remove(index).fail(errno);
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    /// Has one take from the front: by splice(2) if all others have taken it, else by tee(2).
    fn take(&mut self, index: usize, window: usize) -> Result<usize> {
        let others =
            self.lanes.iter().enumerate().filter(|(other, lane)| *other != index && lane.entry().is_some());
        let covered = others.map(|(_, lane)| lane.ahead).min().unwrap_or(window as u64).min(window as u64);
        let front = self.front.reader.as_fd();
        let entry = self.lanes[index].entry().expect("who is behind has an entry");
        if covered == 0 {
            let taken = pipe::tee(front, entry, window)?;
            self.lanes[index].ahead += taken as u64;
            self.lanes[index].note(taken);
            return Ok(taken);
        }
        let taken = pipe::splice(front, None, entry, covered as usize)?;
        self.lanes[index].ahead += taken as u64;
        self.lanes[index].note(taken);
        self.forget_front(taken as u64);
        Ok(taken)
    }

    /// Takes off the front what everybody has: it comes to that when the last who was behind has gone.
    fn take_off(&mut self) -> std::result::Result<bool, Error> {
        let takers = self.lanes.iter().filter(|lane| lane.entry().is_some());
        let mut left = takers.map(|lane| lane.ahead).min().unwrap_or(0);
        let progress = left > 0;
        while left > 0 {
            match pipe::splice(self.front.reader.as_fd(), None, self.front.null.as_fd(), left as usize) {
                Ok(0) => return Err(Error::at_call(Errno::IO)), // it was there a moment ago, and nobody else reads it
                Ok(taken) => {
                    left -= taken as u64;
                    self.forget_front(taken as u64);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::at_call(errno)),
            }
        }
        Ok(progress)
    }

    fn forget_front(&mut self, bytes: u64) {
        self.taken += bytes;
        for lane in self.lanes.iter_mut().filter(|lane| lane.entry().is_some()) {
            lane.ahead -= bytes;
        }
        self.publish();
    }

    fn end_source(&mut self) {
        self.source_ended = self.front.failure.is_none();
        for lane in self.take_lanes(|lane| lane.entry().is_some()) {
            let end = self.end_of(&lane);
            self.close_entry(lane, end);
        }
        self.publish();
    }

    /// Notes who takes nothing although there is something to take. Such a pipe may be too small: it is grown, once.
    fn mark_stalled(&mut self, has_bytes: bool) {
        for index in 0..self.lanes.len() {
            let is_held_back = self.is_held_back(index);
            let lane = &mut self.lanes[index];
            let waits = match lane.inner {
                Some(_) => !is_held_back && lane.unread_bytes() > 0,
                None => has_bytes && lane.is_behind(),
            };
            if !waits {
                lane.idle = None;
            } else if lane.idle.is_none() {
                lane.idle = Some(Idle::begin(lane.untaken_bytes()));
            }
            if waits && std::mem::take(&mut lane.may_grow) {
                budget::grow(lane.dst.as_fd(), lane.outlet.0.id);
            }
        }
    }

    /// Waits until somebody can take something, comes, goes, or is due.
    fn wait(&self, has_bytes: bool) {
        let mut fds = vec![PollFd::new(&self.control.waker, PollFlags::IN)];
        if !has_bytes && self.lanes.iter().any(|lane| lane.entry().is_some()) {
            fds.push(PollFd::from_borrowed_fd(self.front.source(), PollFlags::IN));
        }
        for lane in &self.lanes {
            match (&lane.inner, lane.idle) {
                (_, Some(_)) => fds.push(PollFd::new(&lane.dst, PollFlags::OUT)),
                // poll(2) reports a lost reader whether asked or not.
                (None, None) => fds.push(PollFd::new(&lane.dst, PollFlags::empty())),
                // Where a process is between fork(2) and execve(2), the pipe's end comes when that has closed its copy.
                (Some(inner), None) if inner.writer.is_none() => {
                    fds.push(PollFd::new(&inner.reader, PollFlags::IN));
                }
                (Some(_), None) => {}
            }
        }
        let due = self.lanes.iter().filter_map(Lane::eviction).min();
        fd::wait(&mut fds, due.map(|due| due.saturating_duration_since(Instant::now())));
        if !fds[0].revents().is_empty() {
            self.control.waker.clear();
        }
    }

    fn evict(&mut self) {
        let mut index = 0;
        while index < self.lanes.len() {
            let overdue = self.lanes[index].overdue();
            if overdue.is_some() && !matches!(self.deliver_to(index), Advance::Blocked) {
                index += 1; // poll(2) does not tell of a terminal at once, and what it came to will come again
            } else if let Some(waited) = overdue {
                let lane = self.lanes.remove(index);
                let bytes_pending = lane.unread_bytes();
                lane.end(TeeEnd::Evicted, Some(Error::Stalled { waited, bytes_pending }));
            } else if self.lanes[index].inner.is_none() && fd::peer_is_gone(self.lanes[index].dst.as_fd()) {
                self.lanes.remove(index).fail(Errno::PIPE);
            } else {
                index += 1;
            }
        }
    }
}
