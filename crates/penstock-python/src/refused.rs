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

classes!(
    Relay = "_Relay",
    RelayReport = "RelayReport",
    RelayTicket = "RelayTicket",
    Tee = "Tee",
    TeeReport = "TeeReport"
);

/// See the documentation of ``penstock``: only Linux has it.
#[pyfunction]
#[pyo3(signature = (*_arguments))]
pub(crate) fn _start_relay(py: Python<'_>, _arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
    refuse(py, "relay")
}
