//! Linux.

mod sched;
mod topology;

pub(crate) use sched::{
    class, cpus, cpus_of, last_cpu_of, nice, nice_limit, set_class, set_cpus, set_nice, yield_when_woken,
};
pub(crate) use topology::topology;
