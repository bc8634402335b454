//! Calls into Python that may never return: if the interpreter ends meanwhile, the thread sleeps.

use std::thread;

/// Functions that may run code of the caller, and may wait in it while the interpreter ends, which unwinds the thread up to Python
/// 3.13. The declarations of `pyo3::ffi` never unwind, so the compiler would drop our cleanup; it must not recognize these as the
/// same functions.
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
                // SAFETY: the caller upholds the contract of the function.
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
pub(crate) fn sleeping_at_finalization<T>(call: impl FnOnce() -> T) -> T {
    struct Sleep;
    impl Drop for Sleep {
        fn drop(&mut self) {
            loop {
                thread::park();
            }
        }
    }
    // Unwinding drops this first.
    let sleep = Sleep;
    let answer = call();
    std::mem::forget(sleep);
    answer
}
