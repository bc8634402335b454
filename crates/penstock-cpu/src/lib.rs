#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! | to do | use |
//! | --- | --- |
//! | know which CPUs share a core, a cache, a package or a memory node | [`Topology`] |
//! | give a thread a priority and CPUs, and see what was granted | [`ThreadPolicy`], [`AppliedPolicy`] |

#[cfg(not(any(target_os = "linux", windows)))]
compile_error!("penstock-cpu supports Linux and Windows only");

mod levels;
mod policy;
mod sys;
mod topology;

pub use levels::{Priority, SchedulingClass};
pub use policy::{
    AppliedPolicy, ClassLimit, Near, NotNear, PlacementNote, PolicyNote, PriorityNote, RunOnThread,
    ThreadPolicy, yield_when_woken,
};
pub use topology::{
    CPUS_MAX, CacheDomain, Core, CoreKind, FileFault, KindSource, LogicalProcessor, NumaNode, Package,
    Topology, TopologyNote, TopologyProblem,
};
