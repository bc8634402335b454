//! Work on threads of our own that can be waited for, cancelled, and drained when the program ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::error::Error;
use crate::runtime::fork::{ForkTable, Order};
use crate::runtime::thread::{Signals, guarded, spawn};
use crate::runtime::waker::Waker;
use crate::sync::generation::fork_generation;
use crate::sync::lock;
use crate::sync::ticket::{Ticket, ticket};
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Whether a program that ends waits for a task, or ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtExit {
    Drain,
    Cancel,
}

/// What a task and those who watch it share.
#[derive(Debug)]
pub(crate) struct Control {
    /// Woken when the task is to look at its flag, or at whatever else its owner has for it.
    pub(crate) waker: Waker,
    is_cancelled: AtomicBool,
    moved_bytes: AtomicU64,
    at_exit: AtExit,
}

impl Control {
    pub(crate) fn is_cancelled(&self) -> bool {
        // Relaxed: the flag is all there is to see.
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Whether it is a parent process's, so that here nobody works at it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.waker.is_inherited()
    }

    pub(super) fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Says how far the task has come.
    pub(crate) fn set_moved_bytes(&self, bytes: u64) {
        self.moved_bytes.store(bytes, Ordering::Relaxed);
    }
}

/// A task under way, or ended.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) ticket: Ticket,
    /// Gone when the task has ended: who keeps the ticket keeps no descriptor.
    control: Weak<Control>,
    applied: Arc<OnceLock<AppliedPolicy>>,
}

impl Task {
    /// Has the task end soon, if it has not.
    pub(crate) fn cancel(&self) {
        if let Some(control) = self.control.upgrade() {
            control.cancel();
        }
    }

    /// Has its thread look at whatever its owner has for it, if it has not ended.
    pub(crate) fn wake(&self) {
        if let Some(control) = self.control.upgrade() {
            control.waker.wake();
        }
    }

    /// What its thread runs with; none without a policy, and before the thread has started.
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

    /// What it is now; in the child of a fork what it was then, as far as that is known.
    pub(crate) fn get(&self) -> T {
        if self.generation == fork_generation() {
            return lock(&self.now).clone();
        }
        // The fork may have left the lock taken: there, and only there, waiting for it would have no end.
        self.now.try_lock().map_or_else(|_| self.initial.clone(), |now| now.clone())
    }
}

/// The tasks that run.
static RUNNING: ForkTable<Vec<Arc<Control>>> = ForkTable::new(Order::Tasks, Mutex::default, Vec::clear);

/// Makes what the task will be watched by, so that its owner can share it before it starts.
pub(crate) fn control(at_exit: AtExit) -> Result<Arc<Control>, Error> {
    Ok(Arc::new(Control {
        waker: Waker::new()?,
        is_cancelled: AtomicBool::new(false),
        moved_bytes: AtomicU64::new(0),
        at_exit,
    }))
}

/// Runs the work on a thread of its own. Its outcome is the ticket's.
///
/// # Errors
///
/// No thread could be had; the work is dropped.
pub(crate) fn start(
    control: Arc<Control>,
    policy: Option<ThreadPolicy>,
    work: impl FnOnce(&Control) -> Result<(), Error> + Send + 'static,
) -> Result<Task, Error> {
    let (completion, ticket) = ticket(0);
    let own = Arc::clone(&control);
    let applied = Arc::new(OnceLock::new());
    let task = Task { ticket, control: Arc::downgrade(&control), applied: Arc::clone(&applied) };
    RUNNING.lock().push(Arc::clone(&control));
    let spawned = spawn(Signals::Blocked, move || {
        if let Some(policy) = policy {
            let _ = applied.set(policy.apply());
        }
        // Whoever waits shall learn of a panic rather than wait for ever.
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

/// The tasks that run, in the two kinds: those that a program's end waits for, and those that it ends.
pub(super) fn running() -> (Vec<Arc<Control>>, Vec<Arc<Control>>) {
    RUNNING.lock().clone().into_iter().partition(|task| task.at_exit == AtExit::Drain)
}
