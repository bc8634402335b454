//! Levels of priority, and the niceness and scheduling class that make them.

use std::fmt;
use std::io;

use rustix::process::{Resource, getrlimit};

use crate::sched;

/// The priority of a thread, in the same seven levels as on Windows.
///
/// | level | niceness | class | weight against normal |
/// | --- | --- | --- | --- |
/// | background | 19 | idle | 1/341 |
/// | lowest | 10 | other | 1/9 |
/// | below-normal | 5 | other | 1/3 |
/// | normal | 0 | other | 1 |
/// | above-normal | -5 | other | 3 |
/// | highest | -10 | other | 9 |
/// | time-critical | -20 | other | 87 |
///
/// The niceness is that of the crate `gdt-cpus` (2026.06), so that its figures and ours can be compared; the weights, by which
/// threads that want the same CPU share it, are the kernel's (`sched_prio_to_weight` in kernel/sched/core.c). Two choices are
/// our own:
///
/// - Background also has the class idle, where `gdt-cpus` only has niceness 19. The kernel then treats the CPU as idle when it
///   places a thread that wakes (`sched_idle_cpu` in kernel/sched/fair.c). I/O has the class idle, too (ioprio_set(2)).
/// - No level has a real-time class, as on Windows and in present versions of `gdt-cpus`. Threads that copy and decompress
///   would keep all others off their CPU (sched(7)), including the reader that they wait for and kernel threads.
///
/// With autogroups, the default on many desktops (/proc/sys/kernel/sched_autogroup_enabled), niceness weighs only among the
/// threads of one session (sched(7)), and with control groups only among those of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// Runs only when no other thread wants the CPU.
    Background,
    /// For work without a deadline.
    Lowest,
    /// For work that nobody waits for.
    BelowNormal,
    /// The default of threads.
    Normal,
    /// For work that should run before the default.
    AboveNormal,
    /// For work that should run before almost everything else.
    Highest,
    /// For work that is lost if it is late, such as sound or capture.
    TimeCritical,
}

impl Priority {
    /// All levels, lowest first.
    pub const ALL: [Self; 7] = [
        Self::Background,
        Self::Lowest,
        Self::BelowNormal,
        Self::Normal,
        Self::AboveNormal,
        Self::Highest,
        Self::TimeCritical,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Lowest => "lowest",
            Self::BelowNormal => "below-normal",
            Self::Normal => "normal",
            Self::AboveNormal => "above-normal",
            Self::Highest => "highest",
            Self::TimeCritical => "time-critical",
        }
    }

    /// The niceness of the level.
    #[must_use]
    pub fn nice(self) -> i32 {
        match self {
            Self::Background => 19,
            Self::Lowest => 10,
            Self::BelowNormal => 5,
            Self::Normal => 0,
            Self::AboveNormal => -5,
            Self::Highest => -10,
            Self::TimeCritical => -20,
        }
    }

    /// The scheduling class of the level.
    #[must_use]
    pub fn scheduling_class(self) -> SchedulingClass {
        match self {
            Self::Background => SchedulingClass::Idle,
            _ => SchedulingClass::Other,
        }
    }

    pub(super) fn of(class: SchedulingClass, nice: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.scheduling_class() == class && level.nice() == nice)
    }
}

/// A scheduling policy of the kernel.
///
/// # References
///
/// sched(7)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchedulingClass {
    /// `SCHED_OTHER`: CPU time is shared by niceness.
    Other,
    /// `SCHED_BATCH`: as `Other`, without preempting others at wake-up.
    Batch,
    /// `SCHED_IDLE`: only CPU time that no other thread wants.
    Idle,
    /// `SCHED_FIFO`: real time with this static priority, until the thread waits.
    Fifo(i32),
    /// `SCHED_RR`: real time with this static priority, in turns.
    RoundRobin(i32),
    /// `SCHED_DEADLINE`: real time by deadlines.
    Deadline,
    /// Another policy, by its number.
    Unknown(i32),
}

impl SchedulingClass {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Batch => "batch",
            Self::Idle => "idle",
            Self::Fifo(_) => "fifo",
            Self::RoundRobin(_) => "round-robin",
            Self::Deadline => "deadline",
            Self::Unknown(_) => "unknown",
        }
    }

    pub(super) fn of_this_thread() -> Self {
        match sched::scheduler().unwrap_or((libc::SCHED_OTHER, 0)) {
            (libc::SCHED_OTHER, _) => Self::Other,
            (libc::SCHED_BATCH, _) => Self::Batch,
            (libc::SCHED_IDLE, _) => Self::Idle,
            (libc::SCHED_FIFO, priority) => Self::Fifo(priority),
            (libc::SCHED_RR, priority) => Self::RoundRobin(priority),
            (libc::SCHED_DEADLINE, _) => Self::Deadline,
            (policy, _) => Self::Unknown(policy),
        }
    }

    fn for_the_kernel(self) -> (i32, i32) {
        match self {
            Self::Other => (libc::SCHED_OTHER, 0),
            Self::Batch => (libc::SCHED_BATCH, 0),
            Self::Idle => (libc::SCHED_IDLE, 0),
            Self::Fifo(priority) => (libc::SCHED_FIFO, priority),
            Self::RoundRobin(priority) => (libc::SCHED_RR, priority),
            Self::Deadline => (libc::SCHED_DEADLINE, 0),
            Self::Unknown(policy) => (policy, 0),
        }
    }
}

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
    let Err(errno) = sched::set_nice(nice) else { return };
    let before = sched::nice().unwrap_or(0);
    let limit = nice_limit();
    let lowest = lowest_nice(limit);
    let instead = (lowest < before && sched::set_nice(lowest).is_ok()).then_some(lowest);
    let os_error = errno.raw_os_error();
    notes.push(PriorityNote::Nice { level, nice, before, limit, instead, os_error });
}

/// Sets the class, if the thread is not of it.
pub(super) fn set_class(class: SchedulingClass, notes: &mut Vec<PriorityNote>) {
    let before = SchedulingClass::of_this_thread();
    if class == before {
        return;
    }
    let (policy, static_priority) = class.for_the_kernel();
    if let Err(errno) = sched::set_scheduler(policy, static_priority) {
        let (limit, os_error) = (class_limit(before), errno.raw_os_error());
        notes.push(PriorityNote::Class { class, before, limit, os_error });
    }
}

/// What the kernel asks of a thread that leaves the class idle: sched(7), "Privileges and resource limits".
fn class_limit(before: SchedulingClass) -> Option<ClassLimit> {
    (before == SchedulingClass::Idle)
        .then(|| ClassLimit { needed: 20 - sched::nice().unwrap_or(0), limit: nice_limit() })
}

/// `RLIMIT_NICE` of this process. Unlimited counts as 40, the highest value with a meaning.
fn nice_limit() -> u64 {
    getrlimit(Resource::Nice).current.unwrap_or(40)
}

/// "The actual ceiling for the nice value is calculated as 20 - rlim_cur" (getrlimit(2)): 20, which there is not, for 0.
fn lowest_nice(limit: u64) -> i32 {
    20 - i32::try_from(limit.min(40)).unwrap_or(40)
}
