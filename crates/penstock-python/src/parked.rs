//! Exports and references that native threads have dropped and only Python threads may release.
//!
//! A thread that is not attached to the interpreter must not even drop a `Py`: PyO3 would put it on a list behind a lock, which
//! could stay taken for ever in the child of a fork.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use penstock_core::engine::PerProcess;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::finalization::{raw, sleeping_at_finalization};

/// Something to release, as an entry of the stack.
pub(crate) struct Parcel {
    what: What,
    /// Whether it is in [`IN_WRITES`].
    is_in_write: bool,
    next: *mut Parcel,
}

enum What {
    View(ffi::Py_buffer),
    /// Only [`release_parked`] releases it.
    Object(ManuallyDrop<Py<PyAny>>),
}

// SAFETY: until its release it is only passed on; only its single owner uses `next`.
unsafe impl Send for Parcel {}
// SAFETY: a shared one only gives out its address or a `Py`, which is `Sync`.
unsafe impl Sync for Parcel {}

/// What was dropped: a stack without locks, because a fork can happen at any moment.
static PARKED: AtomicPtr<Parcel> = AtomicPtr::new(ptr::null_mut());

/// The views that writes hold, by the addresses of their parcels. Locked only by attached threads, so that with a GIL no fork
/// finds it locked.
static IN_WRITES: PerProcess<Mutex<BTreeSet<usize>>> = PerProcess::new(Mutex::default);

fn in_writes() -> MutexGuard<'static, BTreeSet<usize>> {
    IN_WRITES.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the child of a fork: releases the child's copies of the views that the parent's writes hold.
pub(crate) fn release_inherited(_py: Python<'_>) {
    // Without a GIL another thread may have had the lock; then the memory stays in use.
    let Some(Ok(mut inherited)) = IN_WRITES.inherited().map(Mutex::try_lock) else { return };
    for parcel in std::mem::take(&mut *inherited) {
        let parcel: *mut Parcel = ptr::with_exposed_provenance_mut(parcel);
        // SAFETY: a parcel is in the table until it is freed. It belongs to a write of the parent, which the child never touches, or
        // to a call of this thread, which learns next that its stream is the parent's.
        if let What::View(view) = unsafe { &mut (*parcel).what } {
            // SAFETY: the view was filled by `PyObject_GetBuffer`, and we are attached. A second release does nothing.
            sleeping_at_finalization(|| unsafe { raw::PyBuffer_Release(view) });
        }
    }
}

impl Parcel {
    /// Notes that a write is to hold it.
    pub(crate) fn note_write(&mut self) {
        self.is_in_write = true;
        in_writes().insert(ptr::from_mut(self).expose_provenance());
    }

    /// A view that must be filled in place: the shape and strides of a one-dimensional buffer point into the view itself.
    pub(crate) fn of_view(view: ffi::Py_buffer) -> Box<Self> {
        Box::new(Self { what: What::View(view), is_in_write: false, next: ptr::null_mut() })
    }

    pub(crate) fn view_mut(&mut self) -> &mut ffi::Py_buffer {
        match &mut self.what {
            What::View(view) => view,
            What::Object(_) => unreachable!("it was made of a view"),
        }
    }

    /// Leaves it to the next Python thread.
    fn park(self: Box<Self>) {
        let parked = Box::into_raw(self);
        let mut head = PARKED.load(Ordering::Relaxed);
        loop {
            // SAFETY: until the exchange succeeds, the parcel is ours alone.
            unsafe { (*parked).next = head };
            // Release: hands it to the Acquire of the swap in `release_parked`.
            match PARKED.compare_exchange_weak(head, parked, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Releases everything that was parked. Each call that may have ended a write does this before it returns to Python.
pub(crate) fn release_parked(_py: Python<'_>) {
    if PARKED.load(Ordering::Relaxed).is_null() {
        return;
    }
    // Acquire: partner of the Release in `park`. Taking the whole stack at once leaves no room for an ABA.
    let mut parked = PARKED.swap(ptr::null_mut(), Ordering::Acquire);
    while !parked.is_null() {
        // SAFETY: the parcels came from `Box::into_raw`, and the swap made them ours.
        let mut parcel = unsafe { Box::from_raw(parked) };
        parked = parcel.next;
        if parcel.is_in_write {
            in_writes().remove(&ptr::from_mut(&mut *parcel).expose_provenance());
        }
        match &mut parcel.what {
            // SAFETY: the view was filled by `PyObject_GetBuffer`, is released once, and we are attached.
            What::View(view) => sleeping_at_finalization(|| unsafe { raw::PyBuffer_Release(view) }),
            What::Object(object) => {
                let object = object.as_ptr();
                // SAFETY: the parcel owns the reference, and does not drop it itself.
                sleeping_at_finalization(|| unsafe { raw::Py_DecRef(object) });
            }
        }
    }
}

/// Releases what was parked when it is dropped. Made before what it is to release, which is dropped first.
pub(crate) struct ReleaseAtEnd<'py>(pub(crate) Python<'py>);

impl Drop for ReleaseAtEnd<'_> {
    fn drop(&mut self) {
        release_parked(self.0);
    }
}

/// A Python object or a filled view that any thread may drop.
pub(crate) struct Held(Option<Box<Parcel>>);

impl Held {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        let what = What::Object(ManuallyDrop::new(object));
        Self(Some(Box::new(Parcel { what, is_in_write: false, next: ptr::null_mut() })))
    }

    pub(crate) fn of_view(parcel: Box<Parcel>) -> Self {
        Self(Some(parcel))
    }

    pub(crate) fn get(&self) -> &Py<PyAny> {
        match self.what() {
            What::Object(object) => object,
            What::View(_) => unreachable!("it was made of an object"),
        }
    }

    pub(crate) fn view(&self) -> &ffi::Py_buffer {
        match self.what() {
            What::View(view) => view,
            What::Object(_) => unreachable!("it was made of a view"),
        }
    }

    fn what(&self) -> &What {
        &self.0.as_ref().expect("only the drop takes it").what
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(parcel) = self.0.take() {
            parcel.park();
        }
    }
}
