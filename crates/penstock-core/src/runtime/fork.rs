//! What a fork leaves to the parent and to the child: the parent keeps its streams, the child starts with none. See
//! `pthread_atfork(3)`.
//!
//! Tables that threads share are [`ForkTable`]s, each with a lock of its own, so that a slow step with one does not
//! hold up the others. They register themselves when they are first used. A fork locks all of
//! them, so that the child finds them in a consistent state. The child empties each as its owner says, then unlocks
//! all.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::sync::generation::begin_generation;
use crate::sync::lock;

/// The lock order: a fork locks the tables in this order, and all other code nests their locks in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    Pipes,
    Budget,
    Writers,
    Tasks,
    Streams,
    Descriptors,
    Starts,
}

/// What a fork has locked.
pub(crate) trait Held {
    /// Empties the table in the child, while all tables are locked.
    fn empty(&mut self);

    /// Unlocks the table. The returned value is dropped once all tables are unlocked: its destructors may lock them.
    fn release(self: Box<Self>) -> Box<dyn Any>;
}

/// A table that the child of a fork empties.
pub(crate) struct ForkTable<T: 'static> {
    order: Order,
    table: LazyLock<Mutex<T>>,
    hold: fn(&'static Self) -> Box<dyn Held>,
    empty: fn(&mut T),
    is_registered: AtomicBool,
}

impl<T: Send> ForkTable<T> {
    /// Creates a table. `empty` runs in the child.
    pub(crate) const fn new(order: Order, initial: fn() -> Mutex<T>, empty: fn(&mut T)) -> Self {
        Self::held_by(order, initial, empty, |own| Box::new((lock(&own.table), own.empty)))
    }

    /// As [`new`](Self::new), for what has more locks than the table's own.
    pub(crate) const fn held_by(
        order: Order,
        initial: fn() -> Mutex<T>,
        empty: fn(&mut T),
        hold: fn(&'static Self) -> Box<dyn Held>,
    ) -> Self {
        Self { order, table: LazyLock::new(initial), hold, empty, is_registered: AtomicBool::new(false) }
    }

    /// Locks the table.
    pub(crate) fn lock(&'static self) -> MutexGuard<'static, T> {
        // Relaxed: `register` checks again under a lock.
        if !self.is_registered.load(Ordering::Relaxed) {
            register(self);
        }
        lock(&self.table)
    }
}

impl<T> Held for (MutexGuard<'static, T>, fn(&mut T)) {
    fn empty(&mut self) {
        (self.1)(&mut self.0);
    }

    fn release(self: Box<Self>) -> Box<dyn Any> {
        Box::new(())
    }
}

trait Registered: Sync {
    fn order(&self) -> Order;
    fn hold(&'static self) -> Box<dyn Held>;
}

impl<T: Send> Registered for ForkTable<T> {
    fn order(&self) -> Order {
        self.order
    }

    fn hold(&'static self) -> Box<dyn Held> {
        (self.hold)(self)
    }
}

type Tables = Vec<&'static dyn Registered>;

/// All tables, in order. Its lock may be taken while theirs are held, never the other way round.
static TABLES: Mutex<Tables> = Mutex::new(Vec::new());

/// Installs the handlers when the library is loaded. At the first use of a table, another thread could fork in the middle
/// of it, and the child would wait for ever for the end of the installation.
#[used]
// SAFETY: what stands in this section is called once, before anything else of this library.
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;

extern "C" fn install() {
    // SAFETY: the handlers are plain functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

fn register<T: Send>(table: &'static ForkTable<T>) {
    let mut tables = lock(&TABLES);
    if !table.is_registered.swap(true, Ordering::Relaxed) {
        let place = tables.partition_point(|other| other.order() < table.order);
        tables.insert(place, table);
    }
}

type Locked = (Vec<Box<dyn Held>>, MutexGuard<'static, Tables>);

thread_local! {
    /// Between the handlers, on the thread that forks.
    static LOCKED: RefCell<Option<Locked>> = const { RefCell::new(None) };
}

extern "C" fn before() {
    loop {
        let tables = lock(&TABLES).clone();
        let held: Vec<_> = tables.iter().map(|table| table.hold()).collect();
        let now = lock(&TABLES);
        // A table that was registered meanwhile may be locked by its first user.
        if now.len() == tables.len() {
            LOCKED.with(|slot| slot.replace(Some((held, now))));
            return;
        }
        drop(now);
        release(held);
    }
}

fn release(held: Vec<Box<dyn Held>>) {
    let rest: Vec<_> = held.into_iter().map(|held| held.release()).collect();
    drop(rest); // now that everything is unlocked
}

extern "C" fn in_parent() {
    if let Some((held, tables)) = LOCKED.with(|slot| slot.borrow_mut().take()) {
        drop(tables);
        release(held);
    }
}

extern "C" fn in_child() {
    begin_generation();
    if let Some((mut held, tables)) = LOCKED.with(|slot| slot.borrow_mut().take()) {
        held.iter_mut().for_each(|held| held.empty());
        drop(tables);
        release(held);
    }
}
