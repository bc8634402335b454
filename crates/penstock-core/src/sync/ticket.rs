//! Tickets: one queued write and what became of it. Checked with loom.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::sync::unheard::Unheard;
use crate::sync::{Arc, Condvar, Mutex, deadline_after, lock, passed, wait_until};

/// Counts the forks that led to this process, so that a child recognises its parent's tickets.
static FORK_GENERATION: AtomicU32 = AtomicU32::new(0);

/// Says, in the child of a fork, that all tickets so far are the parent's.
pub(crate) fn disown_tickets() {
    // Relaxed: the child of a fork has one thread.
    FORK_GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks that led to this process.
pub(crate) fn fork_generation() -> u32 {
    FORK_GENERATION.load(Ordering::Relaxed)
}

type Callback = Box<dyn FnOnce() + Send>;

/// Names a callback, so that it can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackId(u64);

enum State {
    Pending { callbacks: Vec<(u64, Callback)>, next: u64 },
    Ended(Result<(), Error>),
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    bytes: usize,
    generation: u32,
    /// The failure that may end it, for which asking for the outcome is hearing of it.
    unheard: Option<Arc<Unheard>>,
}

/// The caller's end: asks what became of a write, and waits for it.
#[derive(Clone)]
pub struct Ticket(Arc<Shared>);

/// The worker's end: says, exactly once, what became of the write.
///
/// Dropped without a word, it ends its ticket as aborted, so that no waiter is left behind.
pub struct Completion(Option<Arc<Shared>>);

/// Makes the two ends for a write of that many bytes.
#[must_use]
pub fn ticket(bytes: usize) -> (Completion, Ticket) {
    make(bytes, None)
}

/// The same for a write to a stream, whose failure has been heard of when the ticket has told it.
pub(crate) fn ticket_of(bytes: usize, unheard: &Arc<Unheard>) -> (Completion, Ticket) {
    make(bytes, Some(Arc::clone(unheard)))
}

fn make(bytes: usize, unheard: Option<Arc<Unheard>>) -> (Completion, Ticket) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Pending { callbacks: Vec::new(), next: 0 }),
        ended: Condvar::new(),
        bytes,
        generation: fork_generation(),
        unheard,
    });
    (Completion(Some(Arc::clone(&shared))), Ticket(shared))
}

impl Ticket {
    /// The size of the write in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether the write has ended, well or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_inherited() || matches!(*lock(&self.0.state), State::Ended(_))
    }

    /// What became of the write; none while it is under way.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.wait_for(Some(Duration::ZERO))
    }

    /// Waits until the write has ended: with `write` and `staged` when the kernel has all of its bytes, with
    /// zero-copy when the reader has read them.
    ///
    /// # Errors
    ///
    /// What the stream failed of.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_for(None).expect("a wait without a limit ends with an outcome")
    }

    /// The same for a limited time: none if the write is still under way then.
    #[must_use]
    pub fn wait_for(&self, timeout: Option<Duration>) -> Option<Result<(), Error>> {
        if self.is_inherited() {
            return Some(Err(Error::Forked));
        }
        let deadline = deadline_after(timeout);
        let mut state = lock(&self.0.state);
        loop {
            match &*state {
                State::Ended(outcome) => {
                    let outcome = outcome.clone();
                    drop(state);
                    self.note_heard(&outcome);
                    return Some(outcome);
                }
                State::Pending { .. } if passed(deadline) => return None,
                State::Pending { .. } => state = wait_until(&self.0.ended, state, deadline),
            }
        }
    }

    fn note_heard(&self, outcome: &Result<(), Error>) {
        let is_failure = outcome.as_ref().is_err_and(|error| !matches!(error, Error::Aborted { .. }));
        if let Some(unheard) = self.0.unheard.as_ref().filter(|_| is_failure) {
            unheard.note_heard();
        }
    }

    /// Calls back once when the write ends, on the thread that ends it, or at once if it has ended.
    ///
    /// The callback must be quick and must not block: it runs on the worker.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) -> CallbackId {
        if !self.is_inherited() {
            let mut state = lock(&self.0.state);
            if let State::Pending { callbacks, next } = &mut *state {
                let id = *next;
                *next += 1;
                callbacks.push((id, Box::new(callback)));
                return CallbackId(id);
            }
        }
        callback();
        CallbackId(u64::MAX)
    }

    /// Takes a callback back, unless it has been called.
    pub fn forget_callback(&self, id: CallbackId) {
        if !self.is_inherited()
            && let State::Pending { callbacks, .. } = &mut *lock(&self.0.state)
        {
            callbacks.retain(|(other, _)| *other != id.0);
        }
    }

    /// Whether a fork lies between the making of this ticket and now. Its lock may then be held by a thread
    /// that this process never had, so nothing of it may be touched.
    pub(crate) fn is_inherited(&self) -> bool {
        self.0.generation != fork_generation()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("bytes", &self.0.bytes).field("ended", &self.has_ended()).finish()
    }
}

