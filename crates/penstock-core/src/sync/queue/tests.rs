use std::time::Duration;

use super::*;

fn queue(bytes: usize, items: usize) -> Queue<u8> {
    Queue::new(Limits { bytes, items })
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(5))
}

fn ended(queue: &Queue<u8>, removed: Removed<u8>) -> Vec<u8> {
    let mut ended = Vec::new();
    queue.end(removed, |item| ended.push(item));
    ended
}

#[test]
fn queue_obeys_both_limits_and_one_item_always_fits() {
    let by_items = queue(100, 2);
    assert!(by_items.put(1, 1, None).unwrap());
    assert!(!by_items.put(2, 1, None).unwrap());
    let refused = by_items.put(3, 1, soon()).unwrap_err();
    assert_eq!((refused.value, refused.reason), (3, Refusal::Full { pending_bytes: 2 }));

    let by_bytes = queue(10, 9);
    assert!(by_bytes.put(1, 1000, None).is_ok(), "an item above the limit fits into an empty queue");
    assert!(by_bytes.put(2, 1, soon()).is_err());
}

#[test]
fn a_queue_knows_what_a_push_would_find() {
    let queue = queue(10, 2);
    let is_full_for = |bytes| queue.is_full_for(bytes, true);
    assert_eq!(is_full_for(1000), None, "one item always fits");
    queue.put(1, 6, None).unwrap();
    assert_eq!((is_full_for(4), is_full_for(5)), (None, Some(6)));
    queue.put(2, 1, None).unwrap();
    assert_eq!((is_full_for(1), queue.is_full_for(1, false)), (None, Some(7)), "it may join the last");
    for _ in 0..2 {
        queue.next(None, |_| ());
        queue.advance(|_| {});
    }
    assert_eq!(is_full_for(1), Some(7));
    let removed = queue.fail(|_| Error::Closed);
    assert_eq!(is_full_for(1), None, "a push has something to say");
    assert_eq!(ended(&queue, removed), [1, 2]);
}

#[test]
fn cancelled_items_leave_and_the_one_in_work_is_shown() {
    let queue = queue(100, 9);
    for item in 1..=4 {
        queue.put(item, 10, None).unwrap();
    }
    assert_eq!(queue.next(None, |item| *item), Next::Write(1));
    let mut in_work = None;
    let cancelled = queue.cancel(|item| *item != 3, |item| in_work = Some(*item), |_| {});
    assert_eq!((ended(&queue, cancelled), in_work), (vec![2, 4], Some(1)));
    assert_eq!(queue.load().pending_bytes, 20);
    queue.advance(|_| {});
    queue.retire_front();
    assert_eq!(queue.next(None, |item| *item), Next::Write(3));
}

#[test]
fn a_flush_waits_only_for_what_was_there() {
    let queue = queue(100, 9);
    queue.put(1, 10, None).unwrap();
    assert_eq!(queue.flush(1, soon()).unwrap_err().pending_bytes, 10);
    queue.next(None, |_| ());
    queue.advance(|_| {});
    queue.retire_front();
    queue.put(2, 10, None).unwrap();
    assert_eq!(queue.flush(1, None), Ok(Ok(())), "whatever came later");
}

#[test]
fn a_flush_does_not_count_what_ended_out_of_order() {
    let queue = queue(100, 9);
    for item in 1..=4 {
        queue.put(item, 10, None).unwrap();
    }
    let cancelled = queue.cancel(|item| *item > 2, |_| {}, |_| {});
    assert_eq!(ended(&queue, cancelled), [3, 4]);
    assert_eq!(queue.flush(2, soon()).unwrap_err().pending_bytes, 20, "the first two are in flight");
    assert_eq!(queue.pending_of(2), 2);
}

#[test]
fn a_flush_waits_until_what_was_removed_has_ended() {
    let queue = queue(100, 9);
    queue.put(1, 10, None).unwrap();
    let cancelled = queue.cancel(|_| true, |_| {}, |_| {});
    assert!(queue.flush(1, soon()).is_err(), "its memory is still in use");
    assert_eq!(ended(&queue, cancelled), [1]);
    assert_eq!(queue.flush(1, None), Ok(Ok(())));
}
