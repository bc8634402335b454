//! Tickets: what became of a queued write. Checked with loom.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::sync::generation::fork_generation;
use crate::sync::{
    Arc, Condvar, Mutex, check_none_is_held, deadline_after, lock, passed, run_callers_code, wait_until,
};

/// Told when a ticket has returned a failure of its stream to a caller.
pub(crate) type OnReport = std::sync::Arc<dyn Fn() + Send + Sync>;

/// Who hears of the end.
enum Listener {
    Callback(Box<dyn FnOnce() + Send>),
    Task(Waker),
}

/// Identifies a callback of [`Ticket::on_end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackId(u64);

enum State {
    /// `is_waited`: a thread may sleep. Otherwise nobody needs to call futex(2).
    Pending {
        listeners: Vec<(u64, Listener)>,
        next: u64,
        is_waited: bool,
    },
    Ended(Result<(), Error>),
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    bytes: usize,
    generation: u32,
    on_report: Option<OnReport>,
}

/// One queued operation and its outcome.
///
/// Waits for it: by [`wait`](Self::wait), by [`on_end`](Self::on_end), or by `.await` in any async runtime. The future resolves to
/// the outcome, also when it is polled again; the native thread that ends the operation wakes its task. Dropping a ticket has no
/// effect on the operation. Clones share one outcome, and each may be awaited by a task of its own.
///
/// In the child of a fork, a ticket of the parent has ended with [`Error::Forked`].
///
/// ```
/// # async fn render() -> Result<(), penstock_core::Error> {
/// let (_reader, writer_end) = std::io::pipe().unwrap();
/// let writer = penstock_core::Writer::new(&writer_end, &Default::default())?;
/// writer.submit(b"frame".to_vec(), None)?.await?;
/// # Ok(())
/// # }
/// ```
pub struct Ticket {
    shared: Arc<Shared>,
    /// The listener that wakes the task that polled this clone last.
    task: Option<u64>,
}

/// The worker's end: sets the outcome, exactly once.
///
/// Dropped before that, it ends its ticket as aborted, so that no waiter is left behind.
pub struct Completion(Option<Arc<Shared>>);

opaque!("Completion", impl std::fmt::Debug for Completion);

/// Makes the two sides for an operation without a size.
#[must_use]
pub fn ticket() -> (Completion, Ticket) {
    make(0, None)
}

/// As [`ticket`], for a write of `bytes` bytes.
pub(crate) fn ticket_of(bytes: usize, on_report: OnReport) -> (Completion, Ticket) {
    make(bytes, Some(on_report))
}

fn make(bytes: usize, on_report: Option<OnReport>) -> (Completion, Ticket) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Pending { listeners: Vec::new(), next: 0, is_waited: false }),
        ended: Condvar::new(),
        bytes,
        generation: fork_generation(),
        on_report,
    });
    (Completion(Some(Arc::clone(&shared))), Ticket { shared, task: None })
}

impl Ticket {
    /// A ticket of something that has ended.
    #[must_use]
    pub fn ended(outcome: Result<(), Error>) -> Self {
        let (completion, ticket) = ticket();
        completion.end(outcome);
        ticket
    }