impl Completion {
    /// Ends the ticket: wakes who waits, then calls back who asked for it.
    pub fn end(mut self, outcome: Result<(), Error>) {
        self.conclude(outcome);
    }

    /// Leaves the ticket unended, because its other end belongs to another process.
    pub(crate) fn disown(mut self) {
        mem::forget(self.0.take());
    }

    fn conclude(&mut self, outcome: Result<(), Error>) {
        let Some(shared) = self.0.take() else { return };
        let before = mem::replace(&mut *lock(&shared.state), State::Ended(outcome));
        shared.ended.notify_all();
        if let State::Pending { callbacks, .. } = before {
            callbacks.into_iter().for_each(|(_, callback)| callback());
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let bytes_lost = self.0.as_ref().map_or(0, |shared| shared.bytes as u64);
        self.conclude(Err(Error::Aborted { bytes_lost }));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use super::*;

    #[test]
    fn a_waiter_always_learns_the_outcome() {
        loom::model(|| {
            let (completion, ticket) = ticket(7);
            let waiter = thread::spawn({
                let ticket = ticket.clone();
                move || ticket.wait()
            });
            completion.end(Err(Error::Closed));
            assert_eq!(waiter.join().unwrap(), Err(Error::Closed));
            assert_eq!(ticket.outcome(), Some(Err(Error::Closed)));
        });
    }

    #[test]
    fn a_completion_that_is_dropped_ends_its_ticket() {
        loom::model(|| {
            let (completion, ticket) = ticket(7);
            let worker = thread::spawn(move || drop(completion));
            assert_eq!(ticket.wait(), Err(Error::Aborted { bytes_lost: 7 }));
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_callback_is_called_exactly_once() {
        loom::model(|| {
            let calls = Arc::new(AtomicUsize::new(0));
            let (completion, ticket) = ticket(0);
            let worker = thread::spawn(move || completion.end(Ok(())));
            let counter = Arc::clone(&calls);
            ticket.on_end(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            });
            worker.join().unwrap();
            assert_eq!(calls.load(Ordering::Relaxed), 1);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pending_ticket_has_no_outcome_until_it_ends() {
        let (completion, ticket) = ticket(3);
        assert_eq!(ticket.bytes(), 3);
        assert_eq!(ticket.outcome(), None);
        assert_eq!(ticket.wait_for(Some(Duration::from_millis(5))), None);
        completion.end(Ok(()));
        assert_eq!(ticket.outcome(), Some(Ok(())));
        assert_eq!(ticket.wait(), Ok(()));
    }

    #[test]
    fn an_inherited_ticket_is_the_parents() {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Pending { callbacks: Vec::new(), next: 0 }),
            ended: Condvar::new(),
            bytes: 3,
            generation: fork_generation().wrapping_sub(1),
            unheard: None,
        });
        assert_eq!(Ticket(shared).wait(), Err(Error::Forked));
    }
}
