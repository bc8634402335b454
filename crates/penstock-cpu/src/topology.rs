//! The CPUs of this machine, or of a recorded one, and which of them share a core, a cache, a package or a memory node.
//!
//! The records are flat and refer to each other by number. A tree of packages could not describe caches that only some cores of
//! a package share, or that cores of several dies share.

mod notes;
mod numbers;
mod records;

use std::collections::BTreeMap;

pub use notes::{FileFault, TopologyNote, TopologyProblem};
pub use numbers::CPUS_MAX;
pub(crate) use numbers::{Cpus, as_list};
pub use records::{CacheDomain, Core, CoreKind, KindSource, LogicalProcessor, NumaNode, Package};

/// The CPUs of a machine.
///
/// Every logical processor that is online belongs to one core and one package, and at each cache level to at most one domain.
/// Lists are in the order of their smallest logical processor, and the numbers within them ascend.
///
/// ```
/// let topology = penstock_cpu::Topology::detect();
/// let usable = topology.logical_processors.iter().filter(|processor| processor.allowed);
/// assert!(usable.count() >= 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The name of the processor model.
    pub model: Option<String>,
    /// Packages: what sits in a socket.
    pub packages: Vec<Package>,
    /// Memory nodes; one for all if the kernel reports none.
    pub numa_nodes: Vec<NumaNode>,
    /// Cores with at least one logical processor online.
    pub cores: Vec<Core>,
    /// Logical processors by number, including those that are offline.
    pub logical_processors: Vec<LogicalProcessor>,
    /// Logical processors that share a level 1 data cache.
    pub l1d_domains: Vec<CacheDomain>,
    /// Logical processors that share a level 2 cache.
    pub l2_domains: Vec<CacheDomain>,
    /// Logical processors that share a level 3 cache.
    pub l3_domains: Vec<CacheDomain>,
    /// What was missing or broken, and what replaced it.
    pub notes: Vec<TopologyNote>,
}

impl Topology {
    /// Whether some cores are faster than others.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.cores.iter().any(|core| core.kind != CoreKind::Performance)
    }

    /// The allowed logical processors of the performance cores: all that are allowed if the machine is not hybrid.
    ///
    /// ```
    /// use penstock_cpu::{ThreadPolicy, Topology};
    /// let fast = ThreadPolicy::default().cpus(Topology::detect().performance_cpus());
    /// # let _ = fast;
    /// ```
    #[must_use]
    pub fn performance_cpus(&self) -> Vec<usize> {
        let is_fast =
            |cpu: &&LogicalProcessor| cpu.online && cpu.allowed && cpu.kind == Some(CoreKind::Performance);
        self.logical_processors.iter().filter(is_fast).map(|cpu| cpu.id).collect()
    }

    /// The domain of the logical processor's third-level cache; none if it is not known.
    #[must_use]
    pub fn l3_domain_of(&self, processor: usize) -> Option<&CacheDomain> {
        self.l3_domains.iter().find(|domain| domain.logical_processors.contains(&processor))
    }

    /// The package of that logical processor, if it is online.
    #[must_use]
    pub fn package_of(&self, processor: usize) -> Option<&Package> {
        self.packages.iter().find(|package| package.logical_processors.contains(&processor))
    }
}

/// Packages with numbers: the system's where it has one for each.
pub(crate) fn package_records(packages: Vec<Cpus>, told: &[Option<usize>], cores: &[Cpus]) -> Vec<Package> {
    let is_own = |id: &usize| told.iter().filter(|told| **told == Some(*id)).count() == 1;
    let taken: Cpus = told.iter().flatten().copied().filter(is_own).collect();
    let mut free = (0..).filter(|id| !taken.contains(id));
    let mut record = |(cpus, id): (Cpus, &Option<usize>)| Package {
        id: id.filter(is_own).unwrap_or_else(|| free.next().unwrap_or_default()),
        cores: (0..cores.len()).filter(|&core| cores[core].is_subset(&cpus)).collect(),
        logical_processors: cpus.into_iter().collect(),
    };
    packages.into_iter().zip(told).map(&mut record).collect()
}

pub(crate) fn core_records(
    cores: &[Cpus],
    packages: &[Package],
    kinds: Vec<(CoreKind, KindSource)>,
) -> Vec<Core> {
    let package_of: BTreeMap<usize, usize> =
        packages.iter().flat_map(|package| package.cores.iter().map(|&core| (core, package.id))).collect();
    let record = |(id, (kind, kind_source))| Core {
        id,
        package: package_of[&id],
        kind,
        kind_source,
        logical_processors: cores[id].iter().copied().collect(),
    };
    kinds.into_iter().enumerate().map(record).collect()
}

pub(crate) fn processor_records(
    known: &Cpus,
    online: &Cpus,
    allowed: &Cpus,
    cores: &[Core],
    node_of: &BTreeMap<usize, usize>,
) -> Vec<LogicalProcessor> {
    let core_of: BTreeMap<usize, &Core> =
        cores.iter().flat_map(|core| core.logical_processors.iter().map(move |&cpu| (cpu, core))).collect();
    let record = |&id: &usize| {
        let core = core_of.get(&id);
        let of_core = core.map_or(&[][..], |core| &core.logical_processors);
        LogicalProcessor {
            id,
            core: core.map(|core| core.id),
            package: core.map(|core| core.package),
            numa_node: node_of.get(&id).copied(),
            online: online.contains(&id),
            allowed: allowed.contains(&id),
            smt_siblings: of_core.iter().copied().filter(|&other| other != id).collect(),
            kind: core.map(|core| core.kind),
            kind_source: core.map(|core| core.kind_source),
        }
    };
    known.iter().map(record).collect()
}
