//! The calling thread: its signals, its niceness, its scheduling policy and its CPUs.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use rustix::io::{Errno, Result};

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

/// Keeps off the calling thread, while it lives, the signals that a write(2) to a dead pipe or past a file-size limit sends: the
/// call's `EPIPE` or `EFBIG` tells.
pub(crate) struct WithoutWriteSignals {
    before: libc::sigset_t,
    /// Signals are a thread's own.
    _not_send: PhantomData<*const ()>,
}

impl WithoutWriteSignals {
    pub(crate) fn new() -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which fills `before`; it does not fail on valid arguments.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(WRITE_SIGNALS.into_iter()), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, _not_send: PhantomData }
    }
}

impl Drop for WithoutWriteSignals {
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set is the one that the thread had before, and all other pointers are valid or null as
        // sigtimedwait(2) allows.
        unsafe {
            // What was blocked before may be pending for somebody else. The others, if a call of ours made them, are taken off
            // before they can be delivered.
            let ours = set_of(
                WRITE_SIGNALS.into_iter().filter(|&signal| libc::sigismember(&self.before, signal) != 1),
            );
            while libc::sigtimedwait(&ours, std::ptr::null_mut(), &now) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

const WRITE_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set; neither call fails on valid arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// No kernel can be built for more CPUs: `NR_CPUS_RANGE_END` in arch/x86/Kconfig, the highest of all architectures. The
/// kernel refuses a set that is smaller than its own, as libc's of 1024 is on the largest machines (sched_setaffinity(2)).
pub(crate) const CPUS_MAX: usize = 8192;

const WORD_BITS: usize = usize::BITS as usize;

type CpuWords = [usize; CPUS_MAX / WORD_BITS];

/// Sets the calling thread's niceness (Linux keeps one for each thread, sched(7)).
pub(crate) fn set_nice(nice: i32) -> Result<()> {
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice)
}

/// The calling thread's niceness.
pub(crate) fn nice() -> Result<i32> {
    rustix::process::getpriority_process(Some(rustix::thread::gettid()))
}

/// Sets the calling thread's scheduling policy, one of `SCHED_*`, and its static priority. By number, for musl's functions of
/// these names do nothing but fail.
pub(crate) fn set_scheduler(policy: i32, static_priority: i32) -> Result<()> {
    // SAFETY: all zeros are a value of this struct of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = static_priority;
    // SAFETY: the kernel reads the struct during the call; 0 is the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) }).map(|_| ())
}

/// The calling thread's scheduling policy and its static priority.
pub(crate) fn scheduler() -> Result<(i32, i32)> {
    // SAFETY: it takes no memory; 0 is the calling thread.
    let policy = done(unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) })?;
    // SAFETY: all zeros are a value of this struct of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the struct during the call.
    done(unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut parameters) })?;
    Ok((i32::try_from(policy).unwrap_or(-1) & !libc::SCHED_RESET_ON_FORK, parameters.sched_priority))
}

/// Restricts the calling thread to these CPUs, each less than `CPUS_MAX`.
pub(crate) fn set_cpus(cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut words: CpuWords = [0; CPUS_MAX / WORD_BITS];
    for cpu in cpus {
        words[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the kernel reads so many bytes during the call; 0 is the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&words), words.as_ptr()) })
        .map(|_| ())
}

/// The CPUs that the calling thread may run on.
pub(crate) fn cpus() -> Result<Vec<usize>> {
    cpus_of(0)
}

/// The CPUs that the thread with that id may run on; a process's id is its first thread's.
pub(crate) fn cpus_of(thread: i32) -> Result<Vec<usize>> {
    let mut words: CpuWords = [0; CPUS_MAX / WORD_BITS];
    // SAFETY: the kernel writes at most so many bytes during the call.
    done(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&words), words.as_mut_ptr())
    })?;
    let is_set = |&cpu: &usize| words[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1;
    Ok((0..CPUS_MAX).filter(is_set).collect())
}

/// The CPU that a thread runs on, or ran on last: the field "processor" of proc_pid_stat(5).
pub(crate) fn last_cpu_of(thread: i32) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // It is the 39th; the second, a name, may hold blanks and parentheses.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

fn done(answer: libc::c_long) -> Result<libc::c_long> {
    if answer == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(answer)
}
