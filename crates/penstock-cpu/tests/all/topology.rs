//! What the kernel's files tell: those of machines made up here, file by file as the kernel writes them, and of this one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::{cases, in_own_process};
use crate::machine::{allowed, check, numbers, online};
use penstock_cpu::{CoreKind, KindSource, Topology, TopologyProblem};
use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, setrlimit};

const CPU: &str = "sys/devices/system/cpu";
const NODE: &str = "sys/devices/system/node";

/// A machine's files in a folder of their own.
struct Machine(PathBuf);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Machine {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("penstock-machine-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn put_cpu(&self, cpu: usize, name: &str, content: impl AsRef<[u8]>) -> &Self {
        self.put(&format!("{CPU}/cpu{cpu}/{name}"), content)
    }

    fn remove(&self, path: &str) -> &Self {
        let path = self.0.join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// Cores of these CPUs in one package.
    fn package(&self, id: i64, cores: &[&[usize]]) -> &Self {
        let all = cores.concat();
        for (core_id, core) in cores.iter().enumerate() {
            for &cpu in *core {
                self.put_cpu(cpu, "topology/physical_package_id", format!("{id}\n"))
                    .put_cpu(cpu, "topology/core_id", format!("{core_id}\n"))
                    .put_cpu(cpu, "topology/core_cpus", mask(core))
                    .put_cpu(cpu, "topology/core_cpus_list", list(core))
                    .put_cpu(cpu, "topology/package_cpus", mask(&all))
                    .put_cpu(cpu, "topology/package_cpus_list", list(&all));
            }
        }
        self
    }

    fn cache(&self, index: usize, level: usize, kind: &str, size: &str, cpus: &[usize]) -> &Self {
        for &cpu in cpus {
            let folder = format!("cache/index{index}");
            self.put_cpu(cpu, &format!("{folder}/level"), format!("{level}\n"))
                .put_cpu(cpu, &format!("{folder}/type"), format!("{kind}\n"))
                .put_cpu(cpu, &format!("{folder}/size"), format!("{size}\n"))
                .put_cpu(cpu, &format!("{folder}/shared_cpu_map"), mask(cpus))
                .put_cpu(cpu, &format!("{folder}/shared_cpu_list"), list(cpus));
        }
        self
    }

    fn l3(&self, cpus: &[usize]) -> &Self {
        self.cache(3, 3, "Unified", "32768K", cpus)
    }

    fn each(&self, cpus: impl IntoIterator<Item = usize>, name: &str, content: &str) -> &Self {
        cpus.into_iter().for_each(|cpu| {
            self.put_cpu(cpu, name, content);
        });
        self
    }

    fn read(&self) -> Topology {
        let topology = Topology::read(&self.0);
        check(&topology);
        topology
    }
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",") + "\n"
}

fn mask(cpus: &[usize]) -> String {
    let mut groups = vec![0_u32; cpus.iter().max().map_or(1, |last| last / 32 + 1)];
    cpus.iter().for_each(|cpu| groups[cpu / 32] |= 1 << (cpu % 32));
    groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<_>>().join(",") + "\n"
}

fn of_kind(topology: &Topology, kind: CoreKind) -> Vec<usize> {
    numbers(topology, |processor| processor.kind == Some(kind))
}

fn sources(topology: &Topology) -> Vec<KindSource> {
    let mut sources: Vec<_> = topology.cores.iter().map(|core| core.kind_source).collect();
    sources.dedup();
    sources
}

fn cores(topology: &Topology) -> Vec<Vec<usize>> {
    topology.cores.iter().map(|core| core.logical_processors.clone()).collect()
}

fn packages(topology: &Topology) -> Vec<(usize, Vec<usize>)> {
    topology.packages.iter().map(|package| (package.id, package.logical_processors.clone())).collect()
}

fn l3(topology: &Topology) -> Vec<Vec<usize>> {
    topology.l3_domains.iter().map(|domain| domain.logical_processors.clone()).collect()
}

fn nodes(topology: &Topology) -> Vec<(usize, Vec<usize>)> {
    topology.numa_nodes.iter().map(|node| (node.id, node.logical_processors.clone())).collect()
}

fn has_note(topology: &Topology, part: &str) -> bool {
    topology.notes.iter().any(|note| note.to_string().contains(part))
}

