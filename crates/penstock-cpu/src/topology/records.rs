//! The records of a topology. They refer to each other by number.

/// A package: the chip or chips in one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The kernel's number, or an unused one if the kernel has none or has it twice.
    pub id: usize,
    /// Numbers of its cores.
    pub cores: Vec<usize>,
    /// Numbers of its logical processors that are online.
    pub logical_processors: Vec<usize>,
}

/// A memory node, and the CPUs near it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number.
    pub id: usize,
    /// Size of the memory in bytes, if known; 0 for a node without memory.
    pub memory_bytes: Option<u64>,
    /// Numbers of its logical processors that are online; empty for a node without CPUs.
    pub logical_processors: Vec<usize>,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Core {
    /// A number from 0, unique on the machine. (The kernel's `core_id` repeats in each package or die.)
    pub id: usize,
    /// The number of its package.
    pub package: usize,
    /// Its kind.
    pub kind: CoreKind,
    /// The source of its kind.
    pub kind_source: KindSource,
    /// Numbers of its logical processors that are online.
    pub logical_processors: Vec<usize>,
}

/// What the system schedules threads on: a core, or one of its hardware threads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogicalProcessor {
    /// The kernel's number.
    pub id: usize,
    /// The number of its core; none if it is offline.
    pub core: Option<usize>,
    /// The number of its package; none if it is offline.
    pub package: Option<usize>,
    /// The number of its memory node, if known.
    pub numa_node: Option<usize>,
    /// Whether the system schedules threads on it.
    pub online: bool,
    /// Whether this thread's affinity and the process's control group allow it.
    pub allowed: bool,
    /// Numbers of the other hardware threads of its core that are online (SMT).
    pub smt_siblings: Vec<usize>,
    /// Its core's kind; none if it is offline.
    pub kind: Option<CoreKind>,
    /// The source of its core's kind.
    pub kind_source: Option<KindSource>,
}

/// Logical processors that share a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheDomain {
    /// The size of the cache in bytes, if known.
    pub size_bytes: Option<u64>,
    /// Numbers of the logical processors that share it and are online.
    pub logical_processors: Vec<usize>,
}

/// The kind of a core. If all cores are alike, all are performance cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CoreKind {
    /// The slowest of at least three kinds, or what Intel calls low-power efficiency.
    LowPowerEfficiency,
    /// Slower than the fastest cores, and uses less power.
    Efficiency,
    /// The fastest kind of the machine.
    Performance,
}

/// The source of a core's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KindSource {
    /// Intel's lists of hybrid machines: `cpu_core`, `cpu_atom` and `cpu_lowpower`.
    CpuLists,
    /// The scheduler's `cpu_capacity`.
    CpuCapacity,
    /// The maximum frequency.
    MaximumFrequency,
    /// The maximum frequency and, among cores with the same maximum, the base frequency.
    BaseFrequency,
    /// Windows' class of efficiency.
    EfficiencyClass,
    /// No source tells kinds apart.
    Assumed,
}

impl CoreKind {
    /// The kind of a class from 0 to `highest`. The highest are performance cores. Of three or more, the lowest are the low-power ones.
    pub(crate) fn of_class(class: usize, highest: usize) -> Self {
        match class {
            class if class == highest => Self::Performance,
            0 if highest > 1 => Self::LowPowerEfficiency,
            _ => Self::Efficiency,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LowPowerEfficiency => "low-power efficiency",
            Self::Efficiency => "efficiency",
            Self::Performance => "performance",
        }
    }
}

impl KindSource {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuLists => "cpu_core/cpu_atom",
            Self::CpuCapacity => "cpu_capacity",
            Self::MaximumFrequency => "maximum frequency",
            Self::BaseFrequency => "base frequency",
            Self::EfficiencyClass => "efficiency class",
            Self::Assumed => "assumed",
        }
    }
}
