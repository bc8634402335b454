//! Work in parts, which the workers of a crew and whoever waits for it do. Apart from the other queues because a part is taken by
//! whoever comes first, and because what is waited for is the end of all parts of one work. Checked with loom.

use std::collections::BTreeMap;

use penstock_core::engine::Side::{Putters, Takers};
use penstock_core::engine::Wake::{All, Nobody, One};
use penstock_core::engine::{Monitor, Wake};

/// Works that share a limit of workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) number: u64,
    /// How many workers may be at their parts at the same time. Who waits for a work does not count.
    pub(crate) most_workers: usize,
}

/// The works that nobody has seen the end of.
pub(crate) struct Parts<P>(Monitor<State<P>>);

struct State<P> {
    /// In the order in which they came.
    works: BTreeMap<u64, Work<P>>,
    next_number: u64,
    /// How many workers are at parts of a group, of groups with at least one.
    workers: BTreeMap<u64, usize>,
}

struct Work<P> {
    group: Group,
    /// Parts that nobody has begun, the next one last.
    left: Vec<P>,
    /// Parts that somebody is at.
    running: usize,
    has_failed: bool,
}

/// Who has done a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doer {
    Worker,
    /// Who waits for the work.
    Helper,
}

impl<P> Work<P> {
    fn has_ended(&self) -> bool {
        self.left.is_empty() && self.running == 0
    }
}

impl<P> Parts<P> {
    pub(crate) fn new() -> Self {
        Self(Monitor::new(State { works: BTreeMap::new(), next_number: 0, workers: BTreeMap::new() }))
    }

    /// Adds a work, and returns its number. Whoever adds it also [ends](Self::end) or [cancels](Self::cancel) it.
    pub(crate) fn put(&self, group: Group, mut parts: Vec<P>) -> u64 {
        parts.reverse();
        let mut state = self.0.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.works.insert(number, Work { group, left: parts, running: 0, has_failed: false });
        let takers = state.takers_to_wake();
        state.wake(takers, Nobody);
        number
    }

    /// Waits for a part that a worker may do, and returns it with the number of its work.
    pub(crate) fn take(&self) -> (u64, P) {
        let mut state = self.0.lock();
        loop {
            if let Some(taken) = state.take() {
                let takers = state.takers_to_wake();
                state.wake(takers, Nobody);
                return taken;
            }
            state = state.wait(Takers, None);
        }
    }

    /// Takes a part of this work, if one is left that nobody has begun.
    pub(crate) fn help(&self, number: u64) -> Option<P> {
        let mut state = self.0.lock();
        let work = state.works.get_mut(&number)?;
        let part = work.left.pop()?;
        work.running += 1;
        Some(part)
    }

    /// Reports that a part was done.
    pub(crate) fn done(&self, number: u64, by: Doer, has_failed: bool) {
        let mut state = self.0.lock();
        let work = state.works.get_mut(&number).expect("its owner waits for its parts");
        work.running -= 1;
        work.has_failed |= has_failed;
        let (putters, group) = (if work.has_ended() { All } else { Nobody }, work.group);
        if by == Doer::Worker {
            state.leave(group); // the worker itself looks for the next part, and wakes others if there are more
        }
        state.wake(Nobody, putters);
    }

    /// Whether all parts have been done.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        self.0.lock().works.get(&number).is_none_or(Work::has_ended)
    }

    /// Waits until all parts have been done, and forgets the work. Whether all succeeded.
    pub(crate) fn end(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        loop {
            if state.works[&number].has_ended() {
                let work = state.works.remove(&number).expect("it was seen");
                return !work.has_failed;
            }
            state = state.wait(Putters, None);
        }
    }

    /// Drops the parts that nobody has begun, waits for the others, and forgets the work.
    pub(crate) fn cancel(&self, number: u64) {
        let mut state = self.0.lock();
        let left = state.works.get_mut(&number).map(|work| std::mem::take(&mut work.left));
        drop(state);
        drop(left); // not under the lock: it gives memory back
        self.end(number);
    }
}

impl<P> State<P> {
    /// The first work with a part that a worker may do.
    fn open(&self) -> Option<u64> {
        let is_open = |work: &Work<P>| {
            let workers = self.workers.get(&work.group.number).copied().unwrap_or(0);
            !work.left.is_empty() && workers < work.group.most_workers
        };
        self.works.iter().find(|(_, work)| is_open(work)).map(|(number, _)| *number)
    }

    fn take(&mut self) -> Option<(u64, P)> {
        let number = self.open()?;
        let work = self.works.get_mut(&number)?;
        let part = work.left.pop()?;
        work.running += 1;
        *self.workers.entry(work.group.number).or_default() += 1;
        Some((number, part))
    }

    /// A worker leaves a group.
    fn leave(&mut self, group: Group) {
        let workers = self.workers.get_mut(&group.number).expect("the worker is one of them");
        *workers -= 1;
        if *workers == 0 {
            self.workers.remove(&group.number);
        }
    }