#[test]
fn packages_are_told_apart_if_core_numbers_repeat() {
    let machine = Machine::new();
    machine.package(0, &[&[0, 4], &[1, 5]]).package(1, &[&[2, 6], &[3, 7]]);
    machine.l3(&[0, 1, 4, 5]).l3(&[2, 3, 6, 7]).cache(0, 1, "Data", "48K", &[0, 4]);
    machine.cache(1, 1, "Instruction", "32K", &[0, 4]).cache(2, 2, "Unified", "2M", &[0, 4]);
    machine.put("proc/cpuinfo", "processor\t: 0\nmodel name\t:   Some   CPU @ 3 GHz\n");
    let read = machine.read();
    assert_eq!(read.model.as_deref(), Some("Some CPU @ 3 GHz"));
    assert_eq!(packages(&read), [(0, vec![0, 1, 4, 5]), (1, vec![2, 3, 6, 7])]);
    assert_eq!(cores(&read), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    assert_eq!(read.logical_processors[6].smt_siblings, [2]);
    assert_eq!(l3(&read), [[0, 1, 4, 5], [2, 3, 6, 7]]);
    assert_eq!(read.l3_domains[0].size_bytes, Some(32 << 20));
    assert_eq!(read.l1d_domains.len(), 1, "instructions are no data");
    assert_eq!(read.l2_domains[0].size_bytes, Some(2 << 20));
    assert!(has_note(&read, "no L1 cache is listed, unlike for others (CPUs 1-3,5-7)"), "{:?}", read.notes);
    let without_l1 = read.notes.iter().find(|note| note.problem == TopologyProblem::NoCache(1)).unwrap();
    assert_eq!(without_l1.cpus, BTreeSet::from([1, 2, 3, 5, 6, 7]));
}

#[test]
fn chiplets_appear_as_several_l3_caches_in_a_package() {
    let machine = Machine::new();
    let all: Vec<[usize; 2]> = (0..16).map(|core| [core, core + 16]).collect();
    machine.package(0, &all.iter().map(|core| &core[..]).collect::<Vec<_>>());
    for chiplet in 0..4 {
        let cpus: Vec<usize> = (0..4).flat_map(|core| all[chiplet * 4 + core]).collect();
        machine.l3(&cpus);
    }
    let read = machine.read();
    assert_eq!((read.packages.len(), read.cores.len(), read.l3_domains.len()), (1, 16, 4));
    assert_eq!(l3(&read)[1], [4, 5, 6, 7, 20, 21, 22, 23]);
    assert_eq!(read.l3_domain_of(22), Some(&read.l3_domains[1]));
    assert_eq!(
        (read.package_of(22), read.l3_domain_of(32), read.package_of(32)),
        (read.packages.first(), None, None)
    );
}

#[test]
fn caches_of_different_size_shared_in_odd_sets_are_read() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1], &[2], &[3], &[4]]);
    machine.cache(2, 2, "Unified", "512K", &[0, 3]).cache(2, 2, "Unified", "4096K", &[1, 2, 4]);
    let read = machine.read();
    let found: Vec<_> =
        read.l2_domains.iter().map(|l2| (l2.size_bytes, &l2.logical_processors[..])).collect();
    assert_eq!(found, [(Some(512 << 10), &[0, 3][..]), (Some(4096 << 10), &[1, 2, 4][..])]);
    machine.remove(&format!("{CPU}/cpu0/cache/index2/size")).remove(&format!("{CPU}/cpu3/cache/index2/size"));
    assert_eq!(machine.read().l2_domains[0].size_bytes, None);
    machine.put_cpu(3, "cache/index2/number_of_sets", "1024").put_cpu(
        3,
        "cache/index2/ways_of_associativity",
        "8",
    );
    machine.put_cpu(3, "cache/index2/coherency_line_size", "64");
    assert_eq!(machine.read().l2_domains[0].size_bytes, Some(512 << 10));
}

#[test]
fn mask_is_preferred_to_the_list_and_either_suffices() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1]]).l3(&[0, 1]);
    for cpu in [0, 1] {
        machine.put_cpu(cpu, "cache/index3/shared_cpu_list", format!("{cpu}\n"));
    }
    assert_eq!(l3(&machine.read()), [[0, 1]]);
    for cpu in [0, 1] {
        machine.remove(&format!("{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"));
    }
    assert_eq!(l3(&machine.read()), [[0], [1]]);
    for cpu in [0, 1] {
        machine.remove(&format!("{CPU}/cpu{cpu}/cache/index3/shared_cpu_list"));
    }
    let read = machine.read();
    assert!(l3(&read).is_empty() && has_note(&read, "share it are unknown (CPUs 0-1)"));
    machine.each([0, 1], "cache/index3/id", "7\n");
    assert_eq!(l3(&machine.read()), [[0, 1]]);
}

