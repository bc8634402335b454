//! The machine's CPUs, and what a thread may ask of the scheduler.
//!
//! | to do | use |
//! | --- | --- |
//! | know which CPUs share a core, a cache, a package or a memory node | [`Topology`] |
//! | give a thread a priority and CPUs, and see what was granted | [`ThreadPolicy`], [`AppliedPolicy`] |
//!
//! ```
//! let topology = penstock_cpu::Topology::detect();
//! println!("{} cores", topology.cores.len());
//! ```

mod policy;
mod sched;
mod topology;

pub use policy::{AppliedPolicy, Near, Priority, SchedulingClass, ThreadPolicy, yield_when_woken};
pub use topology::{CacheDomain, Core, CoreKind, KindSource, LogicalProcessor, NumaNode, Package, Topology};
