//! How native threads attach to the interpreter and leave it.
//!
//! - **A fork.** In the child, the interpreter waits for a lock that a thread takes while it creates or deletes its thread state.
//!   So a thread creates its state once, behind a [gate](Gate) that a fork closes first, and deletes it with the GIL, which the
//!   forking thread holds.
//! - **The end of the interpreter** ends each thread that returns from waiting in Python code, up to Python 3.13 by
//!   `pthread_exit`. Its unwinding must not reach Rust frames, which would abort the process (SIGABRT). So the thread
//!   [sleeps](sleeping_at_finalization), as all threads do in Python 3.14.

use std::sync::atomic::{AtomicPtr, Ordering};

use penstock_core::engine::Gate;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::finalization::{raw, sleeping_at_finalization};
use crate::parked::{release_inherited, release_parked};

static THREAD_STATES: Gate = Gate::new();

/// The main interpreter. A subinterpreter may end while a thread of ours has still a state in it, which ends the process.
static INTERPRETER: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(std::ptr::null_mut());

/// Remembers the interpreter. Called when the module is loaded. Refuses a subinterpreter.
pub(crate) fn remember_interpreter(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: we are attached.
    let (interpreter, number) = unsafe {
        let interpreter = ffi::PyInterpreterState_Get();
        (interpreter, ffi::PyInterpreterState_GetID(interpreter))
    };
    if number != 0 {
        let why = format!(
            "penstock needs the main interpreter, and this is subinterpreter {number}. Import it in the main \
             interpreter, or in a process of its own."
        );
        return Err(PyImportError::new_err(why));
    }
    INTERPRETER.store(interpreter, Ordering::Relaxed);
    // The first time initializes PyO3. If another thread forked in the middle, the child would wait for ever.
    Python::attach(|_| ());
    Ok(())
}

/// The calling thread as a Python thread, until it is dropped.
struct PythonThread;

impl PythonThread {
    /// None after the end of the interpreter; then each attempt of the thread to run Python code fails.
    fn begin() -> Option<Self> {
        // SAFETY: callable at any time.
        if unsafe { ffi::Py_IsInitialized() } == 0 {
            return None;
        }
        let interpreter = INTERPRETER.load(Ordering::Relaxed);
        // SAFETY: the interpreter lives, and the new thread has no state yet. This needs no GIL: `PyGILState_Ensure` creates states
        // in the same way, and finds this one from now on.
        let state = THREAD_STATES.pass(|| unsafe { ffi::PyThreadState_New(interpreter) });
        (!state.is_null()).then_some(Self)
    }
}

impl Drop for PythonThread {
    fn drop(&mut self) {
        Python::try_attach(release_parked);
        // SAFETY: the state belongs to this thread, and was counted once when it was made and once more by `Ensure`, in which PyO3
        // sleeps if the interpreter ends. The second release deletes it.
        unsafe {
            if ffi::Py_IsInitialized() != 0 {
                ffi::PyGILState_Ensure();
                ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED);
                sleeping_at_finalization(|| {
                    raw::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_UNLOCKED)
                });
            }
        }
    }
}

/// Makes the calling native thread a Python thread while the body runs, without holding the GIL.
pub(crate) fn as_python_thread(body: &mut (dyn FnMut() + Send)) {
    let _thread = PythonThread::begin();
    body();
}

/// Before a fork: wait until no thread is creating its thread state, and block new ones.
#[pyfunction]
pub(crate) fn _before_fork() {
    THREAD_STATES.close();
}

/// After a fork, in the parent: allow new thread states again.
#[pyfunction]
pub(crate) fn _after_fork_in_parent() {
    THREAD_STATES.open();
}

/// After a fork, in the child: release memory of the parent's writes, which are not the child's.
#[pyfunction]
pub(crate) fn _after_fork_in_child(py: Python<'_>) {
    THREAD_STATES.reset();
    release_inherited(py);
    release_parked(py);
}
