//! Native threads that run Python: how they come to the interpreter, and how they leave it.
//!
//! - **A fork** of the interpreter waits, in the child, for a lock of the interpreter's that a thread takes while it makes or deletes its
//!   thread state. So a thread makes its state once, at a [gate](Gate) that a fork closes before it begins; it deletes it with the
//!   GIL, which a thread that forks has.
//! - **The end of the interpreter** ends each thread that comes back from waiting in Python code, up to Python 3.13 by
//!   `pthread_exit`, whose unwinding must not come to Rust's frames: it would end the process (SIGABRT). There the thread
//!   [hangs](hanging), as Python 3.14 has all do.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;

use penstock_core::Gate;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::parked::release_parked;

/// Functions that may run the caller's code, and so may wait in it while the interpreter ends. For the compiler those of `pyo3::ffi`
/// never unwind, so that it leaves no trace of what is to be done then; it must not see that these are the same.
pub(crate) mod raw {
    use std::ffi::c_int;
    use std::hint::black_box;
    use std::mem::transmute;

    use pyo3::ffi::{self, Py_buffer, PyGILState_STATE, PyObject};

    macro_rules! may_unwind {
        ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {$(
            #[allow(non_snake_case)]
            pub(crate) unsafe fn $name($($argument: $kind),*) -> $answer {
                let known: unsafe extern "C" fn($($kind),*) -> $answer = ffi::$name;
                // SAFETY: the two differ in nothing but that this one may unwind.
                let unwinding: unsafe extern "C-unwind" fn($($kind),*) -> $answer = unsafe { transmute(known) };
                // SAFETY: what the function asks for is asked of the caller.
                unsafe { black_box(unwinding)($($argument),*) }
            }
        )*};
    }

    may_unwind! {
        PyObject_Call(callable: *mut PyObject, arguments: *mut PyObject, keywords: *mut PyObject) -> *mut PyObject;
        PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
        PyObject_GetBuffer(exporter: *mut PyObject, view: *mut Py_buffer, flags: c_int) -> c_int;
        PyBuffer_Release(view: *mut Py_buffer) -> ();
        Py_DecRef(object: *mut PyObject) -> ();
        PyGILState_Release(state: PyGILState_STATE) -> ();
    }
}

/// Calls into Python; if the interpreter ends the thread there, it sleeps until the process is gone.
pub(crate) fn hanging<T>(call: impl FnOnce() -> T) -> T {
    struct Hang;
    impl Drop for Hang {
        fn drop(&mut self) {
            loop {
                thread::park();
            }
        }
    }
    // The nearest frame to the call that unwinding finds something to do in.
    let hang = Hang;
    let answer = call();
    std::mem::forget(hang);
    answer
}

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

/// Before a fork: waits until no thread makes its state, and keeps all from it.
#[pyfunction]
pub(crate) fn _before_fork() {
    THREAD_STATES.close();
}

/// After a fork, in the parent.
#[pyfunction]
pub(crate) fn _after_fork_in_parent() {
    THREAD_STATES.open();
}

/// After a fork, in the child: the parent's writes are not the child's; their memory is free here.
#[pyfunction]
pub(crate) fn _after_fork_in_child(py: Python<'_>) {
    THREAD_STATES.reset();
    release_parked(py);
}
