//! Calls into Python that may not come back: where the interpreter ends, the thread sleeps.

use std::thread;

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
