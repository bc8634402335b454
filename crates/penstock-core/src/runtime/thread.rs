//! The one place that starts threads.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};

use crate::error::Error;
use crate::runtime::fork::STARTING;
use crate::sync::lock;
use crate::sys::{SysError, signals};

/// Which signals of the process a thread may receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None but those of its own faults: signals belong to the host program.
    Blocked,
    /// Those of the thread that starts it. For threads that run the caller's code, whose child processes inherit the
    /// mask.
    AsStarter,
}

/// Why a thread did not do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The system refused a thread.
    NotStarted {
        /// Its error number.
        os_error: i32,
    },
    /// It panicked: a defect of ours, or of a caller's code.
    Panicked,
}

impl Fault {
    /// The fault as a stream's failure, with the bytes delivered and lost.
    pub(crate) fn of_stream(self, bytes_delivered: u64, bytes_lost: u64) -> Error {
        match self {
            Self::NotStarted { os_error } => Error::NoThread { os_error, bytes_delivered, bytes_lost },
            Self::Panicked => {
                Error::Io { os_error: SysError::IO.raw_os_error(), bytes_delivered, bytes_lost }
            }
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.of_stream(0, 0)
    }
}

thread_local! {
    // Without a destructor, so that it can be read where the thread ends.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is one of Penstock's that runs no code of the caller's, so that it may wait.
pub(super) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Starts a thread. All threads of Penstock start here.
///
/// # Errors
///
/// The system refused a thread; the work is dropped.
pub fn spawn<T: Send + 'static>(
    signals: Signals,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    spawn_named("penstock", signals, work)
}

/// As [`spawn`], with a name of at most 15 bytes for lists of threads.
///
/// # Errors
///
/// As [`spawn`].
pub fn spawn_named<T: Send + 'static>(
    name: &str,
    signals: Signals,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    // Shared, so that refused work is dropped here, once the lock is free: its drop may start another thread.
    let shared = Arc::new(Mutex::new(Some(work)));
    let own = Arc::clone(&shared);
    let begin = move || {
        if signals == Signals::Blocked {
            signals::block_signals();
            IS_WORKER.set(true);
        }
        let work = lock(&own).take();
        work.expect("only this thread takes it")()
    };
    let starting = lock(&STARTING);
    let spawned = Builder::new().name(name.into()).spawn(begin);
    drop(starting);
    spawned.map_err(|error| Fault::NotStarted {
        os_error: error.raw_os_error().unwrap_or(SysError::WOULD_BLOCK.raw_os_error()),
    })
}

/// Runs `work` and catches a panic, so that waiting threads can be told.
///
/// # Errors
///
/// It panicked.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Fault::Panicked)
}
