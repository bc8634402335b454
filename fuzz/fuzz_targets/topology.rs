//! No tree of files is too odd to be read as a machine: what is told of it is consistent.

#![no_main]

use std::collections::BTreeSet;
use std::fs;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use penstock_cpu::Topology;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    files: Vec<(Place, Content<'a>)>,
}

#[derive(Arbitrary, Debug)]
enum Place {
    Topology { cpu: u8, name: u8 },
    Cache { cpu: u8, index: u8, name: u8 },
    Own { cpu: u8, name: u8 },
    Node { node: u8, name: u8 },
    Single(u8),
}

#[derive(Arbitrary, Debug)]
enum Content<'a> {
    Number(i32),
    Mask(u8),
    List(u8, u8),
    Text(&'a str),
    Bytes(&'a [u8]),
}

const TOPOLOGY: [&str; 10] = [
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
];
const CACHE: [&str; 6] = ["level", "type", "size", "shared_cpu_map", "shared_cpu_list", "id"];
const OWN: [&str; 4] = ["online", "cpu_capacity", "cpufreq/cpuinfo_max_freq", "cpufreq/related_cpus"];
const NODE: [&str; 3] = ["cpulist", "cpumap", "meminfo"];
const SINGLE: [&str; 10] = [
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
];

fn one_of<'a>(names: &[&'a str], number: u8) -> &'a str {
    names[usize::from(number) % names.len()]
}

impl Place {
    fn path(&self) -> String {
        let cpus = "sys/devices/system/cpu";
        match self {
            Self::Topology { cpu, name } => {
                format!("{cpus}/cpu{}/topology/{}", cpu % 6, one_of(&TOPOLOGY, *name))
            }
            Self::Cache { cpu, index, name } => {
                format!("{cpus}/cpu{}/cache/index{}/{}", cpu % 6, index % 4, one_of(&CACHE, *name))
            }
            Self::Own { cpu, name } => format!("{cpus}/cpu{}/{}", cpu % 6, one_of(&OWN, *name)),
            Self::Node { node, name } => {
                format!("sys/devices/system/node/node{}/{}", node % 4, one_of(&NODE, *name))
            }
            Self::Single(name) => one_of(&SINGLE, *name).to_owned(),
        }
    }
}

impl Content<'_> {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Number(number) => format!("{number}\n").into_bytes(),
            Self::Mask(mask) => format!("{mask:x}\n").into_bytes(),
            Self::List(from, to) => format!("{}-{}\n", from % 8, to % 8).into_bytes(),
            Self::Text(text) => text.as_bytes().to_vec(),
            Self::Bytes(bytes) => bytes.to_vec(),
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let root = std::env::temp_dir().join(format!("penstock-fuzz-machine-{}", std::process::id()));
    fs::create_dir(&root).unwrap();
    for (place, content) in input.files.iter().take(60) {
        let path = root.join(place.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.bytes()).unwrap();
    }
    let topology = Topology::read(&root);
    fs::remove_dir_all(&root).unwrap();
    check(&topology);
});

fn check(topology: &Topology) {
    let online: Vec<usize> =
        topology.logical_processors.iter().filter(|one| one.online).map(|one| one.id).collect();
    let mut in_cores: Vec<usize> =
        topology.cores.iter().flat_map(|core| core.logical_processors.iter().copied()).collect();
    let mut in_packages: Vec<usize> =
        topology.packages.iter().flat_map(|package| package.logical_processors.iter().copied()).collect();
    in_cores.sort_unstable();
    in_packages.sort_unstable();
    assert_eq!(in_cores, online, "each is in one core");
    assert_eq!(in_packages, online, "each is in one package");
    for domains in [&topology.l1d_domains, &topology.l2_domains, &topology.l3_domains] {
        let all: Vec<usize> =
            domains.iter().flat_map(|domain| domain.logical_processors.iter().copied()).collect();
        let distinct: BTreeSet<usize> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len(), "each is in one cache of a level");
        assert!(distinct.iter().all(|id| online.contains(id)));
    }
}
