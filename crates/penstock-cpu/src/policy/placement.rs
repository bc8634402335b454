//! Where a thread may run.

use std::process;
use std::sync::{Arc, Mutex};

use crate::sched;
use crate::topology::{Cpus, Topology, as_list};

/// The owner of the L3 cache that a thread is to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Near {
    /// The thread with this id (gettid(2)), of any process. A process's id is that of its first thread.
    Thread(u32),
    /// The CPU with this number.
    Cpu(usize),
}

impl Near {
    fn name(self) -> String {
        match self {
            Self::Thread(id) => format!("near thread {id}"),
            Self::Cpu(cpu) => format!("near CPU {cpu}"),
        }
    }

    /// The CPU to be near to.
    fn cpu(self) -> Result<usize, String> {
        match self {
            Self::Cpu(cpu) => Ok(cpu),
            Self::Thread(id) => cpu_of(i32::try_from(id).unwrap_or(i32::MAX)),
        }
    }
}

pub(super) fn apply(cpus: Option<&[usize]>, near: Option<Near>, notes: &mut Vec<String>) {
    let wish = near.and_then(|near| {
        cpus_near(near, cpus, notes)
            .map_err(|why| notes.push(format!("{} was refused: {why}", near.name())))
            .ok()
    });
    if let Some(cpus) = wish.as_deref().or(cpus) {
        set_cpus(cpus, notes);
    }
}

/// Restricts the calling thread to those of these CPUs that the system grants.
pub(super) fn set_cpus(cpus: &[usize], notes: &mut Vec<String>) {
    let possible: Vec<usize> = cpus.iter().copied().filter(|&cpu| cpu < sched::CPUS_MAX).collect();
    let answer = sched::set_cpus(possible.iter().copied());
    let granted = sched::cpus().unwrap_or_default();
    let missing: Cpus = match answer {
        Ok(()) => cpus.iter().copied().filter(|cpu| !granted.contains(cpu)).collect(),
        Err(_) => cpus.iter().copied().collect(),
    };
    if !missing.is_empty() {
        // For a part of them the kernel has no error: it drops them.
        let why =
            answer.err().map_or_else(|| "they are not available here".into(), |errno| errno.to_string());
        let limit = as_list(&most_cpus(if answer.is_ok() { &possible } else { &granted }));
        notes.push(format!("CPUs {} were refused: {why}: the system allows {limit}", as_list(&missing)));
    }
}

/// All CPUs that the system allows the calling thread: those that are there, and in the control group's cpuset. Leaves
/// the thread on `stay`.
fn most_cpus(stay: &[usize]) -> Cpus {
    // Tried: the cpuset's files may be out of sight in a container. On this thread, because only the caller can start
    // another one safely beside a fork.
    let most = sched::set_cpus(0..sched::CPUS_MAX).and_then(|()| sched::cpus()).unwrap_or_default();
    if most != stay {
        let _ = sched::set_cpus(stay.iter().copied()); // it has run there
    }
    most.into_iter().collect()
}

/// Those of the CPUs that share the L3 cache of what the thread is to be near to; why not, if there are none.
fn cpus_near(near: Near, cpus: Option<&[usize]>, notes: &mut Vec<String>) -> Result<Vec<usize>, String> {
    let domain = domain_of(near.cpu()?, near, notes)?;
    let (base, name) = match cpus {
        Some(cpus) => (cpus.iter().copied().collect(), "asked for"),
        None => (allowed(), "allowed"),
    };
    let both: Vec<usize> = domain.intersection(&base).copied().collect();
    if both.is_empty() {
        return Err(format!(
            "CPUs {} share its cache, but only {} are {name}",
            as_list(&domain),
            as_list(&base)
        ));
    }
    Ok(both)
}

/// The CPUs that this thread or the process's first thread may run on. So a pinned thread can be moved, but not beyond
/// what the process was started with, as by taskset(1).
fn allowed() -> Cpus {
    let first =
        i32::try_from(process::id()).map_or_else(|_| Vec::new(), |id| sched::cpus_of(id).unwrap_or_default());
    sched::cpus().unwrap_or_default().into_iter().chain(first).collect()
}

fn cpu_of(thread: i32) -> Result<usize, String> {
    let allowed = sched::cpus_of(thread).map_err(|errno| errno.to_string())?;
    // A sleeping thread whose affinity was changed may last have run on a CPU that it may no longer use.
    let last = sched::last_cpu_of(thread).filter(|cpu| allowed.contains(cpu));
    last.or_else(|| allowed.first().copied()).ok_or_else(|| "nothing tells where it runs".into())
}

fn domain_of(cpu: usize, near: Near, notes: &mut Vec<String>) -> Result<Cpus, String> {
    let topology = topology_with(cpu);
    if let Some(domain) = topology.l3_domain_of(cpu) {
        return Ok(domain.logical_processors.iter().copied().collect());
    }
    let package = topology.package_of(cpu).ok_or_else(|| format!("CPU {cpu} is not online"))?;
    notes.push(format!("{}: no L3 cache of CPU {cpu} is known, its package was taken for it", near.name()));
    Ok(package.logical_processors.iter().copied().collect())
}

/// This machine's topology as it was when first asked for, or since the CPU came online. To read it takes up to 0.5 ms for each
/// CPU (measured 2026-11-21, 2-core x86-64 VM), and a worker applies its policy whenever it starts.
fn topology_with(cpu: usize) -> Arc<Topology> {
    static KNOWN: Mutex<Option<Arc<Topology>>> = Mutex::new(None);
    // Never waits: a fork may have left the lock taken.
    let known = KNOWN.try_lock().ok().and_then(|known| known.clone());
    if let Some(known) = known.filter(|known| known.package_of(cpu).is_some()) {
        return known;
    }
    let topology = Arc::new(Topology::detect());
    if let Ok(mut known) = KNOWN.try_lock() {
        *known = Some(Arc::clone(&topology));
    }
    topology
}
