//! What the kernel knows of the calling thread: its niceness, its scheduling policy and its CPUs.

use std::io::{Error, Result};

use rustix::process::{Resource, getrlimit};

use crate::levels::SchedulingClass;
use crate::topology::CPUS_MAX;

const WORD_BITS: usize = usize::BITS as usize;

/// The kernel refuses a set that is smaller than its own, as libc's of 1024 is on the largest machines (sched_setaffinity(2)).
type CpuWords = [usize; CPUS_MAX / WORD_BITS];

/// Sets the calling thread's niceness (Linux keeps one for each thread, sched(7)).
pub(crate) fn set_nice(nice: i32) -> Result<()> {
    Ok(rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice)?)
}

/// The calling thread's niceness.
pub(crate) fn nice() -> Result<i32> {
    Ok(rustix::process::getpriority_process(Some(rustix::thread::gettid()))?)
}

/// `RLIMIT_NICE` of this process. Unlimited counts as 40, the highest value with a meaning.
pub(crate) fn nice_limit() -> u64 {
    getrlimit(Resource::Nice).current.unwrap_or(40)
}

/// Sets the calling thread's scheduling class.
pub(crate) fn set_class(class: SchedulingClass) -> Result<()> {
    match class {
        SchedulingClass::Other => set_scheduler(libc::SCHED_OTHER, 0),
        SchedulingClass::Batch => set_scheduler(libc::SCHED_BATCH, 0),
        SchedulingClass::Idle => set_scheduler(libc::SCHED_IDLE, 0),
        SchedulingClass::Fifo(priority) => set_scheduler(libc::SCHED_FIFO, priority),
        SchedulingClass::RoundRobin(priority) => set_scheduler(libc::SCHED_RR, priority),
        SchedulingClass::Deadline => set_scheduler(libc::SCHED_DEADLINE, 0),
        SchedulingClass::Unknown(policy) => set_scheduler(policy, 0),
    }
}

/// The calling thread's scheduling class.
pub(crate) fn class() -> SchedulingClass {
    match scheduler().unwrap_or((libc::SCHED_OTHER, 0)) {
        (libc::SCHED_OTHER, _) => SchedulingClass::Other,
        (libc::SCHED_BATCH, _) => SchedulingClass::Batch,
        (libc::SCHED_IDLE, _) => SchedulingClass::Idle,
        (libc::SCHED_FIFO, priority) => SchedulingClass::Fifo(priority),
        (libc::SCHED_RR, priority) => SchedulingClass::RoundRobin(priority),
        (libc::SCHED_DEADLINE, _) => SchedulingClass::Deadline,
        (policy, _) => SchedulingClass::Unknown(policy),
    }
}

/// Moves the calling thread from the default class to `SCHED_BATCH`, whose threads do not preempt. Any other class stays.
pub(crate) fn yield_when_woken() {
    if matches!(scheduler(), Ok((libc::SCHED_OTHER, 0))) {
        let _ = set_scheduler(libc::SCHED_BATCH, 0); // it only helps
    }
}

/// Sets the calling thread's scheduling policy, one of `SCHED_*`, and its static priority. By number, for musl's functions of
/// these names do nothing but fail.
fn set_scheduler(policy: i32, static_priority: i32) -> Result<()> {
    // SAFETY: all zeros are a value of this struct of integers.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = static_priority;
    // SAFETY: the kernel reads the struct during the call; 0 is the calling thread.
    done(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) }).map(|_| ())
}

/// The calling thread's scheduling policy and its static priority.
fn scheduler() -> Result<(i32, i32)> {
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
    cpus_of_raw(0)
}

/// The CPUs that the thread with that id may run on; a process's id is its first thread's.
pub(crate) fn cpus_of(thread: u32) -> Result<Vec<usize>> {
    cpus_of_raw(i32::try_from(thread).unwrap_or(i32::MAX))
}

fn cpus_of_raw(thread: i32) -> Result<Vec<usize>> {
    let mut words: CpuWords = [0; CPUS_MAX / WORD_BITS];
    // SAFETY: the kernel writes at most so many bytes during the call.
    done(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, thread, size_of_val(&words), words.as_mut_ptr())
    })?;
    let is_set = |&cpu: &usize| words[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1 == 1;
    Ok((0..CPUS_MAX).filter(is_set).collect())
}

/// The CPU that a thread runs on, or ran on last: the field "processor" of proc_pid_stat(5).
pub(crate) fn last_cpu_of(thread: u32) -> Option<usize> {
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // It is the 39th; the second, a name, may hold blanks and parentheses.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(36)?.parse().ok()
}

fn done(answer: libc::c_long) -> Result<libc::c_long> {
    if answer == -1 {
        return Err(Error::last_os_error());
    }
    Ok(answer)
}
