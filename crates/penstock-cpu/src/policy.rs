//! What a thread asks of the scheduler, and what it was granted.
//!
//! Nothing here fails: what the system refuses is noted in the answer, with the reason and the limit that stands in the way.

mod level;
mod placement;

pub use level::{Priority, SchedulingClass};
pub use placement::Near;

use std::thread;

use crate::sched;

/// What a thread asks for. The default asks for nothing, and all that is not asked for stays as it is.
///
/// A thread starts with the policy of the thread that started it, and so does a process.
///
/// ```
/// use penstock_cpu::{Priority, ThreadPolicy};
/// let mut policy = ThreadPolicy::default();
/// policy.priority = Some(Priority::BelowNormal);
/// let applied = std::thread::spawn(move || policy.apply()).join().unwrap();
/// println!("niceness {}, on CPUs {:?}, refused: {:?}", applied.nice, applied.cpus, applied.notes);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadPolicy {
    /// How important it is.
    pub priority: Option<Priority>,
    /// Niceness from -20 (served first) to 19, instead of the level's; below the present one takes a privilege.
    pub nice: Option<i32>,
    /// The CPUs that it may run on.
    pub cpus: Option<Vec<usize>>,
    /// Whose L3 cache it is to share. With `cpus` as well, of those the CPUs that do.
    ///
    /// A thread is taken to be where it runs when the policy is applied, or ran last; one that may run elsewhere may leave. To
    /// keep two together, give both the same `near`, or pin the other. Where no L3 cache is known, the package counts. Only
    /// CPUs are taken that the thread or the first thread of its process may run on.
    pub near: Option<Near>,
}

/// What a thread runs with: read back from the system, not repeated from the wish.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppliedPolicy {
    /// The level that class and niceness make; none if they are no level's.
    pub priority: Option<Priority>,
    /// Its scheduling class.
    pub scheduling_class: SchedulingClass,
    /// Its niceness. Only the classes [`Other`](SchedulingClass::Other) and [`Batch`](SchedulingClass::Batch) heed it.
    pub nice: i32,
    /// The CPUs it may run on.
    pub cpus: Vec<usize>,
    /// What was refused, why, and by which limit; for a thread that is to come back, also what cannot be undone.
    pub notes: Vec<String>,
}

impl ThreadPolicy {
    /// Applies the policy to the calling thread, as far as the system grants it.
    pub fn apply(&self) -> AppliedPolicy {
        let mut notes = Vec::new();
        level::apply(self.priority, self.nice, &mut notes);
        placement::apply(self.cpus.as_deref(), self.near, &mut notes);
        AppliedPolicy { notes, ..AppliedPolicy::of_this_thread() }
    }

    /// The same for a thread that may want to go back: the notes also say what could not be [restored](AppliedPolicy::restore),
    /// for a niceness once raised takes a privilege to lower. It is tried on a thread of its own.
    pub fn apply_and_try_undo(&self) -> AppliedPolicy {
        let before = AppliedPolicy::of_this_thread();
        let mut applied = self.apply();
        applied.notes.extend(refusals(&before, &applied));
        applied
    }
}

impl Priority {
    /// What each level comes to here, tried on threads of their own that start as the calling one is.
    ///
    /// # Errors
    ///
    /// No thread could be had.
    pub fn try_all() -> std::io::Result<Vec<(Self, AppliedPolicy)>> {
        let try_one = |level: Self| {
            let policy = ThreadPolicy { priority: Some(level), ..ThreadPolicy::default() };
            let tried = thread::Builder::new().spawn(move || policy.apply())?.join();
            Ok((level, tried.expect("a policy is applied without a panic")))
        };
        Self::ALL.into_iter().map(try_one).collect()
    }
}

impl AppliedPolicy {
    /// What the calling thread runs with.
    pub fn of_this_thread() -> Self {
        let scheduling_class = SchedulingClass::of_this_thread();
        let nice = sched::nice().unwrap_or(0);
        Self {
            priority: Priority::of(scheduling_class, nice),
            scheduling_class,
            nice,
            cpus: sched::cpus().unwrap_or_default(),
            notes: Vec::new(),
        }
    }

    /// Gives all this to the calling thread, as far as the system grants it.
    pub fn restore(&self) -> Self {
        let now = Self::of_this_thread();
        let mut notes = Vec::new();
        if self.nice != now.nice {
            level::set_nice(self.nice, &format!("nice {}", self.nice), &mut notes);
        }
        level::set_class(self.scheduling_class, &mut notes);
        if self.cpus != now.cpus {
            placement::set_cpus(&self.cpus, &mut notes);
        }
        Self { notes, ..Self::of_this_thread() }
    }
}

/// What the calling thread, which has `applied` now, could not have again of `before`. It is tried, not predicted: whether a
/// capability counts depends on the user namespace, and a sandbox may refuse what the limits allow.
fn refusals(before: &AppliedPolicy, applied: &AppliedPolicy) -> Vec<String> {
    if (applied.nice, applied.scheduling_class, &applied.cpus)
        == (before.nice, before.scheduling_class, &before.cpus)
    {
        return Vec::new();
    }
    let before = before.clone();
    // A thread starts with the policy of the one that started it.
    let tried = thread::Builder::new().spawn(move || before.restore().notes).map(thread::JoinHandle::join);
    let notes = tried.ok().and_then(Result::ok).unwrap_or_default();
    notes.into_iter().map(|note| format!("it cannot be undone: {note}")).collect()
}

/// Has the calling thread wait its turn when it is woken: threads of `SCHED_BATCH` do not preempt (sched(7)). A class other than the
/// default one, which the thread has inherited, stays.
pub fn yield_when_woken() {
    if sched::scheduler() == Ok((libc::SCHED_OTHER, 0)) {
        let _ = sched::set_scheduler(libc::SCHED_BATCH, 0); // it only helps
    }
}
