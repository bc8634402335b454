//! Which CPUs share which caches.

use std::collections::BTreeMap;

use super::groups::{self, Claims, known};
use super::tree::{CPU, Tree, integer};
use crate::topology::{CacheDomain, Cpus, TopologyProblem};

/// What one CPU says of one cache.
struct Cache {
    sharing: Option<Cpus>,
    id: Option<i64>,
    size_bytes: Option<u64>,
}

/// The domains of the first, second and third level; caches for instructions alone are left out.
/// cpuN/cache/indexM: Documentation/ABI/testing/sysfs-devices-system-cpu.
pub(super) fn domains(tree: &mut Tree, online: &Cpus) -> [Vec<CacheDomain>; 3] {
    let mut levels: [BTreeMap<usize, Cache>; 3] = Default::default();
    let mut without = Cpus::new();
    for &cpu in online {
        let indexes = tree.numbered(&format!("{CPU}/cpu{cpu}/cache"), "index");
        if indexes.is_empty() {
            without.insert(cpu);
        }
        for folder in indexes.into_iter().map(|index| format!("cache/index{index}")) {
            let Some(level) = level(tree, cpu, &folder) else { continue };
            let cache = Cache::read(tree, cpu, &folder, online);
            levels[level].entry(cpu).or_insert(cache);
        }
    }
    tree.note_of(&without, TopologyProblem::NoCaches);
    let mut level = 0;
    levels.map(|caches| {
        level += 1;
        of_level(tree, level, caches, online)
    })
}

/// 0 for the first level; None for instructions, and for levels that we have no use for.
fn level(tree: &mut Tree, cpu: usize, folder: &str) -> Option<usize> {
    let is_of_instructions =
        tree.of_cpu(cpu, &format!("{folder}/type"), |text| Some(text.trim() == "Instruction"));
    if is_of_instructions == Some(true) {
        return None;
    }
    let level = tree.of_cpu(cpu, &format!("{folder}/level"), |text| integer(text).filter(|level| *level > 0));
    if level.is_none() {
        tree.note_of(&Cpus::from([cpu]), TopologyProblem::NoCacheLevel(folder.to_owned()));
    }
    level.filter(|level| *level <= 3).map(|level| level as usize - 1)
}

impl Cache {
    fn read(tree: &mut Tree, cpu: usize, folder: &str, online: &Cpus) -> Self {
        let files = ["map", "list"].map(|form| format!("{folder}/shared_cpu_{form}"));
        let files = [files[0].as_str(), files[1].as_str()];
        let sharing = groups::set(tree, cpu, files, online);
        let id = known(tree.of_cpu(cpu, &format!("{folder}/id"), integer));
        Self { sharing, id, size_bytes: size_bytes(tree, cpu, folder) }
    }
}

/// Kernels write "32K"; without it, the geometry tells as much.
fn size_bytes(tree: &mut Tree, cpu: usize, folder: &str) -> Option<u64> {
    let told = tree.of_cpu(cpu, &format!("{folder}/size"), bytes);
    told.or_else(|| {
        let parts = ["number_of_sets", "ways_of_associativity", "coherency_line_size"];
        let parts = parts.map(|part| tree.of_cpu(cpu, &format!("{folder}/{part}"), integer));
        let [sets, ways, line] = parts.map(|part| part.and_then(|part| u64::try_from(part).ok()));
        sets?.checked_mul(ways?)?.checked_mul(line?).filter(|&bytes| bytes > 0)
    })
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

fn of_level(
    tree: &mut Tree,
    level: usize,
    caches: BTreeMap<usize, Cache>,
    online: &Cpus,
) -> Vec<CacheDomain> {
    let (claims, untold) = claims(&caches);
    tree.note_of(&untold, TopologyProblem::NoCacheSharing(level));
    let domains = groups::agreed(tree, &TopologyProblem::NotOfTheCache(level), &claims);
    let without: Cpus =
        online.iter().filter(|cpu| !domains.iter().any(|cpus| cpus.contains(cpu))).copied().collect();
    if !domains.is_empty() {
        tree.note_of(&without, TopologyProblem::NoCache(level));
    }
    domains.into_iter().map(|cpus| domain(tree, level, cpus, &caches)).collect()
}

/// A CPU without a list of sharing CPUs shares its cache with those that report the same cache id.
fn claims(caches: &BTreeMap<usize, Cache>) -> (Claims, Cpus) {
    let of_id = |id: i64| caches.iter().filter(move |(_, cache)| cache.id == Some(id)).map(|(&cpu, _)| cpu);
    let claim = |cache: &Cache| cache.sharing.clone().or_else(|| Some(of_id(cache.id?).collect()));
    let found: Claims = caches.iter().filter_map(|(&cpu, cache)| Some((cpu, claim(cache)?))).collect();
    let untold = caches.keys().filter(|cpu| !found.contains_key(cpu)).copied().collect();
    (found, untold)
}

fn domain(tree: &mut Tree, level: usize, cpus: Cpus, caches: &BTreeMap<usize, Cache>) -> CacheDomain {
    let sizes: std::collections::BTreeSet<u64> =
        cpus.iter().filter_map(|cpu| caches.get(cpu)?.size_bytes).collect();
    match sizes.len() {
        0 => tree.note_of(&cpus, TopologyProblem::NoCacheSize(level)),
        1 => {}
        _ => tree.note_of(&cpus, TopologyProblem::TwoCacheSizes(level)),
    }
    CacheDomain { size_bytes: sizes.first().copied(), logical_processors: cpus.into_iter().collect() }
}
