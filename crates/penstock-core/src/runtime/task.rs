//! Threads of ours: one place that starts them all, and tasks on them that can be waited for, cancelled, and drained when the
//! program ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use crate::error::Error;
use crate::runtime::fork;
use crate::runtime::fork_fd::Waker;
use crate::sync::lock;
use crate::sync::ticket::{Ticket, fork_generation, ticket};
use crate::sys::signals;
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// Which signals of the process a thread of ours may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None: they are the host program's.
    Blocked,
    /// Those that the thread gets which started it. For threads that run the caller's code, whose processes inherit the mask.
    AsStarter,
}

/// Why a thread did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The system refused a thread.
    NotStarted(Errno),
    /// A defect of ours, or a panic in a caller's code.
    Panicked,
}

impl Fault {
    /// The failure of a stream of which so many bytes were delivered and lost.
    pub(crate) fn of_stream(self, bytes_delivered: u64, bytes_lost: u64) -> Error {
        match self {
            Self::NotStarted(errno) => Error::NoThread { errno, bytes_delivered, bytes_lost },
            Self::Panicked => Error::Io { errno: Errno::IO, bytes_delivered, bytes_lost },
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.of_stream(0, 0)
    }
}

/// Held while a thread is started, and over a fork: glibc gives a new thread the memory of one that has ended, and frees what that one
/// had of thread-local variables. In the middle of that (`get_cached_stack` in nptl/allocatestack.c, 2.36) the child of a fork would
/// free it a second time.
static STARTING: Mutex<()> = Mutex::new(());

/// Keeps threads from being started while the process forks.
pub(super) fn hold_starts() -> MutexGuard<'static, ()> {
    lock(&STARTING)
}

/// Starts a thread. All threads of ours start here.
///
/// # Errors
///
/// The system refused a thread; the work is dropped.
pub fn spawn<T: Send + 'static>(
    signals: Signals,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    let work = move || {
        if signals == Signals::Blocked {
            signals::block_signals();
        }
        work()
    };
    fork::prepare();
    let starting = lock(&STARTING);
    let spawned = Builder::new().name("penstock".into()).spawn(work);
    drop(starting);
    spawned.map_err(|error| Fault::NotStarted(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))
}

/// Does the work; a panic ends it and nothing else, so that whoever waits can be told.
///
/// # Errors
///
/// It panicked.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Fault::Panicked)
}

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
static RUNNING: Mutex<Vec<Arc<Control>>> = Mutex::new(Vec::new());

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
    lock(&RUNNING).push(Arc::clone(&control));
    let spawned = spawn(Signals::Blocked, move || {
        if let Some(policy) = policy {
            let _ = applied.set(policy.apply());
        }
        // Whoever waits shall learn of a panic rather than wait for ever.
        let outcome = guarded(|| work(&own)).unwrap_or_else(|fault| Err(fault.into()));
        lock(&RUNNING).retain(|other| !Arc::ptr_eq(other, &own));
        drop(own);
        completion.end(outcome);
    });
    if let Err(fault) = spawned {
        lock(&RUNNING).retain(|other| !Arc::ptr_eq(other, &control));
        return Err(fault.into());
    }
    Ok(task)
}

/// Holds the table still while the process forks.
pub(crate) fn hold() -> MutexGuard<'static, Vec<Arc<Control>>> {
    lock(&RUNNING)
}

/// The tasks that run, in the two kinds: those that a program's end waits for, and those that it ends.
pub(super) fn running() -> (Vec<Arc<Control>>, Vec<Arc<Control>>) {
    lock(&RUNNING).clone().into_iter().partition(|task| task.at_exit == AtExit::Drain)
}