#[test]
fn numbers_define_cores_without_sets() {
    let machine = Machine::new();
    // core_id repeats in each die, and each package.
    for cpu in 0..8 {
        machine.put_cpu(cpu, "topology/physical_package_id", format!("{}", cpu / 4));
        machine.put_cpu(cpu, "topology/die_id", format!("{}", cpu / 2 % 2)).put_cpu(
            cpu,
            "topology/core_id",
            "0",
        );
    }
    let read = machine.read();
    assert_eq!(cores(&read), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert_eq!(packages(&read), [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])]);
    // -1 is no number.
    machine.each(0..8, "topology/physical_package_id", "-1\n");
    let read = machine.read();
    assert_eq!((read.cores.len(), read.packages.len()), (8, 1));
    assert!(has_note(&read, "the core is unknown") && has_note(&read, "the package is unknown"));
    // On old arm, a cluster was a package.
    machine.each(0..8, "topology/core_id", "-1\n");
    assert_eq!(machine.read().cores.len(), 8);
}

#[test]
fn packages_keep_the_numbers_of_the_kernel_if_possible() {
    let machine = Machine::new();
    machine.package(36, &[&[0]]).package(5, &[&[1]]);
    assert_eq!(packages(&machine.read()), [(36, vec![0]), (5, vec![1])]);
    machine.put_cpu(0, "topology/physical_package_id", "5").package(0, &[&[2]]);
    assert_eq!(packages(&machine.read()), [(1, vec![0]), (2, vec![1]), (0, vec![2])]);
    machine.each(0..3, "topology/physical_package_id", "-1");
    assert_eq!(packages(&machine.read()), [(0, vec![0]), (1, vec![1]), (2, vec![2])]);
}

#[test]
fn intel_lists_tell_core_kinds_apart() {
    let machine = Machine::new();
    machine.package(0, &[&[0, 1], &[2, 3], &[4], &[5], &[6], &[7]]).l3(&[0, 1, 2, 3, 4, 5]);
    machine.put("sys/devices/cpu_core/cpus", "0-3\n").put("sys/devices/cpu_atom/cpus", "4-7\n");
    // The lists are believed, whatever the capacities are.
    machine.each(0..8, "cpu_capacity", "1024\n").each(0..8, "cache/index0/level", "1\n");
    let read = machine.read();
    assert_eq!(of_kind(&read, CoreKind::Performance), [0, 1, 2, 3]);
    assert_eq!(of_kind(&read, CoreKind::Efficiency), [4, 5]);
    assert_eq!(of_kind(&read, CoreKind::LowPowerEfficiency), [6, 7], "they are apart from the L3");
    assert_eq!(sources(&read), [KindSource::CpuLists]);
    assert_eq!((read.is_hybrid(), read.performance_cpus()), (true, vec![0, 1, 2, 3]));
    machine.l3(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(of_kind(&machine.read(), CoreKind::Efficiency), [4, 5, 6, 7]);
    machine.each(0..4, "cpufreq/cpuinfo_max_freq", "4800000").each(
        4..6,
        "cpufreq/cpuinfo_max_freq",
        "3800000",
    );
    machine.each(6..8, "cpufreq/cpuinfo_max_freq", "2500000");
    assert_eq!(
        of_kind(&machine.read(), CoreKind::LowPowerEfficiency),
        [6, 7],
        "they are slower than the others"
    );
    machine.each(4..8, "cpufreq/cpuinfo_max_freq", "3800000").put("sys/devices/cpu_lowpower/cpus", "7\n");
    assert_eq!(of_kind(&machine.read(), CoreKind::LowPowerEfficiency), [7]);
    machine.put("sys/devices/cpu_core/cpus", "nonsense");
    let read = machine.read();
    assert!(has_note(&read, "/sys/devices/cpu_core/cpus is invalid: \"nonsense\""), "{:?}", read.notes);
    assert!(has_note(&read, "in neither cpu_core nor cpu_atom"));
    assert_eq!(of_kind(&read, CoreKind::Performance), [0, 1, 2, 3]);
}

#[test]
fn intel_lists_are_found_among_the_event_sources() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1]]);
    assert_eq!((machine.read().is_hybrid(), machine.read().performance_cpus()), (false, vec![0, 1]));
    for (name, cpus) in [("cpu_core", "0"), ("cpu_atom", "1")] {
        machine.put(&format!("sys/bus/event_source/devices/{name}/cpus"), cpus);
    }
    assert_eq!(of_kind(&machine.read(), CoreKind::Efficiency), [1]);
}

