//! A CPU's number is that in its group, plus 64 for each group before: "Processor Groups" of the Windows documentation.

/// As many as a mask has bits.
pub(super) const GROUP_CPUS: usize = usize::BITS as usize;

/// The CPUs of a group's mask.
pub(super) fn cpus_of_mask(group: u16, mask: usize) -> impl Iterator<Item = usize> {
    let is_set = move |cpu: &usize| mask >> cpu & 1 == 1;
    (0..GROUP_CPUS).filter(is_set).map(move |cpu| usize::from(group) * GROUP_CPUS + cpu)
}
