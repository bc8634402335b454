//! In debug builds: which locks are held while another is taken. Two that are nested in both orders can deadlock, so the
//! second order panics, in any test that happens to take it. Locks are told apart by the types of what they protect.

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

    #[test]
    #[should_panic(expected = "and elsewhere the other way")]
    fn both_orders_of_two_locks_are_a_defect() {
        let (first, second) = (super::Mutex::new('a'), super::Mutex::new("b"));
        drop((lock(&first), lock(&second)));
        drop((lock(&second), lock(&first)));
    }
}