#[test]
fn capacities_tell_core_kinds_apart() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7]]);
    machine.each(0..4, "cpu_capacity", "250").each(4..8, "cpu_capacity", "1024");
    // Were the clock asked, all would be alike.
    machine.each(0..8, "cpufreq/cpuinfo_max_freq", "2000000");
    let read = machine.read();
    assert_eq!(of_kind(&read, CoreKind::Efficiency), [0, 1, 2, 3]);
    assert_eq!(of_kind(&read, CoreKind::Performance), [4, 5, 6, 7]);
    assert_eq!(sources(&read), [KindSource::CpuCapacity]);
    machine.each(4..6, "cpu_capacity", "792").put_cpu(6, "cpu_capacity", "812");
    let read = machine.read();
    assert_eq!(of_kind(&read, CoreKind::LowPowerEfficiency), [0, 1, 2, 3]);
    assert_eq!(of_kind(&read, CoreKind::Efficiency), [4, 5, 6], "some percent make no kind");
    machine.put_cpu(7, "cpu_capacity", "1025");
    let read = machine.read();
    assert!(has_note(&read, "cpu_capacity is invalid: \"1025\" (CPUs 7)"), "{:?}", read.notes);
    assert_eq!(sources(&read), [KindSource::MaximumFrequency]);
}

#[test]
fn clocks_tell_core_kinds_apart() {
    let machine = Machine::new();
    machine.package(0, &[&[0, 1], &[2, 3], &[4], &[5]]);
    assert_eq!(sources(&machine.read()), [KindSource::Assumed]);
    machine.each(0..2, "cpufreq/cpuinfo_max_freq", "5200000").each(
        2..4,
        "cpufreq/cpuinfo_max_freq",
        "5000000",
    );
    // The two others have one clock, and one folder for it.
    machine.put(&format!("{CPU}/cpufreq/policy4/related_cpus"), "4 5\n");
    machine.put(&format!("{CPU}/cpufreq/policy4/cpuinfo_max_freq"), "3900000\n");
    let read = machine.read();
    assert_eq!(of_kind(&read, CoreKind::Efficiency), [4, 5]);
    assert_eq!(of_kind(&read, CoreKind::Performance), [0, 1, 2, 3]);
    assert_eq!(sources(&read), [KindSource::MaximumFrequency]);
    machine.each(0..4, "cpufreq/base_frequency", "2800000").each(4..6, "cpufreq/base_frequency", "2100000");
    machine.put(&format!("{CPU}/cpufreq/policy4/cpuinfo_max_freq"), "5200000\n");
    assert_eq!(of_kind(&machine.read(), CoreKind::Performance).len(), 6, "Speed Select makes no kinds");
    machine.each(4..6, "cpufreq/base_frequency", "1200000");
    let read = machine.read();
    assert_eq!(
        (sources(&read), of_kind(&read, CoreKind::Performance)),
        (vec![KindSource::BaseFrequency], vec![4, 5])
    );
    machine.remove(&format!("{CPU}/cpufreq/policy4"));
    let read = machine.read();
    assert_eq!(sources(&read), [KindSource::Assumed]);
    assert!(has_note(
        &read,
        "cpuinfo_max_freq is missing for some cores, so it can't distinguish kinds (CPUs 4-5)"
    ));
}

#[test]
fn cpus_may_be_offline() {
    let machine = Machine::new();
    machine.package(0, &[&[0, 2], &[1, 3]]).put(&format!("{CPU}/online"), "0-1,3\n");
    machine.remove(&format!("{CPU}/cpu2/topology")).put_cpu(2, "online", "0\n");
    let read = machine.read();
    assert_eq!(online(&read), [0, 1, 3]);
    assert_eq!(cores(&read), [vec![0], vec![1, 3]]);
    let offline = &read.logical_processors[2];
    assert_eq!((offline.core, offline.package, offline.kind, offline.allowed), (None, None, None, false));
    machine.remove(&format!("{CPU}/online"));
    assert_eq!(online(&machine.read()), [0, 1, 3], "old kernels have no list");
    machine.remove(&format!("{CPU}/cpu2/online")).put_cpu(2, "crash_notes", "0");
    let read = machine.read();
    assert!(
        online(&read) == [0, 1, 3] && has_note(&read, "assumed to be offline (CPUs 2)"),
        "{:?}",
        read.notes
    );
    machine.put(&format!("{CPU}/online"), "3,9\n");
    let read = machine.read();
    assert!(online(&read) == [3] && has_note(&read, "without a folder, so left out (CPUs 9)"));
}

