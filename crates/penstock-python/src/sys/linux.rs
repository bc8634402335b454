//! Linux: a descriptor is what Python has, and so is the number of a failure.

mod sandbox;

use std::path::Path;

use penstock_core::Mode;
use penstock_core::engine::{Borrowed, Handle, handle};
use penstock_cpu::Topology;
use pyo3::prelude::*;

pub(crate) use sandbox::confine;

/// How a write may enter a pipe, by Python's names.
pub(crate) const MODES: &[(&str, Mode)] =
    &[("auto", Mode::Auto), ("write", Mode::Write), ("staged", Mode::Staged), ("zero-copy", Mode::ZeroCopy)];

/// What a descriptor leads to, for the length of a call.
///
/// # Safety
///
/// It is not negative.
pub(crate) unsafe fn borrow(_py: Python<'_>, descriptor: i32) -> PyResult<Borrowed<'static>> {
    // SAFETY: not negative. Whether it is open is asked of the system first thing; the core works on a duplicate of its own.
    Ok(unsafe { handle::borrow(descriptor) })
}

/// The descriptor, which becomes the caller's.
pub(crate) fn descriptor_of(_py: Python<'_>, handle: Handle, _is_read: bool) -> PyResult<i32> {
    Ok(handle::into_number(handle))
}

/// The number that Python has for a failure.
pub(crate) fn errno(_py: Python<'_>, os_error: i32) -> i32 {
    os_error
}

pub(crate) fn topology(root: &Path) -> Topology {
    Topology::read(root)
}
