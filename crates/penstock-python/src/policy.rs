//! Thread policies: what is asked for, and what was granted.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// ThreadPolicy(*, nice=None, cpus=None)
/// --
///
/// What a worker thread asks of the scheduler; what is left out stays as the process has it.
///
/// Args:
///     nice: niceness from -20 (served first) to 19; below the present one takes a privilege.
///     cpus: numbers of the CPUs that it may run on.
///
/// Raises:
///     ValueError: a niceness out of range, or no CPU at all.
#[pyclass(frozen, eq, module = "penstock", from_py_object)]
#[derive(Clone, PartialEq)]
pub(crate) struct ThreadPolicy(pub(crate) penstock_core::ThreadPolicy);

#[pymethods]
impl ThreadPolicy {
    #[new]
    #[pyo3(signature = (*, nice=None, cpus=None))]
    fn new(nice: Option<i32>, cpus: Option<Vec<usize>>) -> PyResult<Self> {
        if nice.is_some_and(|nice| !(-20..=19).contains(&nice)) {
            return Err(PyValueError::new_err("nice must be from -20 to 19"));
        }
        if cpus.as_ref().is_some_and(Vec::is_empty) {
            return Err(PyValueError::new_err("cpus must name at least one CPU"));
        }
        Ok(Self(penstock_core::ThreadPolicy { nice, cpus }))
    }

    /// The niceness asked for.
    #[getter]
    fn nice(&self) -> Option<i32> {
        self.0.nice
    }

    /// The CPUs asked for.
    #[getter]
    fn cpus<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.cpus.as_ref().map(|cpus| PyTuple::new(py, cpus)).transpose()
    }

    fn __repr__(&self) -> String {
        format!("ThreadPolicy(nice={}, cpus={})", or_none(self.0.nice), or_none(self.0.cpus.as_ref()))
    }
}

fn or_none(value: Option<impl std::fmt::Debug>) -> String {
    value.map_or_else(|| "None".into(), |value| format!("{value:?}"))
}

/// What a worker thread runs with, read back from the system.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct AppliedPolicy(pub(crate) penstock_core::AppliedPolicy);

#[pymethods]
impl AppliedPolicy {
    /// Its niceness.
    #[getter]
    fn nice(&self) -> i32 {
        self.0.nice
    }

    /// The CPUs that it may run on.
    #[getter]
    fn cpus<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.cpus)
    }

    /// What was refused, and why.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.notes)
    }

    fn __repr__(&self) -> String {
        format!("AppliedPolicy(nice={}, cpus={:?}, notes={:?})", self.0.nice, self.0.cpus, self.0.notes)
    }
}
