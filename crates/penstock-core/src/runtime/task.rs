//! Tasks on threads of our own, which can be awaited, cancelled, and drained when the program exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::error::Error;
use crate::runtime::fork::{ForkTable, Order};
use crate::runtime::thread::{Signals, guarded, spawn};
use crate::runtime::waker::Waker;
use crate::sync::counter::Counter;
use crate::sync::generation::fork_generation;
use crate::sync::lock;
use crate::sync::ticket::{Ticket, ticket};
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Whether the exit of a program waits for a task or cancels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtExit {
    Drain,
    Cancel,
}

/// What a task shares with its owners.
#[derive(Debug)]
pub(crate) struct Control {
    /// Woken when the task is to check for cancellation, or for other orders of its owner.
    pub(crate) waker: Waker,
    is_cancelled: AtomicBool,
    /// The task's progress.
    pub(crate) moved_bytes: Counter,
    at_exit: AtExit,
}

impl Control {
    pub(crate) fn is_cancelled(&self) -> bool {
        // Relaxed: nothing else is published with the flag.
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Whether it belongs to the parent of a fork: its thread is not in this process.
    pub(crate) fn is_inherited(&self) -> bool {
        self.waker.is_inherited()
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.waker.wake();
    }
}

/// A task, running or ended.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) ticket: Ticket,
    /// Gone when the task has ended, so that a kept ticket keeps no descriptor open.
    control: Weak<Control>,
    applied: Arc<OnceLock<AppliedPolicy>>,
}

impl Task {
    /// Makes the task end soon, if it has not ended.
    pub(crate) fn cancel(&self) {
        if let Some(control) = self.control.upgrade() {
            control.cancel();
        }
    }

    /// Wakes the task's thread, if it has not ended.
    pub(crate) fn wake(&self) {
        if let Some(control) = self.control.upgrade() {
            control.waker.wake();
        }
    }

    /// The policy that the thread runs with; none without one, and before the thread has started.
    pub(crate) fn applied_policy(&self) -> Option<AppliedPolicy> {
        self.applied.get().cloned()
    }
}

/// A value that a task keeps up to date for others to read.
#[derive(Debug)]
pub(crate) struct Live<T> {
    now: Mutex<T>,
    initial: T,
    generation: u32,
}

impl<T: Clone> Live<T> {
    pub(crate) fn new(initial: T) -> Self {
        Self { now: Mutex::new(initial.clone()), initial, generation: fork_generation() }
    }

    pub(crate) fn set(&self, value: T) {
        *lock(&self.now) = value;
    }

    pub(crate) fn change<A>(&self, change: impl FnOnce(&mut T) -> A) -> A {
        change(&mut lock(&self.now))
    }

    /// The present value. In the child of a fork, the value at the time of the fork if it can be read.
    pub(crate) fn get(&self) -> T {
        if self.generation == fork_generation() {
            return lock(&self.now).clone();
        }
        // In a child the lock may be held for ever.
        self.now.try_lock().map_or_else(|_| self.initial.clone(), |now| now.clone())
    }
}

/// The tasks that run.
static RUNNING: ForkTable<Vec<Arc<Control>>> = ForkTable::new(Order::Tasks, Mutex::default, Vec::clear);

/// Makes the control of a task, so that its owner can share it before the task starts.
pub(crate) fn control(at_exit: AtExit) -> Result<Arc<Control>, Error> {
    Ok(Arc::new(Control {
        waker: Waker::new()?,
        is_cancelled: AtomicBool::new(false),
        moved_bytes: Counter::default(),
        at_exit,
    }))
}

/// Runs `work` on a thread of its own, whose outcome ends the ticket.
///
/// # Errors
///
/// The system refused a thread; the work is dropped.
pub(crate) fn start(
    control: Arc<Control>,
    policy: Option<ThreadPolicy>,
    work: impl FnOnce(&Control) -> Result<(), Error> + Send + 'static,
) -> Result<Task, Error> {
    let (completion, ticket) = ticket();
    let own = Arc::clone(&control);
    let applied = Arc::new(OnceLock::new());
    let task = Task { ticket, control: Arc::downgrade(&control), applied: Arc::clone(&applied) };
    RUNNING.lock().push(Arc::clone(&control));
    let spawned = spawn(Signals::Blocked, move || {
        if let Some(policy) = policy {
            let _ = applied.set(policy.apply());
        }
        // A panic ends the ticket too, so that nobody waits for ever.
        let outcome = guarded(|| work(&own)).unwrap_or_else(|fault| Err(fault.into()));
        RUNNING.lock().retain(|other| !Arc::ptr_eq(other, &own));
        drop(own);
        completion.end(outcome);
    });
    if let Err(fault) = spawned {
        RUNNING.lock().retain(|other| !Arc::ptr_eq(other, &control));
        return Err(fault.into());
    }
    Ok(task)
}

/// The running tasks: those that an exit waits for, and those that it cancels.
pub(super) fn running() -> (Vec<Arc<Control>>, Vec<Arc<Control>>) {
    RUNNING.lock().clone().into_iter().partition(|task| task.at_exit == AtExit::Drain)
}