#[test]
fn a_chiplet_may_be_half_offline() {
    let machine = Machine::new();
    machine.package(0, &[&[0, 4], &[1, 5], &[2, 6], &[3, 7]]).l3(&[0, 1, 4, 5]).l3(&[2, 3, 6, 7]);
    machine.put(&format!("{CPU}/online"), "0-2,4,6\n");
    let read = machine.read();
    assert_eq!(cores(&read), [vec![0, 4], vec![1], vec![2, 6]]);
    assert_eq!(l3(&read), [vec![0, 1, 4], vec![2, 6]]);
    assert_eq!((read.l3_domain_of(5), read.package_of(5)), (None, None));
}

#[test]
fn links_of_a_recording_do_not_leave_it() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1]]).package(1, &[&[2]]);
    let link = |target: &str, path: &str| std::os::unix::fs::symlink(target, machine.0.join(path)).unwrap();
    machine.put("elsewhere/cache/index3/level", "3\n").put("elsewhere/cache/index3/shared_cpu_list", "0-1\n");
    link("/elsewhere/cache", &format!("{CPU}/cpu0/cache"));
    link("../../../../../../../../../../elsewhere/cache", &format!("{CPU}/cpu1/cache"));
    machine.put("elsewhere/cpuinfo", "model name : Linked\n").put("proc/stat", "");
    link("/elsewhere/cpuinfo", "proc/cpuinfo");
    link("/proc/self", "proc/self");
    let read = machine.read();
    assert_eq!((l3(&read), read.model.as_deref()), (vec![vec![0, 1]], Some("Linked")));
    assert_eq!(online(&read), [0, 1, 2]);
}

#[test]
fn cpu_numbers_can_have_gaps() {
    let machine = Machine::new();
    machine.package(0, &[&[3], &[70]]).package(2, &[&[511]]).l3(&[3, 70]);
    let read = machine.read();
    assert_eq!(online(&read), [3, 70, 511]);
    assert_eq!(packages(&read), [(0, vec![3, 70]), (2, vec![511])]);
    assert_eq!(l3(&read), [[3, 70]]);
}

#[test]
fn hundreds_of_cpus_are_read() {
    let machine = Machine::new();
    let all: Vec<[usize; 2]> = (0..256).map(|core| [core, core + 256]).collect();
    for package in 0..2 {
        let cores: Vec<&[usize]> = all[package * 128..][..128].iter().map(|core| &core[..]).collect();
        machine.package(package as i64, &cores);
    }
    let read = machine.read();
    assert_eq!((read.packages.len(), read.cores.len(), online(&read).len()), (2, 256, 512));
    assert!(read.notes.iter().all(|note| note.to_string().len() < 200), "{:?}", read.notes);
}

#[test]
fn memory_nodes_without_cpus_or_memory_are_read() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1], &[2], &[3]]);
    assert_eq!(nodes(&machine.read()), [(0, vec![0, 1, 2, 3])]);
    machine
        .put(&format!("{NODE}/node0/cpumap"), mask(&[0, 1]))
        .put(&format!("{NODE}/node2/cpumap"), "00000000\n");
    machine.put(&format!("{NODE}/node2/meminfo"), "Node 2 MemTotal:       1024 kB\n");
    machine
        .put(&format!("{NODE}/node8/cpulist"), "2-3\n")
        .put(&format!("{NODE}/node8/meminfo"), "Node 8 MemTotal: 0 kB\n");
    let read = machine.read();
    assert_eq!(nodes(&read), [(0, vec![0, 1]), (2, vec![]), (8, vec![2, 3])]);
    let memory: Vec<_> = read.numa_nodes.iter().map(|node| node.memory_bytes).collect();
    assert_eq!(memory, [None, Some(1 << 20), Some(0)]);
    assert_eq!(read.logical_processors[3].numa_node, Some(8));
    machine.put(&format!("{NODE}/node9/cpulist"), "1,3\n");
    let read = machine.read();
    assert!(read.numa_nodes.len() == 3 && has_note(&read, "memory node 9 is left out"));
    machine.remove(&format!("{NODE}/node8")).remove(&format!("{NODE}/node9"));
    let read = machine.read();
    assert!(
        read.logical_processors[3].numa_node.is_none() && has_note(&read, "in no memory node (CPUs 2-3)")
    );
    machine.put(&format!("{NODE}/node8/cpu2"), "").put(&format!("{NODE}/node8/cpumap"), "nonsense");
    assert_eq!(machine.read().logical_processors[2].numa_node, Some(8), "the links tell as well");
}

