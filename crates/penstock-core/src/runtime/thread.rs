//! The one place that starts threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use crate::error::Error;
use crate::runtime::fork::{ForkTable, Order};
use crate::sys::signals;

/// Which signals of the process a thread may receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// None: signals belong to the host program.
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
    NotStarted(Errno),
    /// It panicked: a defect of ours, or of a caller's code.
    Panicked,
}

impl Fault {
    /// The fault as a stream's failure, with the bytes delivered and lost.
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

/// Locked while a thread starts, and over a fork. glibc gives a new thread the memory of an ended one and frees its
/// thread-local variables (`get_cached_stack` in nptl/allocatestack.c, 2.36). After a fork in the middle of that, the
/// child would free them twice.
static STARTING: ForkTable<()> = ForkTable::new(Order::Starts, Mutex::default, |()| ());

/// Starts a thread. All threads of Penstock start here.
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
    let starting = STARTING.lock();
    let spawned = Builder::new().name("penstock".into()).spawn(work);
    drop(starting);
    spawned.map_err(|error| Fault::NotStarted(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))
}

/// Runs `work` and catches a panic, so that waiting threads can be told.
///
/// # Errors
///
/// It panicked.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Fault::Panicked)
}
