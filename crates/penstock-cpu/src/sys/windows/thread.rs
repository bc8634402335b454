//! Priority and CPUs of the calling thread, and the CPUs of others.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_INVALID_PARAMETER, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::Kernel::PROCESSOR_NUMBER;
use windows_sys::Win32::System::SystemInformation::GROUP_AFFINITY;
use windows_sys::Win32::System::Threading::{
    GetActiveProcessorCount, GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask,
    GetThreadGroupAffinity, GetThreadIdealProcessorEx, GetThreadPriority, OpenThread, SetThreadGroupAffinity,
    SetThreadPriority, THREAD_PRIORITY, THREAD_PRIORITY_ABOVE_NORMAL, THREAD_PRIORITY_BELOW_NORMAL,
    THREAD_PRIORITY_HIGHEST, THREAD_PRIORITY_IDLE, THREAD_PRIORITY_LOWEST, THREAD_PRIORITY_NORMAL,
    THREAD_PRIORITY_TIME_CRITICAL, THREAD_QUERY_INFORMATION,
};
use windows_sys::core::BOOL;

use super::masks::{GROUP_CPUS, cpus_of_mask};
use crate::levels::{Priority, SchedulingClass};

/// GetThreadPriority's answer if it fails.
const NO_PRIORITY: i32 = i32::MAX;

/// The levels, which have their names from Windows, lowest first.
const LEVELS: [(Priority, THREAD_PRIORITY); 7] = [
    (Priority::Background, THREAD_PRIORITY_IDLE),
    (Priority::Lowest, THREAD_PRIORITY_LOWEST),
    (Priority::BelowNormal, THREAD_PRIORITY_BELOW_NORMAL),
    (Priority::Normal, THREAD_PRIORITY_NORMAL),
    (Priority::AboveNormal, THREAD_PRIORITY_ABOVE_NORMAL),
    (Priority::Highest, THREAD_PRIORITY_HIGHEST),
    (Priority::TimeCritical, THREAD_PRIORITY_TIME_CRITICAL),
];

/// Sets the priority whose level has that niceness.
pub(crate) fn set_nice(nice: i32) -> Result<()> {
    let level = LEVELS.into_iter().find(|(level, _)| level.nice() == nice);
    let (_, priority) = level.ok_or(ErrorKind::Unsupported)?;
    // SAFETY: it takes no memory.
    done(unsafe { SetThreadPriority(GetCurrentThread(), priority) })
}

/// The niceness of the calling thread's level.
pub(crate) fn nice() -> Result<i32> {
    // SAFETY: it takes no memory.
    let found = unsafe { GetThreadPriority(GetCurrentThread()) };
    if found == NO_PRIORITY {
        return Err(Error::last_os_error());
    }
    // Only processes with the class real time have priorities between the levels.
    let level = LEVELS.into_iter().rev().find(|(_, priority)| *priority <= found);
    Ok(level.map_or(Priority::Background, |(level, _)| level).nice())
}

/// There is no limit: SetThreadPriority takes each level.
pub(crate) fn nice_limit() -> u64 {
    40
}

/// The class belongs to the level: the idle class to the lowest one.
pub(crate) fn class() -> SchedulingClass {
    if nice().is_ok_and(|nice| nice == Priority::Background.nice()) {
        SchedulingClass::Idle
    } else {
        SchedulingClass::Other
    }
}

/// A class other than the one that the level has.
pub(crate) fn set_class(_: SchedulingClass) -> Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Windows has nothing like it.
pub(crate) fn yield_when_woken() {}

/// Restricts the calling thread to those of these CPUs that are there, of one group: the one with most of them.
pub(crate) fn set_cpus(cpus: impl IntoIterator<Item = usize>) -> Result<()> {
    let mut masks: BTreeMap<u16, usize> = BTreeMap::new();
    for cpu in cpus {
        if let Ok(group) = u16::try_from(cpu / GROUP_CPUS) {
            *masks.entry(group).or_default() |= 1 << (cpu % GROUP_CPUS);
        }
    }
    masks.iter_mut().for_each(|(group, mask)| *mask &= usable(*group));
    let most = masks.into_iter().max_by_key(|(_, mask)| mask.count_ones());
    let Some((group, mask)) = most.filter(|(_, mask)| *mask != 0) else {
        return Err(Error::from_raw_os_error(ERROR_INVALID_PARAMETER.cast_signed()));
    };
    let affinity = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
    // SAFETY: the struct is read during the call; the former affinity is not asked for.
    done(unsafe { SetThreadGroupAffinity(GetCurrentThread(), &raw const affinity, ptr::null_mut()) })
}

