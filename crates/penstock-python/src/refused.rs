//! What Linux has and Windows hasn't: classes by these names, which can't be made, and calls that say what to use instead.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::interned::intern;

/// Raises the `OSError` that names what to use instead.
fn refuse<T>(py: Python<'_>, what: &str) -> PyResult<T> {
    let refusals = py.import(intern!(py, "penstock._platform.refusals"))?;
    refusals.call_method1(intern!(py, "refuse"), (what,))?;
    unreachable!("it raises on Windows")
}

macro_rules! classes {
    ($($name:ident = $python:literal),*) => {$(
        /// See the documentation of ``penstock``: only Linux has it.
        #[pyclass(frozen, module = "penstock._native", name = $python)]
        pub(crate) struct $name;

        #[pymethods]
        impl $name {
            #[new]
            #[pyo3(signature = (*_arguments, **_named))]
            fn new(
                py: Python<'_>,
                _arguments: &Bound<'_, PyTuple>,
                _named: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<Self> {
                refuse(py, $python.trim_start_matches('_'))
            }
        }
    )*};
}

classes!(RelayReport = "RelayReport", RelayTicket = "RelayTicket", Tee = "Tee", TeeReport = "TeeReport");

/// A relay that copies, in Python.
#[pyfunction]
#[pyo3(name = "_Relay", signature = (*arguments))]
pub(crate) fn relay<'py>(py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "penstock._streams.copied"))?.call_method1(intern!(py, "CopyingRelay"), arguments)
}

/// Starts a relay that copies, on a thread of Python.
#[pyfunction]
#[pyo3(signature = (*arguments))]
pub(crate) fn _start_relay<'py>(
    py: Python<'py>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "penstock._streams.copied"))?.call_method1(intern!(py, "CopyTicket"), arguments)
}
