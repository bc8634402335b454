//! The records of `GetLogicalProcessorInformationEx`.

use std::io::{Error, Result};
use std::mem::offset_of;
use std::ptr;

use windows_sys::Win32::Foundation::ERROR_INSUFFICIENT_BUFFER;
use windows_sys::Win32::System::SystemInformation::{
    CACHE_RELATIONSHIP, CacheInstruction, GROUP_AFFINITY, GetLogicalProcessorInformationEx,
    NUMA_NODE_RELATIONSHIP, PROCESSOR_RELATIONSHIP, RelationAll, RelationCache, RelationNumaNode,
    RelationNumaNodeEx, RelationProcessorCore, RelationProcessorPackage,
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX,
};

use super::masks::cpus_of_mask;
use crate::topology::Cpus;

/// What one record tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A higher class is a faster core.
    Core {
        efficiency_class: u8,
        cpus: Cpus,
    },
    Package(Cpus),
    Node {
        id: usize,
        cpus: Cpus,
    },
    /// Without those for instructions alone.
    Cache {
        level: u8,
        size_bytes: u64,
        cpus: Cpus,
    },
}

/// All records of this machine.
pub(super) fn read() -> Result<Vec<Record>> {
    let mut bytes = Vec::new();
    loop {
        let mut length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let buffer: *mut u8 = if bytes.is_empty() { ptr::null_mut() } else { bytes.as_mut_ptr() };
        // SAFETY: it writes at most `length` bytes, and its records need no alignment: they are copied out.
        let answer = unsafe { GetLogicalProcessorInformationEx(RelationAll, buffer.cast(), &raw mut length) };
        if answer != 0 {
            bytes.truncate(length as usize);
            return Ok(parsed(&bytes));
        }
        let error = Error::last_os_error();
        // More since it was asked how many: a CPU was plugged in.
        if error.raw_os_error() != Some(ERROR_INSUFFICIENT_BUFFER.cast_signed()) {
            return Err(error);
        }
        bytes.resize(length as usize, 0_u8);
    }
}

fn parsed(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((kind, body, rest)) = first(bytes) {
        records.extend(record(kind, body));
        bytes = rest;
    }
    records
}

/// The kind and the body of the first record, and the bytes behind it.
fn first(bytes: &[u8]) -> Option<(i32, &[u8], &[u8])> {
    type Header = SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX;
    let kind = i32::from_ne_bytes(field(bytes, offset_of!(Header, Relationship))?);
    let size = u32::from_ne_bytes(field(bytes, offset_of!(Header, Size))?) as usize;
    let (record, rest) = bytes.split_at_checked(size)?;
    Some((kind, record.get(offset_of!(Header, Anonymous)..)?, rest))
}

#[allow(non_upper_case_globals)]
fn record(kind: i32, body: &[u8]) -> Option<Record> {
    match kind {
        RelationProcessorCore => {
            type Core = PROCESSOR_RELATIONSHIP;
            let [efficiency_class] = field(body, offset_of!(Core, EfficiencyClass))?;
            Some(Record::Core {
                efficiency_class,
                cpus: cpus(body, offset_of!(Core, GroupCount), offset_of!(Core, GroupMask))?,
            })
        }
        RelationProcessorPackage => {
            type Package = PROCESSOR_RELATIONSHIP;
            cpus(body, offset_of!(Package, GroupCount), offset_of!(Package, GroupMask)).map(Record::Package)
        }
        RelationNumaNode | RelationNumaNodeEx => {
            type Node = NUMA_NODE_RELATIONSHIP;
            Some(Record::Node {
                id: u32::from_ne_bytes(field(body, offset_of!(Node, NodeNumber))?) as usize,
                cpus: cpus(body, offset_of!(Node, GroupCount), offset_of!(Node, Anonymous))?,
            })
        }
        RelationCache => {
            type Cache = CACHE_RELATIONSHIP;
            if i32::from_ne_bytes(field(body, offset_of!(Cache, Type))?) == CacheInstruction {
                return None;
            }
            let [level] = field(body, offset_of!(Cache, Level))?;
            Some(Record::Cache {
                level,
                size_bytes: u32::from_ne_bytes(field(body, offset_of!(Cache, CacheSize))?).into(),
                cpus: cpus(body, offset_of!(Cache, GroupCount), offset_of!(Cache, Anonymous))?,
            })
        }
        _ => None,
    }
}

/// The CPUs of a list of masks. Older systems have one, and 0 for their number.
fn cpus(body: &[u8], count_at: usize, masks_at: usize) -> Option<Cpus> {
    let count = u16::from_ne_bytes(field(body, count_at)?).max(1);
    let mask_at = |at: usize| masks_at + at * size_of::<GROUP_AFFINITY>();
    let mut found = Cpus::new();
    for at in (0..usize::from(count)).map(mask_at) {
        let mask = usize::from_ne_bytes(field(body, at + offset_of!(GROUP_AFFINITY, Mask))?);
        let group = u16::from_ne_bytes(field(body, at + offset_of!(GROUP_AFFINITY, Group))?);
        found.extend(cpus_of_mask(group, mask));
    }
    Some(found)
}

fn field<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_several_groups_are_read_and_what_is_cut_short_is_left_out() {
        let mask = |group: u8, bits: u8| [bits, 0, 0, 0, 0, 0, 0, 0, group, 0, 0, 0, 0, 0, 0, 0];
        let mut core = vec![0, 0, 0, 0, 64, 0, 0, 0, 1, 7];
        core.extend([0; 20]);
        core.extend([2, 0]);
        core.extend(mask(0, 0b11));
        core.extend(mask(1, 0b100));
        let expected = Record::Core { efficiency_class: 7, cpus: Cpus::from([0, 1, 66]) };
        let twice = [&core[..], &core[..core.len() - 1]].concat();
        assert_eq!(parsed(&twice), [expected]);
    }
}
