//! Python objects that a pipeline owns and lends to its native threads.
//!
//! The garbage collector finds a cycle only if each reference in it is visited once, and it cannot visit references of native
//! threads. So the threads share a [`PipelineObject`], and hold a reference only during a call. The pipeline visits the object in it, and
//! removes it at its end. A thread that outlives its pipeline finds no object, and has no reference to drop.

use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::parked::{Held, release_parked};

/// A callable or an iterator, and the exceptions that it has raised and that are still in use.
pub(crate) struct PipelineObject(Mutex<State>);

#[derive(Default)]
struct State {
    object: Option<Held>,
    raised: Vec<Arc<Raised>>,
    /// Its owner is gone: no more exceptions are kept.
    is_over: bool,
}

impl PipelineObject {
    pub(crate) fn new(object: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { object: Some(Held::new(object)), ..State::default() })))
    }

    /// The object, for the time of a call; none after its release.
    pub(crate) fn get(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.state(py).object.as_ref().map(|object| object.get().clone_ref(py))
    }

    /// Keeps an exception for as long as the returned handle is in use elsewhere.
    pub(crate) fn keep(&self, py: Python<'_>, error: PyErr) -> Arc<Raised> {
        let text = error.to_string();
        let raised = Arc::new(Raised {
            exception: Mutex::new(Some(Held::new(error.into_value(py).into_any()))),
            text,
        });
        let mut state = self.state(py);
        let unwanted: Vec<_> = state.raised.extract_if(.., |raised| Arc::strong_count(raised) == 1).collect();
        let is_over = state.is_over;
        if !is_over {
            state.raised.push(Arc::clone(&raised));
        }
        drop(state);
        drop(unwanted); // not under the lock, here and below: drops run Python code
        if is_over {
            raised.clear();
        }
        raised
    }

    /// Releases the object, which no thread needs any more. Its exceptions stay.
    pub(crate) fn release(&self, py: Python<'_>) {
        let object = self.state(py).object.take();
        drop(object); // not under the lock
        release_parked(py);
    }

    /// Releases everything: its owner is gone, or is part of an unreachable cycle.
    pub(crate) fn clear(&self, py: Python<'_>) {
        let State { object, raised, .. } =
            mem::replace(&mut *self.state(py), State { is_over: true, ..State::default() });
        drop(object);
        raised.iter().for_each(|raised| raised.clear());
        release_parked(py);
    }

    /// Visits everything for the garbage collector. Only its single owner may do so.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // An object that is not visited is not collected this time.
        let Ok(state) = self.0.try_lock() else { return Ok(()) };
        if let Some(object) = &state.object {
            visit.call(object.get())?;
        }
        for raised in &state.raised {
            if let Ok(Some(exception)) = raised.exception.try_lock().as_deref() {
                visit.call(exception.get())?;
            }
        }
        Ok(())
    }

    /// Locks the state. The lock is taken only with the GIL, and no Python code runs under it: no fork leaves it taken.
    fn state(&self, _py: Python<'_>) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exception on its way through a pipeline: its text, and the object for as long as the pipeline has it.
pub(crate) struct Raised {
    exception: Mutex<Option<Held>>,
    text: String,
}

impl Raised {
    pub(crate) fn to_python(&self, py: Python<'_>) -> Option<PyErr> {
        let exception = self.exception.lock().unwrap_or_else(PoisonError::into_inner);
        exception.as_ref().map(|exception| PyErr::from_value(exception.get().bind(py).clone()))
    }

    fn clear(&self) {
        let exception = self.exception.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(exception);
    }
}

impl fmt::Debug for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Raised {}
