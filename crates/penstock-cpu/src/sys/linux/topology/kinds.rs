//! Which cores are fast, and which are frugal.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::sets;
use super::tree::{CPU, Tree, integer};
use crate::topology::{CoreKind, Cpus, KindSource, TopologyProblem};

/// Values that differ by less are one kind. Cores of one kind differ by some percent where the maker lets the best of them go
/// faster (5.0 and 5.2 GHz on an Intel i7-1370P, whose other kind has 3.9); hwloc takes the same 10 %.
const ALIKE_PERCENT: i64 = 10;

/// At the same maximum, a base frequency that differs by less tells no kinds apart: Intel's Speed Select gives the same cores
/// 2.1 and 2.8 GHz (Xeon 6252N). Guessed between that and the double, seen in a recorded machine.
const BASE_ALIKE_PERCENT: i64 = 50;

/// The scheduler's scale: the fastest CPU of a machine has it (Documentation/scheduler/sched-capacity.rst).
const CAPACITY_MAX: i64 = 1024;

/// The kind of each core, and what it was read from.
pub(super) fn of_cores(tree: &mut Tree, cores: &[Cpus], with_l3: &Cpus) -> Vec<(CoreKind, KindSource)> {
    let shared = shared_frequencies(tree, cores);
    let max = values(tree, cores, "cpufreq/cpuinfo_max_freq", positive, &shared);
    if let Some(kinds) = by_lists(tree, cores, with_l3, max.as_deref()) {
        return kinds;
    }
    let capacity = |text: &str| positive(text).filter(|&value| value <= CAPACITY_MAX);
    let capacities = values(tree, cores, "cpu_capacity", capacity, &BTreeMap::new());
    let base = values(tree, cores, "cpufreq/base_frequency", positive, &BTreeMap::new());
    let by_capacity =
        capacities.map(|capacities| (classes(&capacities, ALIKE_PERCENT), KindSource::CpuCapacity));
    let by_frequency = max.map(|max| by_frequency(&max, base.as_deref()));
    named(tree, cores.len(), by_capacity.into_iter().chain(by_frequency).collect())
}

/// The first source that sees a difference is believed.
fn named(
    tree: &mut Tree,
    cores: usize,
    answers: Vec<(Vec<usize>, KindSource)>,
) -> Vec<(CoreKind, KindSource)> {
    let sees_some = answers.iter().find(|(classes, _)| count(classes) > 1);
    let Some((classes, source)) = sees_some.or(answers.first()) else {
        tree.note(TopologyProblem::NoKinds);
        return vec![(CoreKind::Performance, KindSource::Assumed); cores];
    };
    let highest = count(classes).saturating_sub(1);
    classes.iter().map(|&class| (CoreKind::of_class(class, highest), *source)).collect()
}

fn count(classes: &[usize]) -> usize {
    classes.iter().max().map_or(0, |highest| highest + 1)
}

/// The class of each value, from 0 for the lowest.
fn classes(values: &[i64], alike_percent: i64) -> Vec<usize> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    // From neighbor to neighbor: the spread of many cores of one kind may be larger than each step of it.
    let is_step =
        |low: i64, high: i64| i128::from(high) * 100 > i128::from(low) * i128::from(100 + alike_percent);
    let firsts: Vec<i64> =
        sorted.windows(2).filter(|pair| is_step(pair[0], pair[1])).map(|pair| pair[1]).collect();
    values.iter().map(|value| firsts.iter().filter(|first| value >= first).count()).collect()
}

/// The base frequency divides those of one maximum. It is what all of a kind can keep up together: at the same maximum, those
/// with the lower base need more power for it, and so are the larger cores.
fn by_frequency(max: &[i64], base: Option<&[i64]>) -> (Vec<usize>, KindSource) {
    let by_max = classes(max, ALIKE_PERCENT);
    let Some(base) = base else { return (by_max, KindSource::MaximumFrequency) };
    let by_base = classes(base, BASE_ALIKE_PERCENT);
    let keys: Vec<_> = by_max.iter().copied().zip(by_base.into_iter().map(Reverse)).collect();
    let ranks: BTreeSet<_> = keys.iter().copied().collect();
    if ranks.len() == count(&by_max) {
        return (by_max, KindSource::MaximumFrequency);
    }
    (keys.iter().map(|key| ranks.range(..key).count()).collect(), KindSource::BaseFrequency)
}