/// The CPUs of a group that this process may use. A call that names others fails.
fn usable(group: u16) -> usize {
    let (mut process, mut system) = (0, 0);
    // SAFETY: both masks are written during the call.
    let answer = unsafe { GetProcessAffinityMask(GetCurrentProcess(), &raw mut process, &raw mut system) };
    // The masks are those of the process's group, and 0 if it has several.
    // SAFETY: it takes no memory.
    let of_process = affinity_of(unsafe { GetCurrentThread() }).map_or(0, |affinity| affinity.Group);
    if answer != 0 && process != 0 && of_process == group {
        return process;
    }
    // SAFETY: it takes no memory.
    let count = unsafe { GetActiveProcessorCount(group) };
    1_usize.checked_shl(count).map_or(usize::MAX, |end| end - 1)
}

/// The CPUs that the calling thread may run on.
pub(crate) fn cpus() -> Result<Vec<usize>> {
    // SAFETY: it takes no memory.
    let affinity = affinity_of(unsafe { GetCurrentThread() })?;
    Ok(cpus_of_mask(affinity.Group, affinity.Mask).collect())
}

/// The CPUs that the thread with that id may run on; a process's id is its first thread's.
pub(crate) fn cpus_of(thread: u32) -> Result<Vec<usize>> {
    let affinity = affinity_of(opened(thread)?.as_raw_handle())?;
    Ok(cpus_of_mask(affinity.Group, affinity.Mask).collect())
}

/// The CPU that the system prefers for a thread. It does not tell which one the thread runs on.
pub(crate) fn last_cpu_of(thread: u32) -> Option<usize> {
    let thread = opened(thread).ok()?;
    let mut ideal = PROCESSOR_NUMBER::default();
    // SAFETY: the struct is written during the call, and the handle is open.
    done(unsafe { GetThreadIdealProcessorEx(thread.as_raw_handle(), &raw mut ideal) }).ok()?;
    Some(usize::from(ideal.Group) * GROUP_CPUS + usize::from(ideal.Number))
}

fn affinity_of(thread: HANDLE) -> Result<GROUP_AFFINITY> {
    let mut affinity = GROUP_AFFINITY::default();
    // SAFETY: the struct is written during the call; a handle that is none is refused.
    done(unsafe { GetThreadGroupAffinity(thread, &raw mut affinity) }).map(|()| affinity)
}

/// The thread with that id, or the first thread of the process with that id: the two have no id in common.
fn opened(id: u32) -> Result<OwnedHandle> {
    opened_thread(id).or_else(|error| opened_thread(first_thread(id).ok_or(error)?))
}

fn opened_thread(id: u32) -> Result<OwnedHandle> {
    // SAFETY: it takes no memory.
    let handle = unsafe { OpenThread(THREAD_QUERY_INFORMATION, 0, id) };
    if handle.is_null() {
        return Err(Error::last_os_error());
    }
    // SAFETY: it was opened here, and nobody else has it.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn first_thread(process: u32) -> Option<u32> {
    // SAFETY: it takes no memory.
    let handle = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return None;
    }
    // SAFETY: it was made here, and nobody else has it.
    let snapshot = unsafe { OwnedHandle::from_raw_handle(handle) };
    let size = u32::try_from(size_of::<THREADENTRY32>()).ok()?;
    let mut entry = THREADENTRY32 { dwSize: size, ..THREADENTRY32::default() };
    // SAFETY: the struct says its size, and is written during the call.
    let mut has_entry = unsafe { Thread32First(snapshot.as_raw_handle(), &raw mut entry) };
    while has_entry != 0 && entry.th32OwnerProcessID != process {
        // SAFETY: as above.
        has_entry = unsafe { Thread32Next(snapshot.as_raw_handle(), &raw mut entry) };
    }
    (has_entry != 0).then_some(entry.th32ThreadID)
}

fn done(answer: BOOL) -> Result<()> {
    if answer == 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
