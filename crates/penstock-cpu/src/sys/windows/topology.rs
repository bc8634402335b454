//! The topology of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::Error;
use std::thread::available_parallelism;

use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};

use super::records::{self, Record};
use super::thread;
use crate::topology::{
    CacheDomain, CoreKind, Cpus, KindSource, NumaNode, Topology, TopologyNote, TopologyProblem, core_records,
    package_records, processor_records,
};

/// What the records tell, in the order of the smallest CPUs.
#[derive(Default)]
struct Machine {
    cores: Vec<(Cpus, u8)>,
    packages: Vec<Cpus>,
    nodes: BTreeMap<usize, Cpus>,
    caches: [Vec<CacheDomain>; 3],
}

/// The topology of this machine. `allowed` refers to the calling thread.
pub(crate) fn topology() -> Topology {
    described(records::read(), &thread::cpus().unwrap_or_default().into_iter().collect())
}

fn described(records: Result<Vec<Record>, Error>, allowed: &Cpus) -> Topology {
    let mut problems = Vec::new();
    let machine = records.map(Machine::of).unwrap_or_else(|error| {
        problems.push(TopologyProblem::Refused { os_error: error.raw_os_error().unwrap_or_default() });
        Machine::assumed()
    });
    let online: Cpus = machine.cores.iter().flat_map(|(cpus, _)| cpus).copied().collect();
    let kinds = kinds(&machine.cores);
    let cores: Vec<Cpus> = machine.cores.into_iter().map(|(cpus, _)| cpus).collect();
    let told = vec![None; machine.packages.len()];
    let packages = package_records(machine.packages, &told, &cores);
    let cores = core_records(&cores, &packages, kinds);
    let node_of =
        machine.nodes.iter().flat_map(|(&id, cpus)| cpus.iter().map(move |&cpu| (cpu, id))).collect();
    let [l1d_domains, l2_domains, l3_domains] = machine.caches;
    // The firmware's words for it: "Intel64 Family 6 Model 154 Stepping 3, GenuineIntel".
    let model = env::var("PROCESSOR_IDENTIFIER").ok();
    if model.is_none() {
        problems.push(TopologyProblem::NoModel);
    }
    Topology {
        model,
        logical_processors: processor_records(&online, &online, allowed, &cores, &node_of),
        numa_nodes: nodes(machine.nodes),
        packages,
        cores,
        l1d_domains,
        l2_domains,
        l3_domains,
        notes: problems.into_iter().map(|problem| TopologyNote { problem, cpus: Cpus::new() }).collect(),
    }
}

impl Machine {
    fn of(records: Vec<Record>) -> Self {
        let mut machine = Self::default();
        for record in records {
            match record {
                Record::Core { efficiency_class, cpus } => machine.cores.push((cpus, efficiency_class)),
                Record::Package(cpus) => machine.packages.push(cpus),
                Record::Node { id, cpus } => machine.nodes.entry(id).or_default().extend(cpus),
                Record::Cache { level, size_bytes, cpus } => {
                    if let Some(caches) = machine.caches.get_mut(usize::from(level).wrapping_sub(1)) {
                        let logical_processors = cpus.into_iter().collect();
                        caches.push(CacheDomain { size_bytes: Some(size_bytes), logical_processors });
                    }
                }
            }
        }
        machine.cores.sort();
        machine.packages.sort();
        machine.caches.iter_mut().for_each(|caches| caches.sort_by_key(|cache| cache.logical_processors[0]));
        machine
    }

    /// As many cores as the system counts, in one package and one node.
    fn assumed() -> Self {
        let cpus: Cpus = (0..available_parallelism().map_or(1, usize::from)).collect();
        Self {
            cores: cpus.iter().map(|&cpu| (Cpus::from([cpu]), 0)).collect(),
            packages: vec![cpus.clone()],
            nodes: BTreeMap::from([(0, cpus)]),
            caches: Default::default(),
        }
    }
}

fn kinds(cores: &[(Cpus, u8)]) -> Vec<(CoreKind, KindSource)> {
    let classes: BTreeSet<u8> = cores.iter().map(|(_, class)| *class).collect();
    let kind =
        |(_, class): &(Cpus, u8)| CoreKind::of_class(classes.range(..class).count(), classes.len() - 1);
    cores.iter().map(|core| (kind(core), KindSource::EfficiencyClass)).collect()
}

/// Windows tells the memory of all nodes together.
fn nodes(nodes: BTreeMap<usize, Cpus>) -> Vec<NumaNode> {
    let memory_bytes = if nodes.len() == 1 { memory_bytes().ok() } else { None };
    let node = |(id, cpus): (usize, Cpus)| NumaNode {
        id,
        memory_bytes,
        logical_processors: cpus.into_iter().collect(),
    };
    nodes.into_iter().map(node).collect()
}

fn memory_bytes() -> Result<u64, Error> {
    let length = u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or_default();
    let mut status = MEMORYSTATUSEX { dwLength: length, ..MEMORYSTATUSEX::default() };
    // SAFETY: the struct says its size, and is written during the call.
    if unsafe { GlobalMemoryStatusEx(&raw mut status) } == 0 {
        return Err(Error::last_os_error());
    }
    Ok(status.ullTotalPhys)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn efficiency_classes_and_groups_are_told() {
        let core = |efficiency_class, cpus: &[usize]| Record::Core {
            efficiency_class,
            cpus: cpus.iter().copied().collect(),
        };
        let records = vec![
            core(1, &[64]),
            core(2, &[0, 1]),
            core(0, &[65]),
            Record::Package((0..2).collect()),
            Record::Package((64..66).collect()),
            Record::Node { id: 1, cpus: (64..66).collect() },
            Record::Node { id: 0, cpus: (0..2).collect() },
            Record::Cache { level: 3, size_bytes: 1 << 20, cpus: (0..2).collect() },
            Record::Cache { level: 9, size_bytes: 1, cpus: (0..2).collect() },
        ];
        let told = described(Ok(records), &Cpus::from([0, 65]));
        let kinds: Vec<_> =
            told.cores.iter().map(|core| (core.logical_processors.clone(), core.kind)).collect();
        assert_eq!(
            kinds,
            [
                (vec![0, 1], CoreKind::Performance),
                (vec![64], CoreKind::Efficiency),
                (vec![65], CoreKind::LowPowerEfficiency),
            ]
        );
        assert_eq!(
            told.packages.iter().map(|package| package.cores.clone()).collect::<Vec<_>>(),
            [vec![0], vec![1, 2]]
        );
        assert_eq!(told.logical_processors[3].numa_node, Some(1));
        assert_eq!((told.l3_domains.len(), told.performance_cpus()), (1, vec![0]));
    }

    #[test]
    fn refusal_is_noted_and_leaves_a_core_for_each_cpu() {
        let told = described(Err(ErrorKind::Unsupported.into()), &Cpus::from([0]));
        assert!(!told.cores.is_empty() && told.packages.len() == 1);
        assert!(matches!(told.notes[0].problem, TopologyProblem::Refused { .. }));
    }
}
