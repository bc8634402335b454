//! What a fork leaves to the parent and to the child: the parent keeps everything, the child starts with nothing. See
//! pthread_atfork(3).
//!
//! In the child, a lock may be held for ever by a thread that exists only in the parent. So the child abandons what threads
//! share: it neither locks nor drops it. A [`PerProcess`] value starts again, and an [`Own`] one is out of reach. Only two locks
//! are held over a fork: that of the descriptors, which the child closes, and that of the starts of threads.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::sync::generation::{begin_generation, fork_generation};
use crate::sync::{Locked, lock};
use crate::sys::{Number, fd, handle, process};

/// A global value. The child of a fork makes a new one when it first uses it.
pub struct PerProcess<T: 'static> {
    current: AtomicPtr<Made<T>>,
    make: fn() -> T,
}

opaque!("PerProcess", impl<T> std::fmt::Debug for PerProcess<T>);

struct Made<T> {
    value: T,
    generation: u32,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Creates the value, which `make` makes in each process.
    #[must_use]
    pub const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        let current = self.latest();
        match current {
            Some(made) if made.generation == fork_generation() => &made.value,
            _ => self.begin(current),
        }
    }

    /// In the child of a fork: the parent's value, until [`get`](Self::get) makes the child's. Other threads may have been in the
    /// middle of a change.
    pub fn inherited(&'static self) -> Option<&'static T> {
        self.latest().filter(|made| made.generation != fork_generation()).map(|made| &made.value)
    }

    fn latest(&'static self) -> Option<&'static Made<T>> {
        // Acquire: pairs with the Release in `begin`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: it is null, or came from a box that is never freed.
        unsafe { current.as_ref() }
    }

    fn begin(&'static self, before: Option<&'static Made<T>>) -> &'static T {
        let before = before.map_or(ptr::null_mut(), |made| ptr::from_ref(made).cast_mut());
        let made = Made { value: (self.make)(), generation: fork_generation() };
        let fresh = Box::into_raw(Box::new(made));
        let exchanged = self.current.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_err() {
            // SAFETY: another thread was quicker, and nobody has seen this one.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.get()
    }
}

/// A value of this process only: the child of a fork neither reaches nor drops it.
pub struct Own<T> {
    value: ManuallyDrop<T>,
    generation: u32,
}

impl<T> Own<T> {
    /// Keeps the value for this process.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: fork_generation() }
    }

    /// The value; none in the child of the process that made it.
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        (self.generation == fork_generation()).then_some(&*self.value)
    }

    /// Gives the value up; none in the child of the process that made it.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        let mut own = ManuallyDrop::new(self);
        // SAFETY: taken once, here, and never dropped.
        (own.generation == fork_generation()).then(|| unsafe { ManuallyDrop::take(&mut own.value) })
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.generation == fork_generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

opaque!("Own", impl<T> std::fmt::Debug for Own<T>);

/// The descriptors of [`ForkFd`](super::fork_fd::ForkFd)s.
pub(super) static DESCRIPTORS: Mutex<BTreeSet<Number>> = Mutex::new(BTreeSet::new());

/// Locked while a thread starts. glibc gives a new thread the memory of an ended one and frees its thread-local variables
/// (`get_cached_stack` in nptl/allocatestack.c, 2.36). After a fork in the middle of that, the child would free them twice.
pub(super) static STARTING: Mutex<()> = Mutex::new(());

/// What a fork has locked.
type Both = (Locked<'static, ()>, Locked<'static, BTreeSet<Number>>);

/// Where the locks are between the handlers. No thread-local variable: a process may fork when those are gone (atexit(3)).
struct Forking(UnsafeCell<Option<Both>>);

// SAFETY: only a thread that holds both locks touches it.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

// Installs the handlers when the library is loaded. At the first use of something, another thread could fork in the middle
// of it, and the child would wait for ever for the end of the installation. Most programs have one thread then, for which
// the table of descriptors grows quickly.
process::at_load!(install);

extern "C" fn install() {
    process::at_fork(before, in_parent, in_child);
    fd::grow_table();
}

extern "C" fn before() {
    let locked = (lock(&STARTING), lock(&DESCRIPTORS));
    // SAFETY: this thread holds both locks.
    unsafe { *FORKING.0.get() = Some(locked) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread has held both locks since `before`.
    drop(unsafe { (*FORKING.0.get()).take() });
}

extern "C" fn in_child() {
    begin_generation();
    // SAFETY: as in `in_parent`.
    let Some((starting, mut descriptors)) = (unsafe { (*FORKING.0.get()).take() }) else { return };
    for fd in mem::take(&mut *descriptors) {
        // SAFETY: the number is in the table, so it is open, and the value that it belonged to is inherited, and never
        // touches it again.
        drop(unsafe { handle::own(fd) });
    }
    drop((starting, descriptors));
}
