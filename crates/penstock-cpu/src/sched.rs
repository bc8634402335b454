//! What the kernel knows of the calling thread: its niceness, its scheduling policy and its CPUs.

use rustix::io::{Errno, Result};

/// The numbers of CPUs are below this. No kernel can be built for more: `NR_CPUS_RANGE_END` in arch/x86/Kconfig, the highest of all architectures. The
/// kernel refuses a set that is smaller than its own, as libc's of 1024 is on the largest machines (sched_setaffinity(2)).
pub const CPUS_MAX: usize = 8192;

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
