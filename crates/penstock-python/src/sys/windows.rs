//! Windows: a descriptor belongs to Python's C library, and the system has a handle for it. Our own C library has another table of
//! descriptors, so that Python's `msvcrt` is asked.

use std::path::Path;

use penstock_core::Mode;
use penstock_core::engine::{Borrowed, Handle, handle};
use penstock_cpu::Topology;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::interned::intern;
use crate::sys::confinement::Confinement;

/// How a write may enter a pipe, by Python's names: pipes take no pages.
pub(crate) const MODES: &[(&str, Mode)] = &[("auto", Mode::Auto), ("write", Mode::Write)];

/// The failure that Python has no number for, and calls a wrong argument: "System Error Codes" of the Windows documentation.
const NOT_SUPPORTED: i32 = 50;

/// The handle of a descriptor, for the length of a call. Sockets, whose numbers are none, were refused before.
///
/// # Safety
///
/// It is not negative.
pub(crate) unsafe fn borrow(py: Python<'_>, descriptor: i32) -> PyResult<Borrowed<'static>> {
    let number: handle::Number =
        py.import(intern!(py, "msvcrt"))?.call_method1("get_osfhandle", (descriptor,))?.extract()?;
    // SAFETY: it is open, and the core works on a duplicate of its own.
    Ok(unsafe { handle::borrow(number) })
}

/// A descriptor of Python's, which owns the handle from now on.
pub(crate) fn descriptor_of(py: Python<'_>, handle: Handle, is_read: bool) -> PyResult<i32> {
    let os = py.import("os")?;
    let flags = os.getattr("O_NOINHERIT")?.extract::<i32>()?
        | os.getattr(if is_read { "O_RDONLY" } else { "O_WRONLY" })?.extract::<i32>()?;
    let number = handle::into_number(handle);
    py.import("msvcrt")?.call_method1("open_osfhandle", (number, flags))?.extract()
}

/// The number that Python has for a failure: its own translation.
pub(crate) fn errno(py: Python<'_>, os_error: i32) -> i32 {
    let numbers = || match os_error {
        NOT_SUPPORTED => py.import("errno")?.getattr("ENOTSUP")?.extract(),
        _ => py.get_type::<PyOSError>().call1((0, "", py.None(), os_error))?.getattr("errno")?.extract(),
    };
    numbers().unwrap_or(os_error)
}

/// The machine's: there are no recorded ones.
pub(crate) fn topology(_root: &Path) -> Topology {
    Topology::detect()
}

/// Nothing of it can be had.
pub(crate) fn confine(_: &Confinement<'_>) -> Vec<&'static str> {
    vec!["files", "truncation", "signals", "system calls", "privileges", "limits"]
}
