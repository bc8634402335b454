//! From what each CPU says of its neighbors to groups that share no CPU.

use std::collections::BTreeMap;

use super::cpuinfo::Cpuinfo;
use super::sets;
use super::tree::{Tree, integer};
use crate::topology::{Cpus, TopologyProblem};

/// The second pair is the older name of the same: Documentation/ABI/stable/sysfs-devices-system-cpu.
const CORE_FILES: [[&str; 2]; 2] = [
    ["topology/core_cpus", "topology/core_cpus_list"],
    ["topology/thread_siblings", "topology/thread_siblings_list"],
];
const PACKAGE_FILES: [[&str; 2]; 2] = [
    ["topology/package_cpus", "topology/package_cpus_list"],
    ["topology/core_siblings", "topology/core_siblings_list"],
];

/// The CPUs that each CPU names as of its group, itself among them.
pub(super) type Claims = BTreeMap<usize, Cpus>;

/// Forms groups of the claims in the order of the CPUs. Two CPUs are together if neither says otherwise: a broken file of one
/// shall not take CPUs from other groups. Who claims nothing, and is not claimed, is in no group. Of who is
/// claimed and says otherwise, `not_theirs` is noted.
pub(super) fn agreed(tree: &mut Tree, not_theirs: &TopologyProblem, claims: &Claims) -> Vec<Cpus> {
    let mut placed = Cpus::new();
    let mut groups = Vec::new();
    for (&cpu, claimed) in claims {
        if placed.contains(&cpu) {
            continue;
        }
        let agrees = |other: &usize| claims.get(other).is_none_or(|theirs| theirs.contains(&cpu));
        let (members, others): (Cpus, Cpus) =
            claimed.iter().partition(|other| agrees(other) && !placed.contains(other));
        tree.note_of(&others, not_theirs.clone());
        placed.extend(&members);
        groups.push(members);
    }
    groups.sort_by_key(|group: &Cpus| group.first().copied());
    groups
}

/// CPUs of one key claim each other.
fn claims_by_key<K: Ord + Copy>(keys: &BTreeMap<usize, K>) -> Claims {
    let mut members: BTreeMap<K, Cpus> = BTreeMap::new();
    for (&cpu, &key) in keys {
        members.entry(key).or_default().insert(cpu);
    }
    keys.iter().map(|(&cpu, key)| (cpu, members[key].clone())).collect()
}

/// A set of a CPU and others, which its folder tells as a mask and as a list, cut down to CPUs that are online. The mask comes first: there are
/// recordings whose masks were corrected, and their lists forgotten.
pub(super) fn set(tree: &mut Tree, cpu: usize, [mask, list]: [&str; 2], online: &Cpus) -> Option<Cpus> {
    let has_it = |cpus: &Cpus| cpus.contains(&cpu);
    let masked = tree.of_cpu(cpu, mask, |text| sets::mask(text).filter(has_it));
    let found = masked.or_else(|| tree.of_cpu(cpu, list, |text| sets::list(text).filter(has_it)))?;
    Some(found.intersection(online).copied().collect())
}

/// The CPUs of each core. Every CPU that is online is in one.
pub(super) fn cores(tree: &mut Tree, online: &Cpus, cpuinfo: &Cpuinfo) -> Vec<Cpus> {
    let mut claims = claims(tree, online, CORE_FILES);
    let keys = core_keys(tree, &unclaimed(online, &claims));
    claims.extend(claims_by_key(&keys));
    claims.extend(claims_by_key(&cpuinfo.told(&unclaimed(online, &claims), |ids| ids)));
    let rest = unclaimed(online, &claims);
    tree.note_of(&rest, TopologyProblem::NoCore);
    claims.extend(rest.into_iter().map(|cpu| (cpu, Cpus::from([cpu]))));
    agreed(tree, &TopologyProblem::NotOfTheCore, &claims)
}

/// The CPUs of each package. Every CPU that is online is in one, and no core is in two.
pub(super) fn packages(tree: &mut Tree, online: &Cpus, cores: &[Cpus], cpuinfo: &Cpuinfo) -> Vec<Cpus> {
    let mut claims = claims(tree, online, PACKAGE_FILES);
    let keys = unclaimed(online, &claims);
    let keys = keys.into_iter().filter_map(|cpu| Some((cpu, package_id(tree, cpu)?))).collect();
    claims.extend(claims_by_key(&keys));
    claims.extend(claims_by_key(&cpuinfo.told(&unclaimed(online, &claims), |(package, _)| package)));
    let rest = unclaimed(online, &claims);
    tree.note_of(&rest, TopologyProblem::NoPackage);
    claims.extend(rest.iter().map(|&cpu| (cpu, rest.clone())));
    let packages = agreed(tree, &TopologyProblem::NotOfThePackage, &claims);
    with_whole_cores(tree, &packages, cores)
}

fn unclaimed(online: &Cpus, claims: &Claims) -> Cpus {
    online.iter().filter(|cpu| !claims.contains_key(cpu)).copied().collect()
}

fn with_whole_cores(tree: &mut Tree, packages: &[Cpus], cores: &[Cpus]) -> Vec<Cpus> {
    let mut whole = vec![Cpus::new(); packages.len()];
    let places = packages.iter().enumerate();
    let package_of: BTreeMap<usize, usize> =
        places.flat_map(|(at, package)| package.iter().map(move |&cpu| (cpu, at))).collect();
    for core in cores {
        let owners: Cpus = core.iter().filter_map(|cpu| package_of.get(cpu)).copied().collect();
        if owners.len() > 1 {
            tree.note_of(core, TopologyProblem::CoreOfTwoPackages);
        }
        if let Some(&owner) = core.first().and_then(|cpu| package_of.get(cpu)) {
            whole[owner].extend(core);
        }
    }
    whole.retain(|package| !package.is_empty());
    whole.sort_by_key(|package| package.first().copied());
    whole
}

fn claims(tree: &mut Tree, online: &Cpus, files: [[&str; 2]; 2]) -> Claims {
    let claim =
        |&cpu: &usize| Some((cpu, files.into_iter().find_map(|files| set(tree, cpu, files, online))?));
    online.iter().filter_map(claim).collect()
}

/// A `core_id` is unique only within a cluster of a die of a package. Without the package it identifies nothing.
fn core_keys(tree: &mut Tree, cpus: &Cpus) -> BTreeMap<usize, [Option<i64>; 4]> {
    let key = |&cpu: &usize| {
        let [die, cluster] =
            ["topology/die_id", "topology/cluster_id"].map(|name| tree.of_cpu(cpu, name, integer));
        let core = known(tree.of_cpu(cpu, "topology/core_id", integer))?;
        Some((cpu, [Some(package_id(tree, cpu)?), die, cluster, Some(core)]))
    };
    cpus.iter().filter_map(key).collect()
}

/// The kernel's number of a CPU's package.
pub(super) fn package_id(tree: &mut Tree, cpu: usize) -> Option<i64> {
    known(tree.of_cpu(cpu, "topology/physical_package_id", integer))
}

/// -1 is the kernel's "unknown".
pub(super) fn known(id: Option<i64>) -> Option<i64> {
    id.filter(|&id| id >= 0)
}
