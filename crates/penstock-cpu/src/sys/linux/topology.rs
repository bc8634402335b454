//! The topology that the kernel's files tell: Documentation/admin-guide/cputopology.rst and
//! Documentation/ABI/{stable,testing}/sysfs-devices-system-cpu.
//!
//! Virtual machines and containers lack many of them, and firmware fills some with wrong values. So nothing here fails: a
//! missing or broken file is replaced by the next best source and noted.

mod allowed;
mod caches;
mod cpuinfo;
mod groups;
mod kinds;
mod numa;
mod sets;
mod tree;

use std::path::Path;

use cpuinfo::Cpuinfo;
use tree::{CPU, Tree};

use crate::topology::{Cpus, Topology, TopologyProblem, core_records, package_records, processor_records};

/// The topology of this machine.
pub(crate) fn topology() -> Topology {
    Topology::read(Path::new("/"))
}

impl Topology {
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
        let ids = packages.iter().map(|cpus| package_id(&mut tree, cpus)).collect::<Vec<_>>();
        let packages = package_records(packages, &ids, &cores);
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
}

/// The kernel's number of a package.
fn package_id(tree: &mut Tree, cpus: &Cpus) -> Option<usize> {
    groups::package_id(tree, *cpus.first()?).and_then(|id| usize::try_from(id).ok())
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
        .find_map(|path| tree.parsed(path, |text| sets::list(text).filter(|cpus| !cpus.is_empty())));
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
    let number = |line: &str| sets::number(line.strip_prefix("cpu")?.split(' ').next()?);
    Some(stat.lines().filter_map(number).collect()).filter(|cpus: &Cpus| !cpus.is_empty())
}

/// The CPUs that are online. Never none.
fn online(tree: &mut Tree, known: &Cpus) -> Cpus {
    let listed = tree
        .parsed(&format!("{CPU}/online"), |text| sets::list(text).filter(|cpus| !cpus.is_disjoint(known)));
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
