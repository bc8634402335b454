//! The calling thread: its signals, its niceness and its CPUs.

use std::mem::MaybeUninit;

use rustix::io::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Keeps all signals off the calling thread: they are the host program's, and a write(2) to a dead pipe or
/// past a file-size limit shall be an error, not a `SIGPIPE` or `SIGXFSZ` that kills the process.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initialises the set before `pthread_sigmask` reads it; neither fails on valid pointers.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}

/// Sets the calling thread's niceness (Linux keeps one for each thread, sched(7)).
pub(crate) fn set_nice(nice: i32) -> Result<()> {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice)
}

/// The calling thread's niceness.
pub(crate) fn nice() -> Result<i32> {
    rustix::process::getpriority_process(Some(rustix::thread::gettid()))
}

/// Restricts the calling thread to these CPUs.
pub(crate) fn set_cpus(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(rustix::io::Errno::INVAL);
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set)
}

/// The CPUs that the calling thread may run on.
pub(crate) fn cpus() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}