#[test]
fn affinities_and_control_groups_limit_what_is_allowed() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1], &[2], &[3], &[4], &[5]]).put(&format!("{CPU}/online"), "0-4");
    let read = machine.read();
    assert!(allowed(&read) == [0, 1, 2, 3, 4] && has_note(&read, "no affinity or cpuset"));
    machine.put("proc/self/status", "Name:\tx\nCpus_allowed:\t3e\nCpus_allowed_list:\t1-5\n");
    assert_eq!(allowed(&machine.read()), [1, 2, 3, 4]);

    // Version 2: the nearest group above that has the file.
    machine.put("proc/self/cgroup", "0::/user.slice/app.scope\n");
    machine.put("proc/mounts", "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n");
    machine.put("sys/fs/cgroup/cpuset.cpus.effective", "0-5\n");
    machine.put("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "2-5\n");
    assert_eq!(allowed(&machine.read()), [2, 3, 4]);
    machine.put("sys/fs/cgroup/user.slice/app.scope/cpuset.cpus.effective", "3\n");
    assert_eq!(allowed(&machine.read()), [3]);
    machine.put("proc/self/cgroup", "0::/../other\n");
    assert_eq!(allowed(&machine.read()), [1, 2, 3, 4], "a group of another container");

    machine.put("proc/self/cgroup", "0::/\n");
    machine.put("proc/mounts", "cgroup2 /mnt/a\\040place\\134\\9 cgroup2 rw 0 0\n");
    machine.put("mnt/a place\\\\9/cpuset.cpus.effective", "1\n");
    assert_eq!(allowed(&machine.read()), [1]);

    // Version 1, beside an empty version 2.
    machine.put("proc/self/cgroup", "4:cpu,cpuset:/a\n1:name=systemd:/b\n0::/c\n");
    machine.put(
        "proc/mounts",
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpu,cpuset 0 0\n",
    );
    machine.put("sys/fs/cgroup/cpuset/a/cpuset.cpus", "1-2\n");
    assert_eq!(allowed(&machine.read()), [1, 2]);
    machine.put("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "2\n");
    assert_eq!(allowed(&machine.read()), [2]);
    machine.put("sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "5\n");
    let read = machine.read();
    assert!(
        allowed(&read) == [1, 2, 3, 4] && has_note(&read, "cpuset leaves no CPU"),
        "a process runs somewhere"
    );
}

#[test]
fn topology_is_read_from_almost_nothing() {
    let machine = Machine::new();
    let read = machine.read();
    assert!(online(&read) == [0] && has_note(&read, "one is assumed"));
    assert_eq!((read.model.as_deref(), read.packages.len(), read.numa_nodes.len()), (None, 1, 1));
    machine.put("proc/stat", "cpu  1 2 3\ncpu0 1 2 3\ncpu2 4 5 6\nintr 1\n");
    assert_eq!(online(&machine.read()), [0, 2]);
    let processor = |cpu, package, core| {
        format!("processor : {cpu}\nmodel name : X\nphysical id : {package}\ncore id : {core}\n\n")
    };
    machine.put("proc/cpuinfo", [processor(0, 0, 0), processor(1, 0, 0), processor(2, 1, 0)].concat());
    let read = machine.read();
    assert_eq!(cores(&read), [vec![0, 1], vec![2]]);
    assert_eq!(read.packages.len(), 2);
    machine.put(&format!("{CPU}/present"), "0-3\n").put(&format!("{CPU}/online"), "0-2\n");
    assert_eq!((machine.read().logical_processors.len(), online(&machine.read())), (4, vec![0, 1, 2]));
    assert_eq!(online(&Topology::read(Path::new("/nowhere at all"))), [0]);
}

#[test]
fn models_of_other_architectures_are_read() {
    for (cpuinfo, model) in [
        ("Processor\t: ARMv7 Processor rev 1 (v7l)\nprocessor\t: 0\n", Some("ARMv7 Processor rev 1 (v7l)")),
        (
            "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0b\n",
            Some("ARM implementer 0x41 part 0xd0b"),
        ),
        ("model name :   \u{1b}[31m\0\u{1}  \n", Some("[31m")),
        ("model name :   \n", None),
        ("\u{0}\u{1}\u{2}", None),
    ] {
        let machine = Machine::new();
        machine.put("proc/cpuinfo", cpuinfo);
        assert_eq!(machine.read().model.as_deref(), model);
    }
    let machine = Machine::new();
    machine.put("proc/device-tree/model", "A Board Rev 2\0");
    assert_eq!(machine.read().model.as_deref(), Some("A Board Rev 2"));
    machine.put("proc/cpuinfo", format!("model name : {}\n", "x".repeat(1_000_000)));
    assert!(machine.read().model.unwrap().len() < 200);
}

/// What no kernel writes.
const BROKEN: &[&[u8]] = &[
    b"",
    b"\n",
    b"\0\0\0\0",
    b"\xff\xfe\x00nonsense\x1b[2J",
    b"-1",
    b"-5-3",
    b"7-2",
    b"0-",
    b",",
    b"1,,2",
    b"0-18446744073709551615",
    b"99999999999999999999999999",
    b"4294967295",
    b"ffffffff,ffffffff,ffffffff,fffffffff",
    b"0x3",
    b"+1",
    b"1 2 3",
    b"0-8191",
    b"9000",
];

#[test]
fn broken_files_are_noted_and_the_rest_is_read() {
    for broken in BROKEN {
        let machine = Machine::new();
        machine.package(0, &[&[0, 1], &[2, 3]]).l3(&[0, 1, 2, 3]);
        machine.put_cpu(1, "topology/core_cpus", broken).put_cpu(2, "cache/index3/size", broken);
        let read = machine.read();
        assert_eq!(cores(&read), [[0, 1], [2, 3]], "{broken:?}: the list is whole");
        assert_eq!(read.l3_domains.len(), 1, "{broken:?}");
    }
    let machine = Machine::new();
    machine.package(0, &[&[0, 1], &[2, 3]]).put_cpu(1, "topology/core_cpus", "3-1");
    assert!(has_note(&machine.read(), "topology/core_cpus is invalid: \"3-1\" (CPUs 1)"));
}

#[test]
fn sets_of_more_cpus_than_can_be_take_neither_memory_nor_time() {
    in_own_process("topology::sets_of_more_cpus_than_can_be_take_neither_memory_nor_time", || {
        limit(Resource::Data, 256 << 20);
        limit(Resource::Cpu, 20); // seconds
        let machine = Machine::new();
        machine.package(0, &[&[0, 1]]);
        machine.put_cpu(0, "topology/core_cpus", vec!["ffffffff"; 1_800_000].join(","));
        machine.put_cpu(0, "topology/core_cpus_list", vec!["0-8191"; 2_300_000].join(","));
        let read = machine.read();
        assert!(has_note(&read, "topology/core_cpus is invalid"), "{:?}", read.notes);
        assert!(has_note(&read, "topology/core_cpus_list is invalid"), "{:?}", read.notes);
    });
}

#[test]
fn deep_groups_and_many_mounts_take_neither_memory_nor_time() {
    in_own_process("topology::deep_groups_and_many_mounts_take_neither_memory_nor_time", || {
        limit(Resource::Data, 256 << 20);
        limit(Resource::Cpu, 20); // seconds
        let machine = Machine::new();
        machine
            .package(0, &[&[0, 1]])
            .put("proc/self/mounts", "cgroup2 /cgroup cgroup2 rw\n".repeat(500_000));
        for depth in [2000, 1_000_000] {
            machine.put("proc/self/cgroup", "0::".to_owned() + &"/a".repeat(depth));
            assert_eq!(allowed(&machine.read()), [0, 1]);
        }
    });
}

fn limit(resource: Resource, most: u64) {
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
}

#[test]
fn cpu_that_claims_all_siblings_gets_only_those_that_agree() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1, 2], &[3]]).put_cpu(0, "topology/core_cpus", mask(&[0, 1, 2, 3]));
    let read = machine.read();
    assert_eq!(cores(&read), [vec![0], vec![1, 2], vec![3]]);
    assert!(has_note(&read, "listed in a core that they don't name (CPUs 1-3)"), "{:?}", read.notes);
}

