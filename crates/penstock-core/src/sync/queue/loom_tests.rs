//! Every order in which a worker and its callers can meet.

use loom::thread;

use super::*;
use crate::sync::{Arc, Ordering, spawn_with};

const ONE: Limits = Limits { bytes: 8, items: 1 };

/// What a worker does, for items that are their own size: writes, ends, and leaves when there is nothing.
fn work(queue: &Queue<usize>) -> Vec<usize> {
    let mut ended = Vec::new();
    let now = Some(Instant::now());
    loop {
        match queue.next(now, |item| *item) {
            Next::Write(seen) => queue.advance(|item| assert_eq!(*item, seen, "nothing joins it now")),
            Next::Reap => {}
            Next::Leave => return ended,
        }
        if let Some(item) = queue.front(|item| *item) {
            ended.push(item);
            queue.retire_front();
        }
    }
}

fn ended(queue: &Queue<usize>, removed: Removed<usize>) -> Vec<usize> {
    let mut ended = Vec::new();
    queue.end(removed, |item| ended.push(item));
    ended
}

/// Pushes, and does the work itself if no worker is signed on: every item must find one.
fn push(queue: &Queue<usize>, item: usize) -> Vec<usize> {
    match queue.put(item, item, None) {
        Ok(true) => work(queue),
        Ok(false) => Vec::new(),
        Err(_) => panic!("nothing fails here"),
    }
}

#[test]
fn every_item_gets_a_worker() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(Limits { bytes: 8, items: 2 }));
        let other = spawn_with(&queue, |queue| push(queue, 1));
        let mut ended = push(&queue, 2);
        ended.extend(other.join().unwrap());
        ended.sort_unstable();
        assert_eq!(ended, [1, 2]);
        assert_eq!(queue.load().pending_items, 0);
    });
}

#[test]
fn retry_after_its_ticket_finds_room() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        let other = spawn_with(&queue, |queue| push(queue, 1));
        let now = Some(Instant::now());
        let mut ended = loop {
            let changed = queue.changed();
            match queue.put(2, 2, now) {
                Ok(true) => break work(&queue),
                Ok(false) => break Vec::new(),
                Err(_) => assert_eq!(changed.wait(), Ok(())), // for ever, if a change were missed
            }
        };
        ended.extend(other.join().unwrap());
        ended.sort_unstable();
        assert_eq!(ended, [1, 2]);
    });
}

#[test]
fn a_worker_that_waits_for_something_else_beside_misses_no_item() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(Limits { bytes: 8, items: 2 }));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let now = Some(Instant::now());
        assert_eq!(queue.next(now, |item| *item), Next::Write(1));
        queue.advance(|_| {}); // and nobody reads it
        let caller = spawn_with(&queue, |queue| queue.put(2, 2, None).unwrap());
        loop {
            let arrival = queue.arrival();
            match queue.next(now, |item| *item) {
                Next::Write(item) => break assert_eq!(item, 2),
                Next::Reap => assert_eq!(arrival.wait(), Ok(())), // for ever, if the push were missed
                Next::Leave => unreachable!("an item has not ended"),
            }
        }
        assert!(!caller.join().unwrap());
    });
}

#[test]
fn nobody_does_an_item_at_once_while_the_worker_writes() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(Limits { bytes: 8, items: 2 }));
        let is_written = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let caller = thread::spawn({
            let (queue, is_written) = (Arc::clone(&queue), Arc::clone(&is_written));
            move || {
                let do_at_once = |_: &mut usize, is_first: bool| {
                    // Relaxed: the queue's lock orders it.
                    assert!(is_written.load(Ordering::Relaxed) && !is_first);
                    true
                };
                queue.push(2, 2, None, |_| false, |_, _| false, do_at_once).unwrap()
            }
        });
        let now = Some(Instant::now());
        assert_eq!(queue.next(now, |item| *item), Next::Write(1));
        is_written.store(true, Ordering::Relaxed);
        queue.advance(|_| {});
        queue.retire_front();
        let ended = work(&queue);
        match caller.join().unwrap() {
            Pushed::Ended(2) => assert_eq!(ended, []),
            Pushed::Queued { start_worker: false } => assert_eq!(ended, [2]),
            Pushed::Queued { start_worker: true } => {
                assert_eq!(work(&queue), [2], "after the first has left")
            }
            other => panic!("{other:?}"),
        }
        let load = queue.load();
        assert_eq!((load.accepted_items, load.accepted_bytes, load.pending_items), (2, 3, 0));
        assert_eq!(queue.flush(2, None), Ok(Ok(())));
    });
}

/// Pushes, and joins the last item if the worker has not begun it. Whether it must start a worker.
fn join(queue: &Queue<usize>, item: usize) -> bool {
    let add = |last: &mut usize, item: &usize| {
        *last += item;
        true
    };
    let pushed = queue.push(item, item, None, |_| false, add, |_, _| false).unwrap();
    matches!(pushed, Pushed::Queued { start_worker: true })
}

