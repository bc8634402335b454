//! Asks for a level of priority, and says what was refused.

use std::fmt;
use std::io;

use crate::levels::{Priority, SchedulingClass};
use crate::sys;

/// What a thread did not get of a priority, and why. As text, one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorityNote {
    /// The system refused the niceness.
    Nice {
        /// The level that it belongs to; none if the niceness itself was asked for.
        level: Option<Priority>,
        /// The niceness.
        nice: i32,
        /// That of the thread.
        before: i32,
        /// Its limit, `RLIMIT_NICE`; 40 if it has none.
        limit: u64,
        /// The lowest that the limit allows, if it was taken instead.
        instead: Option<i32>,
        /// The system's error number.
        os_error: i32,
    },
    /// The system has no such niceness: Windows has that of each level only.
    NoSuchNice {
        /// The niceness.
        nice: i32,
    },
    /// The system refused the scheduling class.
    Class {
        /// The class.
        class: SchedulingClass,
        /// That of the thread.
        before: SchedulingClass,
        /// The limit on leaving the class idle; none for any other class.
        limit: Option<ClassLimit>,
        /// The system's error number.
        os_error: i32,
    },
}

/// `RLIMIT_NICE`, where a thread needs it to leave the class idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassLimit {
    /// The value that it would have to have.
    pub needed: i32,
    /// The value that it has; 40 if there is none.
    pub limit: u64,
}

impl fmt::Display for PriorityNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Nice { level, nice, before, limit, instead, os_error } => {
                match level {
                    Some(level) => write!(f, "priority {} (nice {nice})", level.name())?,
                    None => write!(f, "nice {nice}")?,
                }
                let (why, needed) = (io::Error::from_raw_os_error(os_error), 20 - nice);
                write!(
                    f,
                    " was refused: {why}. Going below nice {before} needs CAP_SYS_NICE or an RLIMIT_NICE of {needed}"
                )?;
                match lowest_nice(limit) {
                    lowest @ ..20 => write!(f, ", which is {limit} here and allows {lowest} or more")?,
                    _ => write!(f, ", which is {limit} here and allows no lower one")?,
                }
                instead.map_or(Ok(()), |nice| write!(f, ". The thread has nice {nice} instead"))
            }
            Self::NoSuchNice { nice } => {
                write!(f, "nice {nice} was refused: this system has levels only. Pass a priority")
            }
            Self::Class { class, before, limit, os_error } => {
                let why = io::Error::from_raw_os_error(os_error);
                write!(
                    f,
                    "scheduling class {} instead of {} was refused: {why}",
                    class.name(),
                    before.name()
                )?;
                let Some(ClassLimit { needed, limit }) = limit else { return Ok(()) };
                write!(
                    f,
                    ". Leaving the class idle needs CAP_SYS_NICE or an RLIMIT_NICE of {needed}, which is {limit} here"
                )
            }
        }
    }
}

pub(super) fn apply(level: Option<Priority>, nice: Option<i32>, notes: &mut Vec<PriorityNote>) {
    // Niceness first: whether a thread may leave the class idle depends on it (sched(7)).
    match (nice, level) {
        (Some(nice), _) => set_nice(nice, None, notes),
        (None, Some(level)) => set_nice(level.nice(), Some(level), notes),
        (None, None) => {}
    }
    if let Some(level) = level {
        set_class(level.scheduling_class(), notes);
    }
}

/// Sets the niceness, or what of it the limit allows.
pub(super) fn set_nice(nice: i32, level: Option<Priority>, notes: &mut Vec<PriorityNote>) {
    let Err(error) = sys::set_nice(nice) else { return };
    // A kernel that refuses the call has an error number.
    if error.kind() == io::ErrorKind::Unsupported && error.raw_os_error().is_none() {
        return notes.push(PriorityNote::NoSuchNice { nice });
    }
    let before = sys::nice().unwrap_or(0);
    let limit = sys::nice_limit();
    let lowest = lowest_nice(limit);
    let instead = (lowest < before && sys::set_nice(lowest).is_ok()).then_some(lowest);
    let os_error = error.raw_os_error().unwrap_or_default();
    notes.push(PriorityNote::Nice { level, nice, before, limit, instead, os_error });
}

/// Sets the class, if the thread is not of it.
pub(super) fn set_class(class: SchedulingClass, notes: &mut Vec<PriorityNote>) {
    let before = sys::class();
    if class == before {
        return;
    }
    if let Err(error) = sys::set_class(class) {
        let (limit, os_error) = (class_limit(before), error.raw_os_error().unwrap_or_default());
        notes.push(PriorityNote::Class { class, before, limit, os_error });
    }
}

/// What the kernel asks of a thread that leaves the class idle: sched(7), "Privileges and resource limits".
fn class_limit(before: SchedulingClass) -> Option<ClassLimit> {
    (before == SchedulingClass::Idle)
        .then(|| ClassLimit { needed: 20 - sys::nice().unwrap_or(0), limit: sys::nice_limit() })
}

/// "The actual ceiling for the nice value is calculated as 20 - rlim_cur" (getrlimit(2)): 20, which there is not, for 0.
fn lowest_nice(limit: u64) -> i32 {
    20 - i32::try_from(limit.min(40)).unwrap_or(40)
}
