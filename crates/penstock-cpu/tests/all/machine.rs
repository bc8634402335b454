//! Tests of this machine's topology, and of properties that every machine has.

use std::collections::BTreeSet;

use penstock_cpu::{LogicalProcessor, ThreadPolicy, Topology};

pub fn online(topology: &Topology) -> Vec<usize> {
    numbers(topology, |processor| processor.online)
}

pub fn allowed(topology: &Topology) -> Vec<usize> {
    numbers(topology, |processor| processor.allowed)
}

pub fn numbers(topology: &Topology, is_one: impl Fn(&LogicalProcessor) -> bool) -> Vec<usize> {
    topology
        .logical_processors
        .iter()
        .filter(|processor| is_one(processor))
        .map(|processor| processor.id)
        .collect()
}

/// What holds of every machine, however odd.
pub fn check(topology: &Topology) {
    let ascends = |numbers: &[usize]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
    let online = online(topology);
    assert!(!online.is_empty() && !allowed(topology).is_empty());
    assert!(ascends(&numbers(topology, |_| true)));
    for one in &topology.logical_processors {
        assert!(one.online || !one.allowed, "{one:?} is allowed and offline");
        assert_eq!(one.online, one.core.is_some() && one.package.is_some() && one.kind.is_some());
        let core = one.core.map(|core| &topology.cores[core]);
        assert_eq!(core.map(|core| (core.package, core.kind)), one.package.zip(one.kind));
        let mut of_core = one.smt_siblings.clone();
        of_core.extend(core.map(|_| one.id));
        of_core.sort_unstable();
        assert_eq!(of_core, core.map_or(vec![], |core| core.logical_processors.clone()));
    }
    let groups = |name: &str, groups: Vec<&Vec<usize>>, is_whole: bool| {
        assert!(groups.iter().all(|group| ascends(group)), "{name} {groups:?}");
        let members: Vec<usize> = groups.iter().copied().flatten().copied().collect();
        let unique: BTreeSet<usize> = members.iter().copied().collect();
        assert_eq!(members.len(), unique.len(), "{name} overlap: {groups:?}");
        assert!(unique.iter().all(|cpu| online.contains(cpu)), "{name} of offline CPUs: {groups:?}");
        assert!(
            !is_whole || unique.into_iter().eq(online.iter().copied()),
            "{name} leave some out: {groups:?}"
        );
        groups.iter().filter(|group| group.is_empty()).count()
    };
    let of_cores = topology.cores.iter().map(|core| &core.logical_processors).collect();
    let of_packages = topology.packages.iter().map(|package| &package.logical_processors).collect();
    let of_nodes = topology.numa_nodes.iter().map(|node| &node.logical_processors).collect();
    assert_eq!(groups("cores", of_cores, true), 0);
    assert_eq!(groups("packages", of_packages, true), 0);
    groups("nodes", of_nodes, false);
    for domains in [&topology.l1d_domains, &topology.l2_domains, &topology.l3_domains] {
        let of_caches = domains.iter().map(|domain| &domain.logical_processors).collect();
        assert_eq!(groups("caches", of_caches, false), 0);
    }
    assert!(topology.cores.iter().enumerate().all(|(at, core)| core.id == at));
    let ids: BTreeSet<usize> = topology.packages.iter().map(|package| package.id).collect();
    assert_eq!(ids.len(), topology.packages.len(), "packages of one number");
    for package in &topology.packages {
        let cpus: BTreeSet<usize> =
            package.cores.iter().flat_map(|&core| topology.cores[core].logical_processors.clone()).collect();
        assert!(cpus.into_iter().eq(package.logical_processors.iter().copied()));
        assert!(package.cores.iter().all(|&core| topology.cores[core].package == package.id));
    }
    for note in topology.notes.iter().map(ToString::to_string) {
        assert!(note.chars().count() < 1000 && !note.contains(char::is_control), "{note:?}");
    }
}

#[test]
fn topology_of_this_machine_holds_together() {
    let read = Topology::detect();
    check(&read);
    assert!(read.model.is_some());
    assert!(read.is_hybrid() || read.performance_cpus() == allowed(&read), "{read:?}");
}

#[test]
fn allowed_cpus_are_those_of_the_calling_thread() {
    let first = allowed(&Topology::detect())[0];
    let read = std::thread::spawn(move || {
        let applied = ThreadPolicy::default().cpus(vec![first]).apply();
        assert_eq!(applied.cpus, [first]);
        Topology::detect()
    });
    assert_eq!(allowed(&read.join().unwrap()), [first]);
}
