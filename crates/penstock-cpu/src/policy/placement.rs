//! Where a thread may run.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::process;
use std::sync::{Arc, Mutex};

use crate::sys;
use crate::topology::{CPUS_MAX, Cpus, Topology, as_list};

/// The owner of the L3 cache that a thread is to share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Near {
    /// The thread with this id (gettid(2)), of any process. A process's id is that of its first thread.
    Thread(u32),
    /// The CPU with this number.
    Cpu(usize),
}

/// What a thread did not get of a placement, and why. As text, one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementNote {
    /// The system refused CPUs.
    Cpus {
        /// Those that it refused.
        cpus: BTreeSet<usize>,
        /// All that it allows the thread.
        allowed: BTreeSet<usize>,
        /// Its error number; none if they are not available here.
        os_error: Option<i32>,
    },
    /// There is nowhere to be near.
    Near {
        /// What was asked for.
        near: Near,
        /// Why.
        why: NotNear,
    },
    /// No L3 cache of the CPU is known: its package was taken for it.
    PackageTaken {
        /// What was asked for.
        near: Near,
        /// The CPU.
        cpu: usize,
    },
}

/// Why a thread cannot be near another.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotNear {
    /// The system does not tell where the other runs.
    Refused {
        /// The system's error number.
        os_error: i32,
    },
    /// Nothing tells where the other runs.
    Unknown,
    /// The CPU is not online.
    Offline(usize),
    /// None of the CPUs that share the cache may be used.
    Elsewhere {
        /// Those that share the cache.
        sharing: BTreeSet<usize>,
        /// Those that may be used.
        usable: BTreeSet<usize>,
        /// Whether the policy has them. Otherwise they are those that the system allows.
        is_asked_for: bool,
    },
}

impl fmt::Display for PlacementNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus { cpus, allowed, os_error } => {
                write!(f, "CPUs {} were refused: ", as_list(cpus))?;
                match os_error {
                    Some(number) => io::Error::from_raw_os_error(*number).fmt(f)?,
                    None => f.write_str("not available here")?,
                }
                write!(f, ". The system allows {}", as_list(allowed))
            }
            Self::Near { near, why } => write!(f, "{near} was refused: {why}"),
            Self::PackageTaken { near, cpu } => {
                write!(f, "{near} uses the package of CPU {cpu}, whose L3 cache is unknown")
            }
        }
    }
}

impl fmt::Display for NotNear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { os_error } => io::Error::from_raw_os_error(*os_error).fmt(f),
            Self::Unknown => f.write_str("the CPU that it runs on is unknown"),
            Self::Offline(cpu) => write!(f, "CPU {cpu} is not online"),
            Self::Elsewhere { sharing, usable, is_asked_for } => {
                let (sharing, usable) = (as_list(sharing), as_list(usable));
                let name = if *is_asked_for { "asked for" } else { "allowed" };
                write!(f, "CPUs {sharing} share the cache, but only {usable} are {name}")
            }
        }
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(id) => write!(f, "near thread {id}"),
            Self::Cpu(cpu) => write!(f, "near CPU {cpu}"),
        }
    }
}

impl Near {
    /// The CPU to be near to.
    fn cpu(self) -> Result<usize, NotNear> {
        match self {
            Self::Cpu(cpu) => Ok(cpu),
            Self::Thread(id) => cpu_of(id),
        }
    }
}

pub(super) fn apply(cpus: Option<&[usize]>, near: Option<Near>, notes: &mut Vec<PlacementNote>) {
    let wish = near.and_then(|near| {
        cpus_near(near, cpus, notes).map_err(|why| notes.push(PlacementNote::Near { near, why })).ok()
    });
    if let Some(cpus) = wish.as_deref().or(cpus) {
        set_cpus(cpus, notes);
    }
}

/// Restricts the calling thread to those of these CPUs that the system grants.
pub(super) fn set_cpus(cpus: &[usize], notes: &mut Vec<PlacementNote>) {
    let possible: Vec<usize> = cpus.iter().copied().filter(|&cpu| cpu < CPUS_MAX).collect();
    let answer = sys::set_cpus(possible.iter().copied());
    let granted = sys::cpus().unwrap_or_default();
    let missing: Cpus = match answer {
        Ok(()) => cpus.iter().copied().filter(|cpu| !granted.contains(cpu)).collect(),
        Err(_) => cpus.iter().copied().collect(),
    };
    if !missing.is_empty() {
        // For a part of them the kernel has no error: it drops them.
        let os_error = answer.as_ref().err().and_then(io::Error::raw_os_error);
        let allowed = most_cpus(if answer.is_ok() { &possible } else { &granted });
        notes.push(PlacementNote::Cpus { cpus: missing, allowed, os_error });
    }
}

/// All CPUs that the system allows the calling thread: those that are there, and in the control group's cpuset. Leaves
/// the thread on `stay`.
fn most_cpus(stay: &[usize]) -> Cpus {
    // Tried: the cpuset's files may be out of sight in a container. On this thread, because only the caller can start
    // another one safely beside a fork.
    let most = sys::set_cpus(0..CPUS_MAX).and_then(|()| sys::cpus()).unwrap_or_default();
    if most != stay {
        let _ = sys::set_cpus(stay.iter().copied()); // it has run there
    }
    most.into_iter().collect()
}

/// The allowed CPUs that share an L3 cache with `near`, or the reason there are none.
fn cpus_near(
    near: Near,
    cpus: Option<&[usize]>,
    notes: &mut Vec<PlacementNote>,
) -> Result<Vec<usize>, NotNear> {
    let sharing = domain_of(near.cpu()?, near, notes)?;
    let usable = cpus.map_or_else(allowed, |cpus| cpus.iter().copied().collect());
    let both: Vec<usize> = sharing.intersection(&usable).copied().collect();
    if both.is_empty() {
        return Err(NotNear::Elsewhere { sharing, usable, is_asked_for: cpus.is_some() });
    }
    Ok(both)
}

/// The CPUs that this thread or the process's first thread may run on. So a pinned thread can be moved, but not beyond
/// what the process was started with, as by taskset(1).
fn allowed() -> Cpus {
    let first = sys::cpus_of(process::id()).unwrap_or_default();
    sys::cpus().unwrap_or_default().into_iter().chain(first).collect()
}

fn cpu_of(thread: u32) -> Result<usize, NotNear> {
    let refused = |error: io::Error| NotNear::Refused { os_error: error.raw_os_error().unwrap_or_default() };
    let allowed = sys::cpus_of(thread).map_err(refused)?;
    // A sleeping thread whose affinity was changed may last have run on a CPU that it may no longer use.
    let last = sys::last_cpu_of(thread).filter(|cpu| allowed.contains(cpu));
    last.or_else(|| allowed.first().copied()).ok_or(NotNear::Unknown)
}

fn domain_of(cpu: usize, near: Near, notes: &mut Vec<PlacementNote>) -> Result<Cpus, NotNear> {
    let topology = topology_with(cpu);
    if let Some(domain) = topology.l3_domain_of(cpu) {
        return Ok(domain.logical_processors.iter().copied().collect());
    }
    let package = topology.package_of(cpu).ok_or(NotNear::Offline(cpu))?;
    notes.push(PlacementNote::PackageTaken { near, cpu });
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
