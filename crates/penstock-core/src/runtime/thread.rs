//! The one place that starts threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use crate::error::Error;
use crate::runtime::fork::{ForkTable, Order};
use crate::sys::signals;

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

/// Locked while a thread is started, and over a fork: glibc gives a new thread the memory of one that has ended, and frees what that one
/// had of thread-local variables. In the middle of that (`get_cached_stack` in nptl/allocatestack.c, 2.36) the child of a fork would
/// free it a second time.
static STARTING: ForkTable<()> = ForkTable::new(Order::Starts, Mutex::default, |()| ());

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
    let starting = STARTING.lock();
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