    /// The number of bytes that enter the stream.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.bytes
    }

    /// Whether the operation has ended, with or without an error.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_inherited() || matches!(*lock(&self.shared.state), State::Ended(_))
    }

    /// The outcome, or `None` while the operation is under way. Does not wait.
    ///
    /// Like all waits, it reports a failure of the stream: the end of the program no longer does. See [`peek`](Self::peek).
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), Error>> {
        self.wait_for(Some(Duration::ZERO))
    }

    /// Returns the [`outcome`](Self::outcome) without reporting it, for a log or a debugger.
    #[must_use]
    pub fn peek(&self) -> Option<Result<(), Error>> {
        self.wait_silently(Some(Instant::now()))
    }

    /// Waits until the operation has ended, and returns its outcome.
    ///
    /// With the transports `write` and `staged`, a write ends when the kernel has all of its bytes; with `zero-copy`, when the
    /// reader has read them.
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`], [`Error::Forked`], or the failure of the stream.
    pub fn wait(&self) -> Result<(), Error> {
        self.wait_for(None).expect("a wait without a limit ends with an outcome")
    }

    /// Waits as [`wait`](Self::wait) does, but at most until the timeout. Returns `None` if the operation is still under way.
    #[must_use]
    pub fn wait_for(&self, timeout: Option<Duration>) -> Option<Result<(), Error>> {
        let ended = self.wait_silently(deadline_after(timeout));
        if let Some(Err(failure)) = &ended {
            self.note_report(failure);
        }
        ended
    }

    /// Waits until the deadline. Its answer counts as reported only once [`note_report`](Self::note_report) is called.
    pub(crate) fn wait_silently(&self, deadline: Option<Instant>) -> Option<Result<(), Error>> {
        if self.is_inherited() {
            return Some(Err(Error::Forked));
        }
        let mut state = lock(&self.shared.state);
        loop {
            match &mut *state {
                State::Ended(outcome) => return Some(outcome.clone()),
                State::Pending { .. } if passed(deadline) => return None,
                State::Pending { is_waited, .. } => {
                    *is_waited = true;
                    state = wait_until(&self.shared.ended, state, deadline);
                }
            }
        }
    }

    /// Whether both are writes of one stream.
    pub(crate) fn is_of_stream_of(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|ticket| ticket.shared.on_report.as_ref());
        own.zip(others).is_some_and(|(own, other)| std::sync::Arc::ptr_eq(own, other))
    }

    /// Notes that its failure is returned to a caller. An abort is none.
    pub(crate) fn note_report(&self, failure: &Error) {
        if let Some(on_report) =
            self.shared.on_report.as_ref().filter(|_| !matches!(failure, Error::Aborted { .. }))
        {
            on_report();
        }
    }

    /// Calls `callback` once, when the operation ends, or at once if it has ended.
    ///
    /// It runs on the thread that ends the operation, usually a native one, so it must be quick and must not block. Of its
    /// panic only the message remains.
    pub fn on_end(&self, callback: impl FnOnce() + Send + 'static) -> CallbackId {
        if !self.is_inherited() {
            let mut state = lock(&self.shared.state);
            if let State::Pending { listeners, next, .. } = &mut *state {
                let id = *next;
                *next += 1;
                listeners.push((id, Listener::Callback(Box::new(callback))));
                return CallbackId(id);
            }
        }
        callback();
        CallbackId(u64::MAX)
    }

    /// Removes a callback, unless it has been called.
    pub fn forget_callback(&self, id: CallbackId) {
        self.forget_listener(id.0);
    }

    fn forget_listener(&self, id: u64) {
        if self.is_inherited() {
            return;
        }
        let mut state = lock(&self.shared.state);
        let State::Pending { listeners, .. } = &mut *state else { return };
        let found = listeners.iter().position(|(other, _)| *other == id);
        let forgotten = found.map(|index| listeners.remove(index));
        drop(state);
        drop(forgotten); // outside of the lock: it may own another clone of this ticket
    }

    /// Has the waker called at the end, in place of this clone's last one. Returns whether the end is yet to come.
    fn listen(&mut self, waker: Waker) -> bool {
        let mut state = lock(&self.shared.state);
        let State::Pending { listeners, next, .. } = &mut *state else { return false };
        let mut listener = Listener::Task(waker);
        match listeners.iter_mut().find(|(id, _)| Some(*id) == self.task) {
            Some((_, last)) => mem::swap(last, &mut listener),
            None => {
                self.task = Some(*next);
                listeners.push((*next, listener));
                *next += 1;
                return true;
            }
        }
        drop(state);
        drop(listener); // see `forget_listener`
        true
    }

    /// Whether the ticket was made before a fork, by the parent. Its lock may be held by a thread that does not exist
    /// here, so it must not be touched.
    pub(crate) fn is_inherited(&self) -> bool {
        self.shared.generation != fork_generation()
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.is_inherited() && self.listen(context.waker().clone()) {
            return Poll::Pending;
        }
        Poll::Ready(self.outcome().expect("it has ended"))
    }
}

impl Clone for Ticket {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), task: None }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(id) = self.task {
            self.forget_listener(id);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("bytes", &self.bytes()).field("ended", &self.has_ended()).finish()
    }
}

impl Completion {
    /// Sets the outcome: wakes all waiting threads, then runs the callbacks.
    pub fn end(mut self, outcome: Result<(), Error>) {
        self.conclude(outcome);
    }

    /// Drops it, because the operation was refused: nobody has a ticket of it.
    pub(crate) fn forget(mut self) {
        self.0 = None;
    }

    fn conclude(&mut self, outcome: Result<(), Error>) {
        let Some(shared) = self.0.take() else { return };
        check_none_is_held();
        let before = mem::replace(&mut *lock(&shared.state), State::Ended(outcome));
        let State::Pending { listeners, is_waited, .. } = before else { return };
        if is_waited {
            shared.ended.notify_all();
        }
        for (_, listener) in listeners {
            run_callers_code(|| match listener {
                Listener::Callback(callback) => callback(),
                Listener::Task(waker) => waker.wake(),
            });
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
    use std::pin::pin;
    use std::task::Wake;

    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use super::*;

    /// The thread of a runtime.
    struct Executor(thread::Thread);

    impl Wake for Executor {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on(ticket: Ticket) -> Result<(), Error> {
        let waker = Waker::from(std::sync::Arc::new(Executor(thread::current())));
        let mut ticket = pin!(ticket);
        loop {
            match ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => thread::park(), // for ever, if the task were not woken
            }
        }
    }

    #[test]
    fn every_task_that_awaits_is_woken() {
        loom::model(|| {
            let (completion, ticket) = make(7, None);
            let other = thread::spawn({
                let ticket = ticket.clone();
                move || block_on(ticket)
            });
            let worker = thread::spawn(move || completion.end(Err(Error::Closed)));
            assert_eq!(block_on(ticket), Err(Error::Closed));
            assert_eq!(other.join().unwrap(), Err(Error::Closed));
            worker.join().unwrap();
        });
    }

    #[test]
    fn future_that_moves_to_another_task_wakes_that_task() {
        loom::model(|| {
            let (completion, mut ticket) = make(7, None);
            let worker = thread::spawn(move || completion.end(Ok(())));
            let _ = Pin::new(&mut ticket).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(block_on(ticket), Ok(()));
            worker.join().unwrap();
        });
    }

    #[test]
    fn waiter_always_gets_the_outcome() {
        loom::model(|| {
            let (completion, ticket) = make(7, None);
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
            let (completion, ticket) = make(7, None);
            let worker = thread::spawn(move || drop(completion));
            assert_eq!(ticket.wait(), Err(Error::Aborted { bytes_lost: 7 }));
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_callback_is_called_exactly_once() {
        loom::model(|| {
            let calls = Arc::new(AtomicUsize::new(0));
            let (completion, ticket) = make(0, None);
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
    use std::pin::pin;
    use std::task::Wake;

    use super::*;

    /// A task that owns a ticket, as an executor's task owns its future.
    struct Owner {
        _future: Ticket,
    }

    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_refused_operation_may_be_forgotten_under_a_lock() {
        let (completion, _ticket) = make(3, None);
        let state = Mutex::new(1u8);
        let _held = lock(&state);
        completion.forget();
    }

    #[test]
    fn a_ticket_that_is_dropped_forgets_its_task() {
        let (completion, ticket) = make(3, None);
        let owner = Arc::new(Owner { _future: ticket.clone() });
        let waker = Waker::from(Arc::clone(&owner));
        let mut awaited = ticket.clone();
        for _ in 0..3 {
            assert_eq!(Pin::new(&mut awaited).poll(&mut Context::from_waker(&waker)), Poll::Pending);
        }
        assert_eq!(Arc::strong_count(&owner), 3, "the waker is held once, however often it is polled");
        drop((waker, owner)); // the ticket holds the last reference to the task, which owns another clone
        drop(awaited);
        assert_eq!(Arc::strong_count(&ticket.shared), 2, "the completion's and this one's");
        completion.end(Ok(()));
        assert_eq!(pin!(ticket).poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())));
    }

    #[test]
    fn a_pending_ticket_has_no_outcome_until_it_ends() {
        let (completion, ticket) = make(3, None);
        assert_eq!(ticket.bytes(), 3);
        assert_eq!(ticket.outcome(), None);
        assert_eq!(ticket.wait_for(Some(Duration::from_millis(5))), None);
        completion.end(Ok(()));
        assert_eq!(ticket.outcome(), Some(Ok(())));
        assert_eq!(ticket.wait(), Ok(()));
    }

    #[test]
    fn panicking_callback_does_not_stop_other_callbacks() {
        let (completion, ticket) = make(3, None);
        ticket.on_end(|| panic!("a caller's"));
        let (other, told) = std::sync::mpsc::channel();
        ticket.on_end(move || other.send(()).unwrap());
        completion.end(Ok(()));
        assert_eq!((told.recv(), ticket.outcome()), (Ok(()), Some(Ok(()))));
    }

    #[test]
    fn inherited_ticket_belongs_to_the_parent() {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::Pending { listeners: Vec::new(), next: 0, is_waited: false }),
            ended: Condvar::new(),
            bytes: 3,
            generation: fork_generation().wrapping_sub(1),
            on_report: None,
        });
        let ticket = Ticket { shared, task: None };
        assert_eq!(ticket.wait(), Err(Error::Forked));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(ticket).poll(&mut context), Poll::Ready(Err(Error::Forked)));
    }
}
