//! /proc/cpuinfo: a name for people, and the last resort where /sys says nothing.

use std::collections::BTreeMap;

use super::sets;
use super::tree::{Tree, clean};
use crate::topology::{Cpus, TopologyProblem};

pub(super) struct Cpuinfo {
    pub(super) model: Option<String>,
    /// Processor, package and core, where they are told.
    pub(super) processors: Vec<(usize, Option<(usize, usize)>)>,
}

impl Cpuinfo {
    pub(super) fn read(tree: &mut Tree) -> Self {
        let text = tree.text("proc/cpuinfo").unwrap_or_default();
        let fields: Vec<(&str, &str)> = text.lines().filter_map(field).collect();
        let found = Self { model: model(&fields).or_else(|| board(tree)), processors: processors(&fields) };
        if found.model.is_none() {
            tree.note(TopologyProblem::NoModel);
        }
        found
    }

    /// The `key` of the package and core that the file names, for each of these CPUs that has them.
    pub(super) fn told<K>(&self, cpus: &Cpus, key: impl Fn((usize, usize)) -> K) -> BTreeMap<usize, K> {
        let of_these = self.processors.iter().filter(|(cpu, _)| cpus.contains(cpu));
        of_these.filter_map(|&(cpu, ids)| Some((cpu, key(ids?)))).collect()
    }
}

fn field(line: &str) -> Option<(&str, &str)> {
    line.split_once(':').map(|(name, value)| (name.trim(), value.trim()))
}

fn first<'a>(fields: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(found, value)| *found == name && !value.is_empty()).map(|(_, value)| *value)
}

/// The name has another field on every architecture: x86 and arm, old arm, RISC-V.
fn model(fields: &[(&str, &str)]) -> Option<String> {
    let names = ["model name", "Processor", "uarch"];
    let named = names.into_iter().find_map(|name| first(fields, name)).map(clean);
    named.filter(|name| !name.is_empty()).or_else(|| part(fields))
}

/// 64-bit ARM gives numbers alone: the "Main ID Register".
fn part(fields: &[(&str, &str)]) -> Option<String> {
    let (implementer, part) = (first(fields, "CPU implementer")?, first(fields, "CPU part")?);
    Some(clean(&format!("ARM implementer {implementer} part {part}")))
}

/// Some boards are told by the device tree alone, whose texts end with a NUL.
fn board(tree: &mut Tree) -> Option<String> {
    let name = clean(&tree.text("proc/device-tree/model")?);
    (!name.is_empty()).then_some(name)
}

fn processors(fields: &[(&str, &str)]) -> Vec<(usize, Option<(usize, usize)>)> {
    let starts: Vec<usize> = (0..fields.len()).filter(|&at| fields[at].0 == "processor").collect();
    let ends = starts.iter().skip(1).copied().chain([fields.len()]);
    let processor = |(start, end): (usize, usize)| {
        let own = &fields[start..end];
        let of = |name| first(own, name).and_then(sets::number);
        Some((of("processor")?, of("physical id").zip(of("core id"))))
    };
    starts.iter().copied().zip(ends).filter_map(processor).collect()
}
