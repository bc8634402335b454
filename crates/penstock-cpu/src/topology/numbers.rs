//! Sets of CPU numbers.

use std::collections::BTreeSet;

/// The numbers of CPUs are below this. No Linux can be built for more: `NR_CPUS_RANGE_END` in arch/x86/Kconfig, the highest of all
/// architectures.
pub const CPUS_MAX: usize = 8192;

pub(crate) type Cpus = BTreeSet<usize>;

/// Writes "0-3,8".
pub(crate) fn as_list(cpus: &Cpus) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let written = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(written).collect::<Vec<_>>().join(",")
}