#[test]
fn paths_that_are_no_readable_files_are_noted() {
    let machine = Machine::new();
    machine.package(0, &[&[0], &[1]]).remove(&format!("{CPU}/cpu0/topology/core_cpus"));
    fs::create_dir(machine.0.join(CPU).join("cpu0/topology/core_cpus")).unwrap();
    let fifo = machine.0.join(CPU).join("online");
    rustix::fs::mkfifoat(rustix::fs::CWD, fifo, rustix::fs::Mode::RUSR).unwrap();
    machine.put(&format!("{CPU}/cpu7"), "a file").put(NODE, "a file").put_cpu(1, "cache", "a file");
    fs::create_dir(machine.0.join("proc")).unwrap();
    std::os::unix::fs::symlink("self", machine.0.join("proc/self")).unwrap();
    fs::File::create(machine.0.join("proc/cpuinfo")).unwrap().set_len(1 << 30).unwrap();
    let read = machine.read();
    assert_eq!(cores(&read), [[0], [1]]);
    for part in ["core_cpus can't be read", "online can't be read", "it is too long"] {
        assert!(has_note(&read, part), "{part}: {:?}", read.notes);
    }
}

#[test]
fn unreadable_files_are_noted() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may read everything");
        return;
    }
    let machine = Machine::new();
    machine.package(0, &[&[0, 1]]);
    let closed = machine.0.join(CPU).join("cpu0/topology/core_cpus");
    fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
    let read = machine.read();
    assert!(cores(&read) == [[0, 1]] && has_note(&read, "core_cpus can't be read"));
}

