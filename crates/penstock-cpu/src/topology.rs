//! The CPUs of this machine, or of a recorded one, and which of them share a core, a cache, a package or a memory node.
//!
//! The records are flat and refer to each other by number. A tree of packages could not describe caches that only some cores of
//! a package share, or that cores of several dies share.
//!
//! The sources are the kernel's files (Documentation/admin-guide/cputopology.rst,
//! Documentation/ABI/{stable,testing}/sysfs-devices-system-cpu). Virtual machines and containers lack many of them, and firmware
//! fills some with wrong values. So nothing here fails: a missing or broken file is replaced by the next best source and noted.

mod allowed;
mod caches;
mod cpuinfo;
mod groups;
mod kinds;
mod notes;
mod numa;
mod numbers;
mod records;
mod tree;

use std::collections::BTreeMap;
use std::path::Path;

use cpuinfo::Cpuinfo;
pub use notes::{FileFault, TopologyNote, TopologyProblem};
pub(crate) use numbers::{Cpus, as_list};
pub use records::{CacheDomain, Core, CoreKind, KindSource, LogicalProcessor, NumaNode, Package};
use tree::{CPU, Tree};

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
    /// Reads the topology of this machine. `allowed` refers to the calling thread.
    #[must_use]
    pub fn detect() -> Self {
        Self::read(Path::new("/"))
    }

    /// Reads the topology of the machine whose `/sys` and `/proc` are below `root`.
    ///
    /// `allowed` refers to the process that recorded the files, or to the calling thread if `root` is `/`. It never fails:
    /// [`notes`](Self::notes) lists what was missing.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let is_this_machine = root.canonicalize().is_ok_and(|root| root == Path::new("/"));
        let mut tree = Tree::new(root);
        let cpuinfo = Cpuinfo::read(&mut tree);
        let known = known(&mut tree, &cpuinfo, is_this_machine);
        let online = online(&mut tree, &known);
        let cores = groups::cores(&mut tree, &online, &cpuinfo);
        let packages = groups::packages(&mut tree, &online, &cores, &cpuinfo);
        let packages = numbered(&mut tree, packages, &cores);
        let (numa_nodes, node_of) = numa::nodes(&mut tree, &known, &online);
        let [l1d_domains, l2_domains, l3_domains] = caches::domains(&mut tree, &online);
        let with_l3 = l3_domains.iter().flat_map(|domain| &domain.logical_processors).copied().collect();
        let kinds = kinds::of_cores(&mut tree, &cores, &with_l3);
        let cores = core_records(&cores, &packages, kinds);
        let allowed = allowed::of_process(&mut tree, is_this_machine, &online);
        let logical_processors = processor_records(&known, &online, &allowed, &cores, &node_of);
        Self {
            model: cpuinfo.model,
            packages,
            numa_nodes,
            cores,
            logical_processors,
            l1d_domains,
            l2_domains,
            l3_domains,
            notes: tree.notes,
        }
    }

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

/// The CPUs that are there, online or not. Never none.
fn known(tree: &mut Tree, cpuinfo: &Cpuinfo, is_this_machine: bool) -> Cpus {
    let folders = Cpus::from_iter(tree.numbered(CPU, "cpu"));
    if !folders.is_empty() {
        return folders;
    }
    tree.note(TopologyProblem::NoCpuFolders);
    let lists = ["present", "online"].map(|name| format!("{CPU}/{name}"));
    let listed = lists
        .iter()
        .find_map(|path| tree.parsed(path, |text| numbers::list(text).filter(|cpus| !cpus.is_empty())));
    let told = || cpuinfo.processors.iter().map(|(cpu, _)| *cpu).collect::<Cpus>();
    let found = listed.or_else(|| Some(told()).filter(|cpus| !cpus.is_empty())).or_else(|| counted(tree));
    let found = found.or_else(|| allowed::own_affinity(is_this_machine));
    found.unwrap_or_else(|| {
        tree.note(TopologyProblem::NoCpu);
        Cpus::from([0])
    })
}

/// Those that /proc/stat has times of: proc_stat(5).
fn counted(tree: &mut Tree) -> Option<Cpus> {
    let stat = tree.text("proc/stat")?;
    let number = |line: &str| numbers::number(line.strip_prefix("cpu")?.split(' ').next()?);
    Some(stat.lines().filter_map(number).collect()).filter(|cpus: &Cpus| !cpus.is_empty())
}

/// The CPUs that are online. Never none.
fn online(tree: &mut Tree, known: &Cpus) -> Cpus {
    let listed = tree
        .parsed(&format!("{CPU}/online"), |text| numbers::list(text).filter(|cpus| !cpus.is_disjoint(known)));
    let online = match listed {
        Some(listed) => {
            let strangers: Cpus = listed.difference(known).copied().collect();
            tree.note_of(&strangers, TopologyProblem::OnlineWithoutFolder);
            listed.intersection(known).copied().collect()
        }
        None => online_by_folders(tree, known),
    };
    if online.is_empty() {
        tree.note(TopologyProblem::NoneOnline);
        return known.clone();
    }
    online
}

/// Old kernels had no list. Each CPU has a file of its own, except the first, which could not be switched off.
fn online_by_folders(tree: &mut Tree, known: &Cpus) -> Cpus {
    let with_topology: Cpus =
        known.iter().filter(|cpu| tree.has(&format!("{CPU}/cpu{cpu}/topology"))).copied().collect();
    let mut unclear = Cpus::new();
    let mut is_online = |cpu: &usize| {
        let own = tree.of_cpu(*cpu, "online", |text| match text.trim() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        });
        own.unwrap_or_else(|| {
            let is = with_topology.is_empty() || with_topology.contains(cpu);
            if !is {
                unclear.insert(*cpu);
            }
            is
        })
    };
    let online = known.iter().filter(|cpu| is_online(cpu)).copied().collect();
    tree.note_of(&unclear, TopologyProblem::NoTopology);
    online
}

/// Packages with numbers: the kernel's where it has one for each.
fn numbered(tree: &mut Tree, packages: Vec<Cpus>, cores: &[Cpus]) -> Vec<Package> {
    let told: Vec<Option<usize>> = packages
        .iter()
        .map(|cpus| groups::package_id(tree, *cpus.first()?).and_then(|id| usize::try_from(id).ok()))
        .collect();
    let is_own = |id: &usize| told.iter().filter(|told| **told == Some(*id)).count() == 1;
    let taken: Cpus = told.iter().flatten().copied().filter(is_own).collect();
    let mut free = (0..).filter(|id| !taken.contains(id));
    let mut record = |(cpus, id): (Cpus, &Option<usize>)| Package {
        id: id.filter(is_own).unwrap_or_else(|| free.next().unwrap_or_default()),
        cores: (0..cores.len()).filter(|&core| cores[core].is_subset(&cpus)).collect(),
        logical_processors: cpus.into_iter().collect(),
    };
    packages.into_iter().zip(&told).map(&mut record).collect()
}

fn core_records(cores: &[Cpus], packages: &[Package], kinds: Vec<(CoreKind, KindSource)>) -> Vec<Core> {
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

fn processor_records(
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
