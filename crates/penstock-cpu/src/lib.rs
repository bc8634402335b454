#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! | to do | use |
//! | --- | --- |
//! | know which CPUs share a core, a cache, a package or a memory node | [`Topology`] |
//! | give a thread a priority and CPUs, and see what was granted | [`ThreadPolicy`], [`AppliedPolicy`] |

#[cfg(not(target_os = "linux"))]
compile_error!("penstock-cpu supports Linux only: it reads /proc and /sys and sets Linux scheduling classes");

mod policy;
mod sched;
mod topology;

pub use policy::{
    AppliedPolicy, ClassLimit, Near, NotNear, PlacementNote, PolicyNote, Priority, PriorityNote, RunOnThread,
    SchedulingClass, ThreadPolicy, yield_when_woken,
};
pub use sched::CPUS_MAX;
pub use topology::{
    CacheDomain, Core, CoreKind, FileFault, KindSource, LogicalProcessor, NumaNode, Package, Topology,
    TopologyNote, TopologyProblem,
};
