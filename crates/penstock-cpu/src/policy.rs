//! What a thread asks of the scheduler, and what it was granted.
//!
//! Nothing here fails: the result notes what the system refused, with the reason and the limit.

mod level;
mod placement;

pub use level::{ClassLimit, PriorityNote};
pub use placement::{Near, NotNear, PlacementNote};

use std::fmt;
use std::io;

use crate::levels::{Priority, SchedulingClass};
use crate::sys;

/// The priority and the CPUs to ask for. Fields that are `None`, as by default, leave the thread as it is.
///
/// A new thread or process inherits the policy of the thread that started it.
///
/// ```
/// use penstock_cpu::{Priority, ThreadPolicy};
/// let policy = ThreadPolicy::default().priority(Priority::BelowNormal);
/// let applied = std::thread::spawn(move || policy.apply()).join().unwrap();
/// println!("niceness {}, on CPUs {:?}, refused: {:?}", applied.nice, applied.cpus, applied.notes);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadPolicy {
    /// The priority level.
    pub priority: Option<Priority>,
    /// Niceness from -20 (most CPU time) to 19, in place of the level's. Lowering it needs a privilege. On Windows, only that of a level is granted.
    pub nice: Option<i32>,
    /// The CPUs that the thread may run on.
    pub cpus: Option<Vec<usize>>,
    /// The L3 cache to share. With `cpus`, only those of them that share it are used.
    ///
    /// For a thread, the cache is that of the CPU it runs on, or ran on last, when the policy is applied; the thread may move
    /// later. Windows does not tell that CPU: there it is the one that the system prefers for the thread. To keep two threads together, give both the same `near`, or pin the other. Without a known L3 cache, the package
    /// is used. Only CPUs that the thread or the first thread of its process may run on are used.
    pub near: Option<Near>,
}

/// The policy that a thread runs with, as read back from the system.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppliedPolicy {
    /// The level that matches class and niceness, if there is one.
    pub priority: Option<Priority>,
    /// The scheduling class.
    pub scheduling_class: SchedulingClass,
    /// The niceness. It matters only for the classes [`Other`](SchedulingClass::Other) and [`Batch`](SchedulingClass::Batch).
    pub nice: i32,
    /// The CPUs that the thread may run on.
    pub cpus: Vec<usize>,
    /// What was refused, why, and by which limit. After [`ThreadPolicy::apply_and_try_undo`], also what cannot be undone.
    pub notes: Vec<PolicyNote>,
}

/// Something that a thread did not get of a policy, and why. As text, one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyNote {
    /// About the priority.
    Priority(PriorityNote),
    /// About the CPUs.
    Placement(PlacementNote),
    /// What [`restore`](AppliedPolicy::restore) would not get.
    CannotUndo(Box<Self>),
}

impl fmt::Display for PolicyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority(note) => note.fmt(f),
            Self::Placement(note) => note.fmt(f),
            Self::CannotUndo(note) => write!(f, "this can't be undone: {note}"),
        }
    }
}

/// Starts a thread, runs the work on it, and returns the result.
///
/// The caller of this crate starts its threads, because a program that forks may have to do so under a lock.
pub type RunOnThread = fn(Box<dyn FnOnce() -> AppliedPolicy + Send>) -> io::Result<AppliedPolicy>;

impl ThreadPolicy {
    /// Asks for a priority level.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// Asks for a niceness.
    #[must_use]
    pub fn nice(self, nice: i32) -> Self {
        Self { nice: Some(nice), ..self }
    }

    /// Asks for CPUs.
    #[must_use]
    pub fn cpus(self, cpus: Vec<usize>) -> Self {
        Self { cpus: Some(cpus), ..self }
    }

    /// Asks for CPUs that share an L3 cache.
    #[must_use]
    pub fn near(self, near: Near) -> Self {
        Self { near: Some(near), ..self }
    }