#[test]
fn joined_bytes_are_written_with_their_item_and_once() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        let other = spawn_with(&queue, |queue| {
            let starts_worker = join(queue, 1) | join(queue, 2);
            if starts_worker { work(queue) } else { Vec::new() }
        });
        let starts_worker = join(&queue, 4);
        let mut ended = if starts_worker { work(&queue) } else { Vec::new() };
        ended.extend(other.join().unwrap());
        let load = queue.load();
        assert_eq!((ended.iter().sum::<usize>(), load.accepted_bytes, load.pending_bytes), (7, 7, 0));
        assert_eq!(load.accepted_items, ended.len() as u64);
    });
}

#[test]
fn joined_bytes_are_discarded_with_their_item() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        assert_eq!(join(&queue, 1), true);
        let caller = spawn_with(&queue, |queue| join(queue, 2));
        let mut seen = ended(&queue, queue.cancel(|_| true, |_| {}, |_| {}));
        assert!(!caller.join().unwrap(), "the first push has asked for one");
        seen.extend(work(&queue));
        assert_eq!((seen.iter().sum::<usize>(), queue.load().pending_bytes), (3, 0));
    });
}

/// The worker's memory is given back then, so that nobody may begin to write it.
#[test]
fn no_worker_starts_while_items_of_a_worker_that_failed_to_start_are_discarded() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(Limits { bytes: 8, items: 2 }));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let other = spawn_with(&queue, |queue| queue.put(2, 2, None));
        let discarded = ended(&queue, queue.fail(|_| Error::Closed));
        queue.sign_off();
        match other.join().unwrap() {
            Ok(starts_worker) => assert_eq!((starts_worker, discarded), (false, vec![1, 2])),
            Err(refused) => assert_eq!((refused.value, discarded), (2, vec![1])),
        }
    });
}

#[test]
fn a_caller_that_waits_for_room_is_woken() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let caller = spawn_with(&queue, |queue| push(queue, 2));
        let mut ended = work(&queue);
        ended.extend(caller.join().unwrap());
        assert_eq!(ended, [1, 2]);
    });
}

#[test]
fn no_item_of_a_gone_owner_follows_the_cancellation() {
    loom::model(|| {
        use loom::sync::atomic::{AtomicBool, Ordering};

        let queue = Arc::new(Queue::new(ONE));
        let gone = Arc::new(AtomicBool::new(false));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let caller = thread::spawn({
            let (queue, gone) = (Arc::clone(&queue), Arc::clone(&gone));
            move || {
                queue.push(2, 2, None, |_| gone.load(Ordering::Relaxed), |_, _| false, |_, _| false).is_ok()
            }
        });
        gone.store(true, Ordering::Relaxed);
        let cancelled = ended(&queue, queue.cancel(|_| true, |_| {}, |_| {}));
        queue.wake();
        let was_taken = caller.join().unwrap();
        assert_eq!(was_taken, cancelled.contains(&2));
        assert_eq!(queue.load().pending_items, 0);
    });
}

#[test]
fn failure_wakes_waiting_callers_and_every_item_ends() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let caller = spawn_with(&queue, |queue| queue.put(2, 2, None));
        let flusher = spawn_with(&queue, |queue| queue.flush(1, None));
        let given_back = ended(&queue, queue.fail(|_| Error::Closed));
        assert_eq!(given_back, [1]);
        let refused = caller.join().unwrap().unwrap_err();
        assert_eq!((refused.value, refused.reason), (2, Refusal::Failed(Error::Closed)));
        assert_eq!(flusher.join().unwrap().unwrap(), Err(Error::Closed));
    });
}

#[test]
fn dismissed_worker_ends_and_the_next_push_starts_another_worker() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(ONE));
        assert_eq!(queue.put(1, 1, None).unwrap(), true);
        let worker = spawn_with(&queue, |queue| {
            // As a worker that lingers: it waits without a limit, and only the dismissal ends it.
            let mut ended = Vec::new();
            loop {
                match queue.next(None, |item| *item) {
                    Next::Write(_) => queue.advance(|_| {}),
                    Next::Reap => {
                        unreachable!("this worker ends at once what it has written")
                    }
                    Next::Leave => return ended,
                }
                ended.extend(queue.front(|item| *item));
                queue.retire_front();
            }
        });
        assert_eq!(queue.flush(1, None).unwrap(), Ok(()));
        queue.dismiss_worker(None);
        assert_eq!(worker.join().unwrap(), [1]);
        assert_eq!(queue.put(2, 2, None).unwrap(), true);
    });
}

#[test]
fn flush_ends_after_the_oldest_item_whoever_cancels_the_rest() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(Limits { bytes: 8, items: 3 }));
        for item in 1..=3 {
            queue.put(item, item, None).unwrap();
        }
        let flusher = spawn_with(&queue, |queue| {
            assert_eq!(queue.flush(1, None), Ok(Ok(())));
            assert_eq!(queue.select(|item| (*item == 1).then_some(())), [], "the first has ended");
        });
        assert_eq!(ended(&queue, queue.cancel(|item| *item > 1, |_| {}, |_| {})), [2, 3]);
        assert_eq!(work(&queue), [1]);
        flusher.join().unwrap();
    });
}
