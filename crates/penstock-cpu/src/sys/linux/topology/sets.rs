//! Sets of CPU numbers, in the two forms that the kernel prints them in.

// What names a CPU beyond is broken, and must not make us allocate for it.
use crate::topology::{CPUS_MAX, Cpus};

/// Reads "0-3,8", which may be empty. Blanks separate too: cpufreq's `related_cpus` has them.
pub(super) fn list(text: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    let mut named = 0;
    for part in text.split([',', ' ', '\t', '\n']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return None;
        }
        named += last - first + 1;
        if named > CPUS_MAX {
            return None; // it repeats itself: a file of a few MiB could for minutes
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Reads "00000000,0000ffff": groups of 32 bits, the highest first.
pub(super) fn mask(text: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    for (group, digits) in text.trim().rsplit(',').enumerate() {
        let is_hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let bits = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
        for cpu in (0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| group * 32 + bit) {
            if cpu >= CPUS_MAX {
                return None;
            }
            cpus.insert(cpu);
        }
    }
    Some(cpus)
}

/// Reads a CPU's number: digits alone, for `parse` would take "+1" as well.
pub(super) fn number(text: &str) -> Option<usize> {
    let number = text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())??;
    (number < CPUS_MAX).then_some(number)
}