    /// Applies the policy to the calling thread, as far as the system grants it.
    pub fn apply(&self) -> AppliedPolicy {
        let (mut of_priority, mut of_placement) = (Vec::new(), Vec::new());
        level::apply(self.priority, self.nice, &mut of_priority);
        placement::apply(self.cpus.as_deref(), self.near, &mut of_placement);
        AppliedPolicy { notes: joined(of_priority, of_placement), ..AppliedPolicy::of_this_thread() }
    }

    /// Applies the policy as [`apply`](Self::apply) does, and tests on another thread whether it can be undone.
    ///
    /// The notes also list what [`restore`](AppliedPolicy::restore) could not undo: lowering the niceness again needs a
    /// privilege. If the other thread cannot be started, they do not.
    pub fn apply_and_try_undo(&self, run: RunOnThread) -> AppliedPolicy {
        let before = AppliedPolicy::of_this_thread();
        let mut applied = self.apply();
        applied.notes.extend(refusals(&before, &applied, run));
        applied
    }
}

impl Priority {
    /// Applies each level on a new thread that inherits the caller's policy, and returns what was granted.
    ///
    /// # Errors
    ///
    /// Those of `run`: a thread could not be started.
    pub fn try_all(run: RunOnThread) -> io::Result<Vec<(Self, AppliedPolicy)>> {
        let try_one = |level: Self| {
            let policy = ThreadPolicy::default().priority(level);
            Ok((level, run(Box::new(move || policy.apply()))?))
        };
        Self::ALL.into_iter().map(try_one).collect()
    }
}

impl AppliedPolicy {
    /// The policy that the calling thread runs with.
    pub fn of_this_thread() -> Self {
        let scheduling_class = sys::class();
        let nice = sys::nice().unwrap_or(0);
        Self {
            priority: Priority::of(scheduling_class, nice),
            scheduling_class,
            nice,
            cpus: sys::cpus().unwrap_or_default(),
            notes: Vec::new(),
        }
    }

    /// Applies this policy to the calling thread, as far as the system grants it.
    pub fn restore(&self) -> Self {
        let now = Self::of_this_thread();
        let (mut of_priority, mut of_placement) = (Vec::new(), Vec::new());
        if self.nice != now.nice {
            level::set_nice(self.nice, None, &mut of_priority);
        }
        level::set_class(self.scheduling_class, &mut of_priority);
        if self.cpus != now.cpus {
            placement::set_cpus(&self.cpus, &mut of_placement);
        }
        Self { notes: joined(of_priority, of_placement), ..Self::of_this_thread() }
    }
}

fn joined(of_priority: Vec<PriorityNote>, of_placement: Vec<PlacementNote>) -> Vec<PolicyNote> {
    let of_placement = of_placement.into_iter().map(PolicyNote::Placement);
    of_priority.into_iter().map(PolicyNote::Priority).chain(of_placement).collect()
}

/// Lists what `restore` could not bring back. Tries it on another thread: whether a capability counts depends on the user
/// namespace, and a sandbox may refuse what the limits allow.
fn refusals(before: &AppliedPolicy, applied: &AppliedPolicy, run: RunOnThread) -> Vec<PolicyNote> {
    if (applied.nice, applied.scheduling_class, &applied.cpus)
        == (before.nice, before.scheduling_class, &before.cpus)
    {
        return Vec::new();
    }
    let before = before.clone();
    // A thread starts with the policy of the one that started it.
    let notes = run(Box::new(move || before.restore())).map_or_else(|_| Vec::new(), |tried| tried.notes);
    notes.into_iter().map(|note| PolicyNote::CannotUndo(Box::new(note))).collect()
}

/// Makes the calling thread wait its turn when it is woken.
///
/// On Linux, it moves the thread from the default class to `SCHED_BATCH`, whose threads do not preempt. Any other class stays.
/// Windows has nothing like it, and the thread stays as it is.
///
/// # References
///
/// sched(7)
pub fn yield_when_woken() {
    sys::yield_when_woken();
}
