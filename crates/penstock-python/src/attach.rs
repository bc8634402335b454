//! Native threads that run Python: how they come to the interpreter, and how they leave it.
//!
//! - **A fork** of the interpreter waits, in the child, for a lock of the interpreter's that a thread takes while it makes or deletes its
//!   thread state. So a thread makes its state once, at a [gate](Gate) that a fork closes before it begins; it deletes it with the
//!   GIL, which a thread that forks has.
//! - **The end of the interpreter** ends each thread that comes back from waiting in Python code, up to Python 3.13 by
//!   `pthread_exit`, whose unwinding must not come to Rust's frames: it would end the process (SIGABRT). There the thread
//!   [hangs](hanging), as Python 3.14 has all do.

use std::sync::atomic::{AtomicPtr, Ordering};

use penstock_core::process::Gate;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::hanging::{hanging, raw};
use crate::parked::release_parked;

static THREAD_STATES: Gate = Gate::new();

/// The interpreter, of which there is one: PyO3 lets no other load the module.
static INTERPRETER: AtomicPtr<ffi::PyInterpreterState> = AtomicPtr::new(std::ptr::null_mut());

/// Remembers the interpreter. Called when the module is loaded.
pub(crate) fn remember_interpreter(_py: Python<'_>) {
    // SAFETY: we are attached.
    INTERPRETER.store(unsafe { ffi::PyInterpreterState_Get() }, Ordering::Relaxed);
}

/// The calling thread as a Python thread, until it is dropped.
struct PythonThread;

impl PythonThread {
    /// None where the interpreter has ended: then the thread finds that out when it wants to run something.
    fn begin() -> Option<Self> {
        // SAFETY: it can be asked at any time.
        if unsafe { ffi::Py_IsInitialized() } == 0 {
            return None;
        }
        let interpreter = INTERPRETER.load(Ordering::Relaxed);
        // SAFETY: the interpreter lives, and the thread, which is new, has no state yet. This needs no GIL, as in
        // `PyGILState_Ensure`, which makes states just so, and finds this one from now on.
        let state = THREAD_STATES.pass(|| unsafe { ffi::PyThreadState_New(interpreter) });
        (!state.is_null()).then_some(Self)
    }
}

impl Drop for PythonThread {
    fn drop(&mut self) {
        Python::try_attach(release_parked);
        // SAFETY: the state is this thread's own, counted once when it was made and once more by `Ensure`, which PyO3 has hang where
        // the interpreter ends. The second release deletes it.
        unsafe {
            if ffi::Py_IsInitialized() != 0 {
                ffi::PyGILState_Ensure();
                ffi::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_LOCKED);
                hanging(|| raw::PyGILState_Release(ffi::PyGILState_STATE::PyGILState_UNLOCKED));
            }
        }
    }
}

/// Makes the calling thread, a native one, a Python thread for as long as the body runs, without the GIL meanwhile.
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
    release_parked(py);
}