/// Intel's lists of hybrid machines: tools/perf/Documentation/intel-hybrid.txt.
fn by_lists(
    tree: &mut Tree,
    cores: &[Cpus],
    with_l3: &Cpus,
    max: Option<&[i64]>,
) -> Option<Vec<(CoreKind, KindSource)>> {
    let [performance, efficiency, low_power] =
        ["cpu_core", "cpu_atom", "cpu_lowpower"].map(|list| cpus_of(tree, list));
    let lists = [
        (performance, CoreKind::Performance),
        (low_power, CoreKind::LowPowerEfficiency),
        (efficiency, CoreKind::Efficiency),
    ];
    let mut unknown = Cpus::new();
    let kind = |core: &Cpus| match lists.iter().find(|(cpus, _)| !cpus.is_disjoint(core)) {
        Some((_, kind)) => (*kind, KindSource::CpuLists),
        None => {
            unknown.extend(core);
            (CoreKind::Performance, KindSource::Assumed)
        }
    };
    let mut kinds: Vec<_> = cores.iter().map(kind).collect();
    if kinds.iter().all(|(_, source)| *source == KindSource::Assumed) {
        return None;
    }
    tree.note_of(&unknown, TopologyProblem::NoKind);
    find_low_power(&mut kinds, cores, with_l3, max);
    Some(kinds)
}

fn cpus_of(tree: &mut Tree, list: &str) -> Cpus {
    let places = [format!("sys/devices/{list}/cpus"), format!("sys/bus/event_source/devices/{list}/cpus")];
    places.iter().find_map(|path| tree.parsed(path, sets::list)).unwrap_or_default()
}

/// Most kernels list low-power cores among the others of `cpu_atom`. They are apart from the L3 that all others share, and
/// clearly slower.
fn find_low_power(kinds: &mut [(CoreKind, KindSource)], cores: &[Cpus], with_l3: &Cpus, max: Option<&[i64]>) {
    let of = |kind, kinds: &[(CoreKind, KindSource)]| -> Vec<usize> {
        (0..cores.len()).filter(|&core| kinds[core].0 == kind).collect()
    };
    if !of(CoreKind::LowPowerEfficiency, kinds).is_empty() {
        return;
    }
    let shares_l3 = |core: usize| !cores[core].is_disjoint(with_l3);
    let efficient = of(CoreKind::Efficiency, kinds);
    let performance_share_it = of(CoreKind::Performance, kinds).into_iter().any(shares_l3);
    let apart: Vec<usize> = efficient.iter().copied().filter(|&core| !shares_l3(core)).collect();
    if performance_share_it && !apart.is_empty() {
        apart.into_iter().for_each(|core| kinds[core].0 = CoreKind::LowPowerEfficiency);
    } else if let Some(max) = max {
        let speeds: Vec<i64> = efficient.iter().map(|&core| max[core]).collect();
        let classes = classes(&speeds, ALIKE_PERCENT);
        let is_slowest = |class: &usize| count(&classes) > 1 && *class == 0;
        let slowest = efficient.iter().zip(&classes).filter(|(_, class)| is_slowest(class));
        slowest.for_each(|(&core, _)| kinds[core].0 = CoreKind::LowPowerEfficiency);
    }
}

/// The highest value that each core's CPUs tell, or None if one core has none: then they cannot be compared. A CPU without
/// a file has the value in `shared`.
fn values(
    tree: &mut Tree,
    cores: &[Cpus],
    file: &'static str,
    parse: impl Fn(&str) -> Option<i64>,
    shared: &BTreeMap<usize, i64>,
) -> Option<Vec<i64>> {
    let mut value = |&cpu: &usize| tree.of_cpu(cpu, file, &parse).or_else(|| shared.get(&cpu).copied());
    let found: Vec<Option<i64>> = cores.iter().map(|core| core.iter().filter_map(&mut value).max()).collect();
    let without = cores.iter().zip(&found).filter(|(_, value)| value.is_none());
    let without = without.flat_map(|(core, _)| core).copied().collect();
    if found.iter().any(Option::is_some) {
        tree.note_of(&without, TopologyProblem::NotOfAllCores(file));
    }
    found.into_iter().collect()
}

/// The maxima of CPUs whose clock is one. They have one folder, which may be found below one of them alone:
/// Documentation/admin-guide/pm/cpufreq.rst.
fn shared_frequencies(tree: &mut Tree, cores: &[Cpus]) -> BTreeMap<usize, i64> {
    let of_cpus = cores.iter().flatten().map(|cpu| format!("{CPU}/cpu{cpu}/cpufreq"));
    let policies = tree.numbered(&format!("{CPU}/cpufreq"), "policy");
    let of_policies = policies.into_iter().map(|policy| format!("{CPU}/cpufreq/policy{policy}"));
    let mut shared = BTreeMap::new();
    for folder in of_cpus.chain(of_policies).collect::<Vec<_>>() {
        let related = tree.parsed(&format!("{folder}/related_cpus"), sets::list).unwrap_or_default();
        if related.is_empty() {
            continue;
        }
        if let Some(value) = tree.parsed(&format!("{folder}/cpuinfo_max_freq"), positive) {
            shared.extend(related.into_iter().map(|cpu| (cpu, value)));
        }
    }
    shared
}

fn positive(text: &str) -> Option<i64> {
    integer(text).filter(|&value| value > 0)
}
