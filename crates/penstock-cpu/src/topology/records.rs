//! The records of a topology, which name each other by number.

/// A package: a chip, or several, in one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The kernel's number of it, or a free one where the kernel has none or has it twice.
    pub id: usize,
    /// Numbers of its cores.
    pub cores: Vec<usize>,
    /// Numbers of its logical processors that are online.
    pub logical_processors: Vec<usize>,
}

/// A node of memory, as seen from the CPUs near to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number of it.
    pub id: usize,
    /// The memory of it, where it is told; 0 for a node of CPUs alone.
    pub memory_bytes: Option<u64>,
    /// Numbers of its logical processors that are online: none in a node of memory alone.
    pub logical_processors: Vec<usize>,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Core {
    /// Our number, unique on the machine, from 0. The kernel's `core_id` is not: it repeats in each package or die.
    pub id: usize,
    /// The number of its package.
    pub package: usize,
    /// What it was made for.
    pub kind: CoreKind,
    /// What its kind was read from.
    pub kind_source: KindSource,
    /// Numbers of its logical processors that are online.
    pub logical_processors: Vec<usize>,
}

/// What the system schedules a thread on: a core, or a hardware thread of one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogicalProcessor {
    /// The kernel's number of it.
    pub id: usize,
    /// The number of its core; none if it is offline.
    pub core: Option<usize>,
    /// The number of its package; none if it is offline.
    pub package: Option<usize>,
    /// The number of its memory node, where one is told.
    pub numa_node: Option<usize>,
    /// Whether the system schedules anything on it.
    pub online: bool,
    /// Whether this thread may run on it, by its affinity and the process's control group.
    pub allowed: bool,
    /// Numbers of the others of its core that are online (simultaneous multithreading).
    pub smt_siblings: Vec<usize>,
    /// Its core's kind; none if it is offline.
    pub kind: Option<CoreKind>,
    /// What its core's kind was read from.
    pub kind_source: Option<KindSource>,
}

/// Logical processors that share a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheDomain {
    /// The cache's size, where it is told.
    pub size_bytes: Option<u64>,
    /// Numbers of those that share it and are online.
    pub logical_processors: Vec<usize>,
}

/// What a core was made for. Where all are alike, all are for performance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CoreKind {
    /// The slowest of three kinds or more, or those which Intel calls so.
    LowPowerEfficiency,
    /// Slower than the fastest, for less power.
    Efficiency,
    /// As fast as this machine can.
    Performance,
}

/// What a core's kind was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KindSource {
    /// Intel's lists of hybrid machines: `cpu_core`, `cpu_atom` and `cpu_lowpower`.
    CpuLists,
    /// The scheduler's `cpu_capacity`.
    CpuCapacity,
    /// The clock's maximum.
    MaximumFrequency,
    /// The clock's maximum and, among cores with the same, their base frequency.
    BaseFrequency,
    /// Nothing tells kinds apart.
    Assumed,
}

impl CoreKind {
    /// Its name in texts.
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
    /// Its name in texts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuLists => "cpu_core/cpu_atom",
            Self::CpuCapacity => "cpu_capacity",
            Self::MaximumFrequency => "maximum frequency",
            Self::BaseFrequency => "base frequency",
            Self::Assumed => "assumed",
        }
    }
}
