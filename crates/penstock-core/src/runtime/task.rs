//! Tasks on threads of our own, which can be awaited, cancelled, and drained when the program exits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::counter::Counter;
use crate::error::Error;
use crate::runtime::closing;
use crate::runtime::exit::{self, ProcessEnd, STALL};
use crate::runtime::fork::PerProcess;
use crate::runtime::thread::{Signals, guarded, spawn};
use crate::runtime::waker::Waker;
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
static RUNNING: PerProcess<Mutex<Vec<Arc<Control>>>> = PerProcess::new(Mutex::default);

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
    DRAIN.arm();
    let (completion, ticket) = ticket();
    let own = Arc::clone(&control);
    let applied = Arc::new(OnceLock::new());
    let task = Task { ticket, control: Arc::downgrade(&control), applied: Arc::clone(&applied) };
    lock(RUNNING.get()).push(Arc::clone(&control));
    let spawned = spawn(Signals::Blocked, move || {
        if let Some(policy) = policy {
            let _ = applied.set(policy.apply());
        }
        // A panic ends the ticket too, so that nobody waits for ever.
        let outcome = guarded(|| work(&own)).unwrap_or_else(|fault| Err(fault.into()));
        lock(RUNNING.get()).retain(|other| !Arc::ptr_eq(other, &own));
        drop(own);
        completion.end(outcome);
    });
    if let Err(fault) = spawned {
        lock(RUNNING.get()).retain(|other| !Arc::ptr_eq(other, &control));
        return Err(fault.into());
    }
    Ok(task)
}

static DRAIN: ProcessEnd = ProcessEnd::new(run_at_exit);

extern "C" fn run_at_exit() {
    let cut_off = drain_tasks(STALL, || true);
    if cut_off > 0 {
        let stall_s = STALL.as_secs();
        exit::report(&format!(
            "{cut_off} relays were cut off, because the program ended and nothing moved for {stall_s} s"
        ));
    }
}

/// Waits for relays and tees in the background while any of them makes progress, and cancels `Reader`s and waits for
/// FIFOs. Then waits for the closes of dropped files, and says on stderr if some do not end. To be called last in a program. Returns the number of relays and tees that it cut off: after `stall` without
/// progress, or when `keep_on`, called every 20 ms, returns false.
#[must_use]
pub fn drain_tasks(stall: Duration, mut keep_on: impl FnMut() -> bool) -> usize {
    let (mut unfinished, waiting) = running();
    waiting.iter().for_each(|task| task.cancel());
    exit::drain(stall, &mut keep_on, || {
        let (running, _) = running();
        unfinished.retain(|task| running.iter().any(|other| Arc::ptr_eq(other, task)));
        let moved: u64 = unfinished.iter().map(|task| task.moved_bytes.get()).sum();
        (unfinished.len() as u64, moved)
    });
    unfinished.iter().for_each(|task| task.cancel());
    closing::drain(stall, keep_on);
    unfinished.len()
}

/// The running tasks: those that an exit waits for, and those that it cancels.
fn running() -> (Vec<Arc<Control>>, Vec<Arc<Control>>) {
    lock(RUNNING.get()).clone().into_iter().partition(|task| task.at_exit == AtExit::Drain)
}
