//! Requests to a running thread. Checking for them costs nothing while there are none. Once the thread has ended, they
//! are refused. Checked with loom.

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Items left for a thread. Whoever puts something in wakes the thread afterwards.
#[derive(Debug)]
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
    /// Lets the thread skip the lock while the mailbox is empty.
    has_some: AtomicBool,
}

#[derive(Debug)]
struct State<T> {
    items: Vec<T>,
    is_closed: bool,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox.
    #[must_use]
    pub fn new() -> Self {
        let state = Mutex::new(State { items: Vec::new(), is_closed: false });
        Self { state, has_some: AtomicBool::new(false) }
    }

    /// Leaves an item for the thread.
    ///
    /// # Errors
    ///
    /// The item, if the thread accepts no more.
    pub fn put(&self, item: T) -> Result<(), T> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(item);
        }
        state.items.push(item);
        // Release: pairs with the swap in `take`. Set under the lock, so that the flag never comes before the item. A
        // swap, because loom lets a plain store fall behind an earlier swap.
        self.has_some.swap(true, Ordering::Release);
        Ok(())
    }

    /// Takes out all items.
    pub fn take(&self) -> Vec<T> {
        // Acquire: pairs with the swap in `put`. Reset before the items are taken: an item that comes in between sets
        // it again.
        if !self.has_some.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut lock(&self.state).items)
    }

    /// Closes the mailbox, unless an item is in it.
    pub fn close_if_empty(&self) -> bool {
        let mut state = lock(&self.state);
        state.is_closed = state.items.is_empty();
        state.is_closed
    }

    /// Closes the mailbox and returns the items in it.
    pub fn close(&self) -> Vec<T> {
        let mut state = lock(&self.state);
        state.is_closed = true;
        std::mem::take(&mut state.items)
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;
    use crate::sync::{Arc, Condvar, spawn_with, wait_until};

    /// Stands for the eventfd that wakes a sleeping thread.
    #[derive(Default)]
    struct Waker {
        is_woken: Mutex<bool>,
        woken: Condvar,
    }

    impl Waker {
        fn wake(&self) {
            *lock(&self.is_woken) = true;
            self.woken.notify_one();
        }

        fn sleep(&self) {
            let mut is_woken = lock(&self.is_woken);
            while !*is_woken {
                is_woken = wait_until(&self.woken, is_woken, None);
            }
            *is_woken = false;
        }
    }

    #[test]
    fn a_thread_that_sleeps_finds_every_item() {
        loom::model(|| {
            let shared = Arc::new((Mailbox::new(), Waker::default()));
            let givers: Vec<_> = (0..2)
                .map(|item| {
                    spawn_with(&shared, move |shared| {
                        shared.0.put(item).unwrap();
                        shared.1.wake();
                    })
                })
                .collect();
            let mut found = Vec::new();
            while found.len() < 2 {
                found.extend(shared.0.take());
                if found.len() < 2 {
                    shared.1.sleep(); // for ever, if an item had come unseen
                }
            }
            found.sort_unstable();
            assert_eq!(found, [0, 1]);
            givers.into_iter().for_each(|giver| giver.join().unwrap());
        });
    }

    #[test]
    fn an_item_is_found_or_given_back_when_the_thread_goes() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new());
            let giver = spawn_with(&mailbox, |mailbox| mailbox.put(7));
            let mut found = Vec::new();
            loop {
                found.extend(mailbox.take());
                if mailbox.close_if_empty() {
                    break;
                }
                thread::yield_now();
            }
            match giver.join().unwrap() {
                Ok(()) => assert_eq!(found, [7]),
                Err(item) => assert_eq!((item, found.len()), (7, 0)),
            }
        });
    }

    #[test]
    fn an_item_is_left_or_given_back_when_the_thread_is_cut_short() {
        loom::model(|| {
            let mailbox = Arc::new(Mailbox::new());
            let giver = spawn_with(&mailbox, |mailbox| mailbox.put(7));
            let left = mailbox.close();
            match giver.join().unwrap() {
                Ok(()) => assert_eq!(left, [7]),
                Err(item) => assert_eq!((item, left.len()), (7, 0)),
            }
        });
    }
}
