//! The confinement of a process that reads what nobody trusts.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::sys::confine;
use crate::sys::confinement::Confinement;

/// Confine this process, and the programs that it will run, for ever. It must have one thread only.
///
/// It can then write to no file, open no socket, and send no signal to others. What is open stays open.
///
/// Args:
///     readable: folders and files that it may read and run. Those that are missing are left out.
///     source: a descriptor of a file that it may open again to read it.
///     memory_bytes: the limit of its private memory.
///     cpu_s: the limit of its CPU time.
///
/// Returns:
///     A word for each thing that the kernel cannot do: "files", "truncation", "signals", "system calls",
///     "privileges", "limits", or "threads" if there were others.
#[pyfunction]
#[pyo3(signature = (readable, *, source, memory_bytes, cpu_s))]
pub(crate) fn _confine(
    py: Python<'_>,
    readable: Vec<PathBuf>,
    source: i32,
    memory_bytes: u64,
    cpu_s: u64,
) -> PyResult<Vec<&'static str>> {
    if source < 0 {
        return Err(PyValueError::new_err(format!("source must be a descriptor, not {source}")));
    }
    Ok(py.detach(|| {
        confine(&Confinement { readable: &readable, source, memory_bytes, cpu: Duration::from_secs(cpu_s) })
    }))
}
