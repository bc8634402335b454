//! The threads that compute for everybody in the process: few, because the host's own threads and those of its libraries compute
//! too.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use penstock_core::Error;
use penstock_core::engine::{Fault, PerProcess, Signals, guarded, spawn_named};

use crate::parts::{Doer, Group, Parts};

/// A part of a work.
pub(crate) type Part = Box<dyn FnOnce() + Send>;

/// Theirs: they stay, where the threads of streams end with them.
const NAME: &str = "penstock-pixels";

/// Chosen: more do not help where memory is the limit, and each is a thread for the rest of the process.
const MOST_WORKERS: usize = 16;

/// The crew of this process. A thread starts when it is first of use, and stays.
struct Crew {
    parts: Parts<Part>,
    workers: AtomicUsize,
}

static CREW: PerProcess<Crew> =
    PerProcess::new(|| Crew { parts: Parts::new(), workers: AtomicUsize::new(0) });

impl Crew {
    /// Starts threads until there are so many. If the system refuses one, whoever waits for a work does its parts.
    fn grow(&'static self, wanted: usize) {
        // Relaxed, here and below: nothing is published with the count.
        while self.workers.load(Ordering::Relaxed) < wanted {
            let before = self.workers.fetch_add(1, Ordering::Relaxed);
            if before >= wanted || spawn_named(NAME, Signals::Blocked, || self.work()).is_err() {
                self.workers.fetch_sub(1, Ordering::Relaxed);
                return;
            }
        }
    }

    fn work(&self) {
        loop {
            let (number, part) = self.parts.take();
            let has_failed = guarded(part).is_err();
            self.parts.done(number, Doer::Worker, has_failed);
        }
    }
}

/// Works that share a limit of workers.
#[derive(Debug)]
pub(crate) struct WorkGroup(Group);

impl WorkGroup {
    /// Creates a group for at most so many workers. With 0, whoever waits for a work does it, and so on a process that may use a
    /// single CPU, where more threads only take turns.
    pub(crate) fn new(most_workers: usize) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let has_one_cpu = thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let most_workers = if has_one_cpu { 0 } else { most_workers.min(MOST_WORKERS) };
        Self(Group { number: NUMBER.fetch_add(1, Ordering::Relaxed), most_workers })
    }

    /// How many workers may be at works of the group.
    pub(crate) fn most_workers(&self) -> usize {
        self.0.most_workers
    }

    /// Hands the parts to the crew.
    pub(crate) fn begin(&self, parts: Vec<Part>) -> Work {
        let crew = CREW.get();
        crew.grow(self.0.most_workers);
        Work(Some(crew.parts.put(self.0, parts)))
    }
}

/// A work that has begun. Its drop drops the parts that nobody has begun, and waits for the others.
///
/// It belongs into an [`Own`](penstock_core::engine::Own): the child of a fork has another crew.
#[derive(Debug)]
pub(crate) struct Work(
    /// None once it was waited for.
    Option<u64>,
);

impl Work {
    /// Does what no worker has begun, and waits for the rest.
    ///
    /// # Errors
    ///
    /// A part panicked.
    pub(crate) fn wait(mut self) -> Result<(), Error> {
        let parts = &CREW.get().parts;
        let number = self.0.take().expect("only this and the drop take it");
        while let Some(part) = parts.help(number) {
            let has_failed = guarded(part).is_err();
            parts.done(number, Doer::Helper, has_failed);
        }
        if parts.end(number) { Ok(()) } else { Err(Fault::Panicked.into()) }
    }

    /// Whether a wait would not wait.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_none_or(|number| CREW.get().parts.has_ended(number))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            CREW.get().parts.cancel(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn counting(count: usize, done: &Arc<AtomicU32>) -> Vec<Part> {
        let part = || {
            let done = Arc::clone(done);
            Box::new(move || _ = done.fetch_add(1, Ordering::Relaxed)) as Part
        };
        (0..count).map(|_| part()).collect()
    }

    #[test]
    fn all_parts_are_done_with_and_without_workers() {
        for most_workers in [0, 1, 2, 5] {
            let (group, done) = (WorkGroup::new(most_workers), Arc::default());
            let works: Vec<_> = (0..20).map(|_| group.begin(counting(7, &done))).collect();
            works.into_iter().for_each(|work| work.wait().unwrap());
            assert_eq!(Arc::try_unwrap(done).unwrap().into_inner(), 140, "and no part is kept");
        }
    }

    #[test]
    fn parts_of_a_dropped_work_are_gone() {
        for most_workers in [0, 2] {
            let (group, done) = (WorkGroup::new(most_workers), Arc::default());
            for _ in 0..50 {
                drop(group.begin(counting(3, &done)));
                assert_eq!(Arc::strong_count(&done), 1);
            }
        }
    }

    #[test]
    fn a_panic_is_a_failure_of_the_work_and_the_crew_goes_on() {
        for most_workers in [0, 1] {
            let group = WorkGroup::new(most_workers);
            let failing = group.begin(vec![Box::new(|| panic!("of a test")), Box::new(|| ())]);
            assert_eq!(failing.wait(), Err(Error::from(Fault::Panicked)));
            let done = Arc::default();
            group.begin(counting(1, &done)).wait().unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 1);
        }
    }
}
