//! Levels of priority, and the niceness and scheduling class that make them.

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
/// Windows has these levels itself (SetThreadPriority), and no niceness between them.
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

    pub(crate) fn of(class: SchedulingClass, nice: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.scheduling_class() == class && level.nice() == nice)
    }
}

/// A scheduling policy of the kernel. Windows has two of them, [`Other`](Self::Other) and [`Idle`](Self::Idle).
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
}