    fn takers_to_wake(&self) -> Wake {
        if self.open().is_some() { One } else { Nobody }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const END: u32 = u32::MAX;

    /// All orders with few preemptions: all orders take more than minutes.
    fn model(check: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    fn spawn_with(
        shared: &Arc<Shared>,
        work: impl FnOnce(&Shared) + 'static,
    ) -> loom::thread::JoinHandle<()> {
        let shared = Arc::clone(shared);
        loom::thread::spawn(move || work(&shared))
    }

    struct Shared {
        parts: Parts<u32>,
        /// Parts that are being done.
        running: AtomicU32,
        /// The sum of what was done.
        sum: AtomicU32,
    }

    impl Shared {
        fn new() -> Arc<Self> {
            let (running, sum) = (AtomicU32::new(0), AtomicU32::new(0));
            Arc::new(Self { parts: Parts::new(), running, sum })
        }

        /// Returns how many others were at parts.
        fn do_part(&self, part: u32) -> u32 {
            let others = self.running.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(part, Ordering::Relaxed);
            self.running.fetch_sub(1, Ordering::Relaxed);
            others
        }

        /// What a worker does, until it gets the part that ends it.
        fn work(&self) {
            self.work_looking(|_| ());
        }

        fn work_looking(&self, look: impl Fn(u32)) {
            loop {
                let (number, part) = self.parts.take();
                if part != END {
                    look(self.do_part(part));
                }
                self.parts.done(number, Doer::Worker, false);
                if part == END {
                    return;
                }
            }
        }

        /// A swap, because loom lets a load see what was stored before.
        fn sum_so_far(&self) -> u32 {
            self.sum.fetch_add(0, Ordering::Relaxed)
        }

        fn end_workers(&self, count: usize) {
            let ends: Vec<_> =
                (0..count).map(|_| self.parts.put(Group { number: 9, most_workers: 2 }, vec![END])).collect();
            ends.into_iter().for_each(|number| assert!(self.parts.end(number)));
        }
    }

    #[test]
    fn every_part_is_done_once_before_the_wait_ends() {
        model(|| {
            let shared = Shared::new();
            let workers: Vec<_> = (0..2).map(|_| spawn_with(&shared, Shared::work)).collect();
            let number = shared.parts.put(Group { number: 0, most_workers: 2 }, vec![1, 2]);
            assert!(shared.parts.end(number));
            assert_eq!((shared.sum_so_far(), shared.running.fetch_add(0, Ordering::Relaxed)), (3, 0));
            shared.end_workers(2);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }

    #[test]
    fn waiting_thread_does_parts_that_no_worker_has_begun() {
        model(|| {
            let shared = Shared::new();
            let worker = spawn_with(&shared, Shared::work);
            let number = shared.parts.put(Group { number: 0, most_workers: 1 }, vec![1, 2, 4]);
            while let Some(part) = shared.parts.help(number) {
                shared.do_part(part);
                shared.parts.done(number, Doer::Helper, false);
            }
            assert!(shared.parts.end(number));
            assert_eq!(shared.sum_so_far(), 7);
            shared.end_workers(1);
            worker.join().unwrap();
        });
    }

    #[test]
    fn no_worker_runs_a_cancelled_work() {
        model(|| {
            let shared = Shared::new();
            let worker = spawn_with(&shared, Shared::work);
            let number = shared.parts.put(Group { number: 0, most_workers: 1 }, vec![1, 2]);
            shared.parts.cancel(number);
            assert_eq!(shared.running.fetch_add(0, Ordering::Relaxed), 0);
            let sum = shared.sum_so_far();
            shared.end_workers(1);
            worker.join().unwrap();
            assert_eq!(shared.sum_so_far(), sum);
        });
    }

    #[test]
    fn a_group_has_no_more_workers_than_its_limit() {
        model(|| {
            let shared = Shared::new();
            let look = |others| assert_eq!(others, 0);
            let workers: Vec<_> =
                (0..2).map(|_| spawn_with(&shared, move |shared| shared.work_looking(look))).collect();
            let number = shared.parts.put(Group { number: 0, most_workers: 1 }, vec![1, 2]);
            assert!(shared.parts.end(number));
            assert_eq!(shared.sum_so_far(), 3);
            shared.end_workers(2);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }

    #[test]
    fn group_at_its_limit_does_not_delay_other_groups() {
        model(|| {
            let shared = Shared::new();
            let workers: Vec<_> = (0..2).map(|_| spawn_with(&shared, Shared::work)).collect();
            let [first, other] =
                [0, 1].map(|number| shared.parts.put(Group { number, most_workers: 1 }, vec![1]));
            assert!(shared.parts.end(other) && shared.parts.end(first));
            shared.end_workers(2);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TWO: Group = Group { number: 0, most_workers: 2 };

    #[test]
    fn works_are_begun_in_their_order_and_parts_too() {
        let parts = Parts::new();
        let (first, second) = (parts.put(TWO, vec![1, 2]), parts.put(TWO, vec![3]));
        assert_eq!((parts.take(), parts.take()), ((first, 1), (first, 2)));
        parts.done(first, Doer::Worker, false);
        assert_eq!(parts.take(), (second, 3));
        parts.done(first, Doer::Worker, false);
        assert!(parts.has_ended(first) && !parts.has_ended(second));
        assert!(parts.end(first));
    }

    #[test]
    fn a_failure_of_a_part_is_one_of_its_work() {
        let parts = Parts::new();
        let number = parts.put(TWO, vec![1, 2]);
        for has_failed in [true, false] {
            assert!(parts.help(number).is_some());
            parts.done(number, Doer::Helper, has_failed);
        }
        assert!(!parts.end(number));
    }
}
