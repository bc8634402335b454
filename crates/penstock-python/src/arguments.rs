//! Arguments: Python objects to what the core takes, with Python's usual errors at the call.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use penstock_core::{Mode, ReaderKind};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

/// A descriptor: an int, or anything with `fileno()`. What Python has buffered on it is flushed first, so that bytes written
/// through the object stay in front of ours.
pub(crate) fn descriptor(fd: &Bound<'_, PyAny>) -> PyResult<BorrowedFd<'static>> {
    let py = fd.py();
    // SAFETY: a borrowed reference that lives for the call.
    let number = unsafe { ffi::PyObject_AsFileDescriptor(fd.as_ptr()) };
    if number < 0 {
        let error = PyErr::fetch(py);
        return Err(if is_path(fd)? { not_a_path(fd)? } else { error });
    }
    if !fd.is_instance_of::<PyInt>()
        && let Some(flush) = fd.getattr_opt(intern!(py, "flush"))?
    {
        flush.call0()?;
    }
    // SAFETY: not negative. Whether it is open is asked of the system first thing; the core works on a duplicate of its own.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

fn is_path(fd: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(fd.is_instance_of::<PyString>()
        || fd.is_instance_of::<PyBytes>()
        || fd.hasattr(intern!(fd.py(), "__fspath__"))?)
}

fn not_a_path(path: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let path = path.py().import("os")?.call_method1("fspath", (path,))?.repr()?;
    Ok(PyTypeError::new_err(format!(
        "an open file or a descriptor is wanted, and not a path: pass open({path}, 'rb') to read from it, \
         open({path}, 'wb') to write to it"
    )))
}

pub(crate) fn mode(name: &str) -> PyResult<Mode> {
    match name {
        "auto" => Ok(Mode::Auto),
        "write" => Ok(Mode::Write),
        "staged" => Ok(Mode::Staged),
        "zero-copy" => Ok(Mode::ZeroCopy),
        _ => Err(PyValueError::new_err(format!(
            "mode must be 'auto', 'write', 'staged' or 'zero-copy', not {name:?}"
        ))),
    }
}

pub(crate) fn reader(name: &str) -> PyResult<ReaderKind> {
    match name {
        "unknown" => Ok(ReaderKind::Unknown),
        "reads" => Ok(ReaderKind::Reads),
        _ => Err(PyValueError::new_err(format!("reader must be 'unknown' or 'reads', not {name:?}"))),
    }
}

/// Seconds to a duration: none for none, and for more than the clock can count.
pub(crate) fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
            Err(PyValueError::new_err(format!("timeout must be None or at least 0 seconds, not {seconds}")))
        }
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).ok()),
        None => Ok(None),
    }
}

/// A limit that means something.
pub(crate) fn positive(name: &str, value: Option<usize>) -> PyResult<Option<usize>> {
    match value {
        Some(0) => Err(PyValueError::new_err(format!("{name} must be at least 1"))),
        value => Ok(value),
    }
}
