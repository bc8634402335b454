//! What a worker thread asks of the scheduler, and what it was granted.

use crate::sys::sched;

/// What a worker thread asks for. The default asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolicy {
    /// Niceness from -20 (served first) to 19; below the present one takes a privilege.
    pub nice: Option<i32>,
    /// The CPUs it may run on.
    pub cpus: Option<Vec<usize>>,
}

/// What a worker thread runs with: read back from the system, not repeated from the wish.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliedPolicy {
    /// Its niceness.
    pub nice: i32,
    /// The CPUs it may run on.
    pub cpus: Vec<usize>,
    /// What was refused, and why.
    pub notes: Vec<String>,
}

impl ThreadPolicy {
    /// Applies the policy to the calling thread, as far as the system grants it.
    pub fn apply(&self) -> AppliedPolicy {
        let nice = self.nice.map(|nice| (format!("nice {nice}"), sched::set_nice(nice)));
        let cpus = self.cpus.as_ref().map(|cpus| (format!("cpus {cpus:?}"), sched::set_cpus(cpus)));
        let refused = |(wish, answer): (String, rustix::io::Result<()>)| {
            answer.err().map(|errno| format!("{wish} was refused: {errno}"))
        };
        AppliedPolicy {
            nice: sched::nice().unwrap_or(0),
            cpus: sched::cpus().unwrap_or_default(),
            notes: [nice, cpus].into_iter().flatten().filter_map(refused).collect(),
        }
    }
}
