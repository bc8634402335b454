//! Waits until the reader of a pipe has read what zero-copy gave it.
//!
//! poll(2) reports room in a pipe, but not that the reader took something from a pipe with room. inotify(7) reports each
//! read (`IN_ACCESS`), also for pipes without a name, whose users include `tail -f`. `O_ASYNC` reports it, too (fcntl(2)), but by
//! a signal, which the host program may use itself.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::runtime::fork::PerProcess;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::waker::Waker;
use crate::sync::lock;
use crate::sync::ticket::Ticket;
use crate::sys::wait::{self, Events, Watched};
use crate::sys::{AsHandle, Borrowed, inotify};

/// The pause before the next look at a reader that has just read: it will soon read more, and a watch costs each of its
/// reads some 0.5 µs (measured with 4 KiB each). With the 50 µs of timer slack (prctl(2), `PR_SET_TIMERSLACK`).
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// Without a watch, the pause doubles up to this one, which bounds what it adds to a `sync`.
const LAST_LOOK: Duration = Duration::from_micros(800);

/// With a watch: for a read that the system does not report, as by splice(2) before Linux 6.5. Guessed.
const WATCHED_LOOK: Duration = Duration::from_secs(1);

/// How many inotify descriptors the process has at most. Chosen: an eighth of what all programs of a user have together
/// (`max_user_instances`, 128 by default).
const MOST_WATCHERS: usize = 16;

/// Those that workers use.
static WATCHERS: PerProcess<Mutex<Vec<Weak<Watcher>>>> = PerProcess::new(Mutex::default);

/// An inotify descriptor. Beyond [`MOST_WATCHERS`], workers share them: its events wake all who wait for it, and whoever takes an event
/// wakes the one whom it concerns.
struct Watcher {
    fd: ForkFd,
    /// Whom a watch wakes.
    wakers: Mutex<HashMap<i32, Weak<Waker>>>,
}

impl Watcher {
    /// One that few others use. None if the system refuses the first.
    fn take() -> Option<Arc<Self>> {
        let mut all = lock(WATCHERS.get());
        all.retain(|watcher| watcher.strong_count() > 0);
        if all.len() < MOST_WATCHERS
            && let Ok(fd) = ForkFd::of_inotify(inotify::make)
        {
            let own = Arc::new(Self { fd, wakers: Mutex::default() });
            all.push(Arc::downgrade(&own));
            return Some(own);
        }
        let used: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all); // before any of `used`, whose last reference may be here
        used.into_iter().min_by_key(Arc::strong_count)
    }

    fn begin(&self, pipe: Borrowed<'_>, waker: &Arc<Waker>) -> Option<i32> {
        let watch = inotify::watch_reads(self.fd.as_handle(), pipe).ok()?;
        lock(&self.wakers).insert(watch, Arc::downgrade(waker));
        Some(watch)
    }

    fn end(&self, watch: i32) {
        lock(&self.wakers).remove(&watch);
        inotify::end_watch(self.fd.as_handle(), watch);
        self.pass_events_on(watch);
    }

    /// Takes the events so far, and wakes the others whom they concern.
    fn pass_events_on(&self, own: i32) {
        inotify::take_events(self.fd.as_handle(), |watch| {
            if watch == own {
                return;
            }
            let waker = lock(&self.wakers).get(&watch).and_then(Weak::upgrade);
            waker.iter().for_each(|waker| waker.wake());
        });
    }
}

/// The reader of a worker's pipe, as the worker waits for it.
pub(super) struct ReadWatch {
    /// Wakes the worker; none if the system had no descriptor for it.
    pub(super) waker: Option<Arc<Waker>>,
    /// Ends when the next write comes, and wakes the waker.
    arrival: Option<Ticket>,
    watcher: Option<Arc<Watcher>>,
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
        Self { waker, arrival: None, watcher: None, state: State::Reading, unread: 0 }
    }

    /// Notes a look at the reader.
    pub(super) fn note(&mut self, unread: u64) {
        if mem::replace(&mut self.unread, unread) != unread {
            self.end();
        }
    }

    /// Ends the watch.
    pub(super) fn end(&mut self) {
        if let (State::Watched(watch), Some(watcher)) =
            (mem::replace(&mut self.state, State::Reading), &self.watcher)
        {
            watcher.end(watch);
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
    pub(super) fn wait(&mut self, pipe: Borrowed<'_>) {
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
    fn begin(&mut self, pipe: Borrowed<'_>) -> Option<i32> {
        let waker = self.waker.as_ref()?;
        if self.watcher.is_none() {
            self.watcher = Watcher::take();
        }
        self.watcher.as_ref()?.begin(pipe, waker)
    }

    fn sleep(&self, pipe: Borrowed<'_>, at_most: Duration) {
        let watched = match self.state {
            State::Watched(watch) => self.watcher.as_ref().map(|watcher| (watcher, watch)),
            _ => None,
        };
        let mut events = vec![Watched::new(pipe, Events::NONE)]; // which reports that the reader is gone
        events.extend(self.waker.as_ref().map(|waker| Watched::new(waker.as_handle(), Events::READ)));
        events.extend(watched.map(|(watcher, _)| Watched::new(watcher.fd.as_handle(), Events::READ)));
        wait::wait(&mut events, Some(at_most));
        self.waker.iter().for_each(|waker| waker.clear());
        watched.iter().for_each(|(watcher, own)| watcher.pass_events_on(*own));
    }
}

impl Drop for ReadWatch {
    fn drop(&mut self) {
        self.end(); // others may use the watcher
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn an_event_wakes_the_worker_whom_it_concerns_whoever_takes_it() {
        let [(mut read, mut own_pipe), (_unread, mut others_pipe)] = [pipe().unwrap(), pipe().unwrap()];
        let [mut own, mut other] = [(); 2].map(|()| ReadWatch::new(Some(Arc::new(Waker::new().unwrap()))));
        other.watcher = Watcher::take();
        own.watcher.clone_from(&other.watcher);
        for (watch, pipe) in [(&mut own, &mut own_pipe), (&mut other, &mut others_pipe)] {
            pipe.write_all(b"ab").unwrap();
            watch.wait(pipe.as_handle());
            assert!(matches!(watch.state, State::Watched(_)));
        }
        let is_woken = |watch: &ReadWatch| {
            !wait::ready(watch.waker.as_ref().unwrap().as_handle(), Events::READ).is_empty()
        };
        read.read_exact(&mut [0]).unwrap();
        other.wait(others_pipe.as_handle());
        assert!(is_woken(&own) && !is_woken(&other));
        own.waker.as_ref().unwrap().clear();
        own.end();
        read.read_exact(&mut [0]).unwrap();
        assert!(!is_woken(&own), "it has ended");
    }
}
