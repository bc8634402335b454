//! Names of Python's attributes and modules as interned strings, each made once.
//!
//! `pyo3::intern!` detaches from the interpreter while it makes one. If another thread forks in that moment, the child waits for
//! ever for a name that nobody makes there.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::types::PyString;
use pyo3::{Borrowed, ffi, prelude::*};

/// A name, made at its first use and never freed.
pub(crate) struct Interned {
    text: &'static str,
    string: AtomicPtr<ffi::PyObject>,
}

impl Interned {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, string: AtomicPtr::new(null_mut()) }
    }

    pub(crate) fn get<'py>(&'static self, py: Python<'py>) -> Borrowed<'static, 'py, PyString> {
        let mut string = self.string.load(Ordering::Acquire);
        if string.is_null() {
            // Two threads without a GIL get the same string.
            string = PyString::intern(py, self.text).into_ptr();
            self.string.store(string, Ordering::Release);
        }
        // SAFETY: it is a string, of which we keep a reference for ever.
        unsafe { Borrowed::from_ptr(py, string).cast_unchecked() }
    }
}

/// The interned string of a literal.
macro_rules! intern {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::interned::Interned = $crate::interned::Interned::new($text);
        NAME.get($py)
    }};
}
pub(crate) use intern;
