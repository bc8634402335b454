//! Memory nodes: Documentation/ABI/stable/sysfs-devices-node.

use std::collections::BTreeMap;

use super::sets;
use super::tree::Tree;
use crate::topology::{Cpus, NumaNode, TopologyProblem};

const NODE: &str = "sys/devices/system/node";

/// The nodes, and the node of each CPU that is in one.
pub(super) fn nodes(tree: &mut Tree, known: &Cpus, online: &Cpus) -> (Vec<NumaNode>, BTreeMap<usize, usize>) {
    let ids = tree.numbered(NODE, "node");
    if ids.is_empty() {
        return (vec![only(tree, online)], known.iter().map(|&cpu| (cpu, 0)).collect());
    }
    let mut node_of = BTreeMap::new();
    let mut nodes = Vec::new();
    for id in ids {
        let cpus = cpus_of(tree, id);
        if cpus.iter().any(|cpu| node_of.contains_key(cpu)) {
            tree.note(TopologyProblem::NodeOverlaps(id));
            continue;
        }
        node_of.extend(cpus.iter().filter(|cpu| known.contains(cpu)).map(|&cpu| (cpu, id)));
        let logical_processors = cpus.intersection(online).copied().collect();
        nodes.push(NumaNode { id, memory_bytes: memory_bytes(tree, id), logical_processors });
    }
    let without: Cpus = online.iter().filter(|cpu| !node_of.contains_key(cpu)).copied().collect();
    tree.note_of(&without, TopologyProblem::NoNode);
    (nodes, node_of)
}

/// A kernel without the option has no folder, and one node.
fn only(tree: &mut Tree, online: &Cpus) -> NumaNode {
    tree.note(TopologyProblem::NoNodes);
    let memory_bytes = tree.text("proc/meminfo").and_then(|text| total_bytes(&text));
    NumaNode { id: 0, memory_bytes, logical_processors: online.iter().copied().collect() }
}

fn cpus_of(tree: &mut Tree, id: usize) -> Cpus {
    let mask = tree.parsed(&format!("{NODE}/node{id}/cpumap"), sets::mask);
    let told = mask.or_else(|| tree.parsed(&format!("{NODE}/node{id}/cpulist"), sets::list));
    // The folder has a link for each CPU as well.
    told.unwrap_or_else(|| tree.numbered(&format!("{NODE}/node{id}"), "cpu").into_iter().collect())
}

fn memory_bytes(tree: &mut Tree, id: usize) -> Option<u64> {
    total_bytes(&tree.text(&format!("{NODE}/node{id}/meminfo"))?)
}

/// Of lines like "MemTotal: 16 kB" and "Node 0 MemTotal: 16 kB".
fn total_bytes(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("MemTotal:")?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
