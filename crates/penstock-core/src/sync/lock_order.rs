//! In debug builds: which locks are held while another is taken. Two that are nested in both orders can deadlock, so the
//! second order panics, in any test that happens to take it. Locks are told apart by the types of what they protect.
//!
//! A caller's code, such as a waker, a callback or the drop of a region, may take any of them again. So it runs under none.

use std::any::type_name;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Mutex;

type Name = &'static str;

/// Pairs that were seen: the outer and the inner one.
static NESTED: Mutex<BTreeSet<(Name, Name)>> = Mutex::new(BTreeSet::new());

thread_local! {
    static HELD: RefCell<Vec<Name>> = const { RefCell::new(Vec::new()) };
}

/// A lock that the calling thread holds, or is about to take.
pub(super) struct Held(Name);

impl Held {
    pub(super) fn note<T>() -> Self {
        let inner = type_name::<T>();
        // Not where the thread ends, and its variables are gone.
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            held.iter().for_each(|outer| check(outer, inner));
            held.push(inner);
        });
        Self(inner)
    }
}

/// Panics if the calling thread holds a lock.
pub(super) fn check_none_is_held() {
    let held = HELD.try_with(|held| held.borrow().first().copied()).ok().flatten();
    // Not while a panic unwinds, where a second one would abort.
    assert!(held.is_none() || std::thread::panicking(), "a caller's code would run under {held:?}");
}

fn check(outer: Name, inner: Name) {
    // In the child of a fork another thread may have had the lock for ever.
    let Ok(mut nested) = NESTED.try_lock() else { return };
    assert!(
        outer != inner && !nested.contains(&(inner, outer)),
        "{inner} is locked under {outer}, and elsewhere the other way"
    );
    nested.insert((outer, inner));
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let last = held.iter().rposition(|name| *name == self.0);
            last.map(|index| held.remove(index));
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::sync::lock;
    use crate::sync::ticket::ticket;

    #[test]
    #[should_panic(expected = "a caller's code would run under")]
    fn a_ticket_that_ends_under_a_lock_is_a_defect() {
        let state = super::Mutex::new(1u8);
        let (completion, _ticket) = ticket();
        let _held = lock(&state);
        completion.end(Ok(()));
    }

    #[test]
    #[should_panic(expected = "and elsewhere the other way")]
    fn both_orders_of_two_locks_are_a_defect() {
        let (first, second) = (super::Mutex::new('a'), super::Mutex::new("b"));
        drop((lock(&first), lock(&second)));
        drop((lock(&second), lock(&first)));
    }
}
