//! Waits until the reader of a pipe has read what zero-copy gave it.
//!
//! poll(2) reports room in a pipe, but not that the reader took something from a pipe with room. inotify(7) reports each
//! read (`IN_ACCESS`), also for pipes without a name, whose users include `tail -f`. `O_ASYNC` reports it, too (fcntl(2)), but by
//! a signal, which the host program may use itself.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::runtime::fork::PerProcess;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::waker::Waker;
use crate::sync::ticket::Ticket;
use crate::sys::{fd, inotify};

/// The pause before the next look at a reader that has just read: it will soon read more, and a watch costs each of its
/// reads some 0.5 µs (measured with 4 KiB each). With the 50 µs of timer slack (prctl(2), `PR_SET_TIMERSLACK`).
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// Without a watch, the pause doubles up to this one, which bounds what it adds to a `sync`.
const LAST_LOOK: Duration = Duration::from_micros(800);

/// With a watch: for a read that the system does not report, as by splice(2) before Linux 6.5. Guessed.
const WATCHED_LOOK: Duration = Duration::from_secs(1);

/// How many workers have an inotify descriptor at most; others look at their readers. Chosen: an eighth of what all programs of
/// a user have together (`max_user_instances`, 128 by default).
const MOST_WATCHERS: usize = 16;

/// How many have one. Relaxed: nothing else is published with the number.
static WATCHERS: PerProcess<AtomicUsize> = PerProcess::new(AtomicUsize::default);

/// One of those that may have one.
struct Share;

impl Share {
    fn take() -> Option<Self> {
        let others = WATCHERS.get().fetch_add(1, Relaxed);
        let own = Self;
        (others < MOST_WATCHERS).then_some(own)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        WATCHERS.get().fetch_sub(1, Relaxed);
    }
}

/// A worker's inotify descriptor.
struct Watcher {
    fd: ForkFd,
    /// Dropped after the descriptor is closed.
    _share: Share,
}

impl Watcher {
    /// None if there are enough, or the system refuses it.
    fn make() -> Option<Self> {
        let share = Share::take()?;
        Some(Self { fd: ForkFd::of_inotify(inotify::make).ok()?, _share: share })
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The reader of a worker's pipe, as the worker waits for it.
pub(super) struct ReadWatch {
    /// Wakes the worker; none if the system had no descriptor for it.
    pub(super) waker: Option<Arc<Waker>>,
    /// Ends when the next write comes, and wakes the waker.
    arrival: Option<Ticket>,
    inotify: Option<Watcher>,
    state: State,
    /// Bytes that the reader had left at the last look.
    unread: u64,
}

enum State {
    /// The reader has read since the last wait.
    Reading,
    /// It has not.
    Paused,
    /// Its next read is reported.
    Watched(i32),
    /// There is no watch: the next look comes after this pause.
    Unwatched(Duration),
}

impl ReadWatch {
    pub(super) fn new(waker: Option<Arc<Waker>>) -> Self {
        Self { waker, arrival: None, inotify: None, state: State::Reading, unread: 0 }
    }

    /// Notes a look at the reader.
    pub(super) fn note(&mut self, unread: u64) {
        if mem::replace(&mut self.unread, unread) != unread {
            self.end();
        }
    }

    /// Ends the watch.
    pub(super) fn end(&mut self) {
        if let (State::Watched(watch), Some(inotify)) =
            (mem::replace(&mut self.state, State::Reading), &self.inotify)
        {
            inotify::end_watch(inotify.as_fd(), watch);
        }
    }

    /// Wakes the waker when that ticket ends. To be called before the look for a write, so that none is missed.
    pub(super) fn wake_at(&mut self, arrival: impl FnOnce() -> Ticket) {
        if self.arrival.as_ref().is_none_or(Ticket::has_ended) {
            // Weak: the ticket may wait for longer than the worker lives.
            let waker = self.waker.as_ref().map(Arc::downgrade);
            let arrival = self.arrival.insert(arrival());
            arrival.on_end(move || {
                let waker = waker.and_then(|waker| waker.upgrade());
                waker.iter().for_each(|waker| waker.wake());
            });
        }
    }

    /// The pause before the next look at a reader that has just read; none if it has read nothing since.
    pub(super) fn first_pause(&mut self) -> Option<Duration> {
        let is_reading = matches!(self.state, State::Reading);
        is_reading.then(|| {
            self.state = State::Paused;
            FIRST_LOOK
        })
    }

    /// Waits until the reader may have read, is gone, or the waker is woken.
    pub(super) fn wait(&mut self, pipe: BorrowedFd<'_>) {
        self.state = match self.state {
            // Does not sleep yet: a watch does not report what was read before it.
            State::Reading | State::Paused => {
                self.begin(pipe).map_or(State::Unwatched(FIRST_LOOK), State::Watched)
            }
            State::Watched(watch) => {
                self.sleep(pipe, WATCHED_LOOK);
                State::Watched(watch)
            }
            State::Unwatched(pause) => {
                self.sleep(pipe, pause);
                State::Unwatched((2 * pause).min(LAST_LOOK))
            }
        };
    }

    /// Without a waker there is no watch: the worker would miss the next write.
    fn begin(&mut self, pipe: BorrowedFd<'_>) -> Option<i32> {
        self.waker.as_ref()?;
        if self.inotify.is_none() {
            self.inotify = Watcher::make();
        }
        inotify::watch_reads(self.inotify.as_ref()?.as_fd(), pipe).ok()
    }

    fn sleep(&self, pipe: BorrowedFd<'_>, at_most: Duration) {
        let inotify = self.inotify.as_ref().filter(|_| matches!(self.state, State::Watched(_)));
        let mut events = vec![PollFd::from_borrowed_fd(pipe, PollFlags::empty())]; // which reports that the reader is gone
        events.extend(self.waker.as_ref().map(|waker| PollFd::new(&**waker, PollFlags::IN)));
        events.extend(inotify.map(|inotify| PollFd::new(inotify, PollFlags::IN)));
        fd::wait(&mut events, Some(at_most));
        self.waker.iter().for_each(|waker| waker.clear());
        inotify.iter().for_each(|inotify| inotify::forget_events(inotify.as_fd()));
    }
}