#[test]
fn topology_of_this_machine_matches_proc_cpuinfo() {
    let read = Topology::detect();
    check(&read);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap();
    let listed: Vec<usize> = cpuinfo
        .lines()
        .filter_map(|line| line.strip_prefix("processor")?.split_once(':')?.1.trim().parse().ok())
        .collect();
    assert_eq!(online(&read), listed);
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    assert!(allowed(&read).into_iter().all(|cpu| affinity.is_set(cpu)));
    assert_eq!(allowed(&read).len() as u32, affinity.count());
    assert_eq!(Topology::read(Path::new("/proc/..")), read, "the root by another name");
}

/// Any file of a machine with few CPUs: as a kernel would write it, or broken.
fn file() -> impl Strategy<Value = (String, Vec<u8>)> {
    let cpu = 0..6_usize;
    let topology = prop::sample::select(vec![
        "core_cpus",
        "core_cpus_list",
        "thread_siblings",
        "thread_siblings_list",
        "package_cpus",
        "core_siblings_list",
        "physical_package_id",
        "core_id",
        "die_id",
        "cluster_id",
    ]);
    let cache =
        prop::sample::select(vec!["level", "type", "size", "shared_cpu_map", "shared_cpu_list", "id"]);
    let own = prop::sample::select(vec![
        "online",
        "cpu_capacity",
        "cpufreq/cpuinfo_max_freq",
        "cpufreq/related_cpus",
    ]);
    let single = prop::sample::select(vec![
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/present",
        "sys/devices/cpu_core/cpus",
        "sys/devices/cpu_atom/cpus",
        "proc/self/status",
        "proc/self/cgroup",
        "proc/mounts",
        "proc/cpuinfo",
        "proc/stat",
        "sys/fs/cgroup/cpuset.cpus.effective",
    ]);
    let path = prop_oneof![
        6 => (cpu.clone(), topology).prop_map(|(cpu, name)| format!("{CPU}/cpu{cpu}/topology/{name}")),
        4 => (cpu.clone(), 0..4_usize, cache).prop_map(|(cpu, index, name)| format!("{CPU}/cpu{cpu}/cache/index{index}/{name}")),
        2 => (cpu.clone(), own).prop_map(|(cpu, name)| format!("{CPU}/cpu{cpu}/{name}")),
        1 => (cpu, prop::bool::ANY).prop_map(|(node, list)| format!("{NODE}/node{node}/cpu{}", if list { "list" } else { "map" })),
        2 => single.prop_map(str::to_owned),
    ];
    let cpus = prop::collection::btree_set(0..6_usize, 1..6).prop_map(Vec::from_iter);
    let content = prop_oneof![
        4 => cpus.clone().prop_map(|cpus| mask(&cpus).into_bytes()),
        4 => cpus.clone().prop_map(|cpus| list(&cpus).into_bytes()),
        4 => (-1..4_i64).prop_map(|number| format!("{number}\n").into_bytes()),
        1 => cpus.prop_map(|cpus| format!("Cpus_allowed_list:\t{}", list(&cpus)).into_bytes()),
        1 => Just(b"0::/a\n3:cpuset:/\nx /sys/fs/cgroup cgroup2 cpuset 0 0\n".to_vec()),
        2 => prop::sample::select(BROKEN).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    (path, content)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_trees_are_read_without_a_panic(is_whole in any::<bool>(), files in prop::collection::vec(file(), 0..60)) {
        let machine = Machine::new();
        if is_whole {
            machine.package(0, &[&[0, 1], &[2]]).package(1, &[&[3, 4], &[5]]).l3(&[0, 1, 2]).l3(&[3, 4, 5]);
        }
        for (path, content) in files {
            machine.put(&path, content);
        }
        machine.read();
    }
}
