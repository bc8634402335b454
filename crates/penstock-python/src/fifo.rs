//! FIFOs and pipes in Python: what `penstock.fifo` and `penstock.pipes` are made of.

use std::ffi::OsString;
use std::time::Duration;

use penstock_core::engine::pipe_capacity;
use penstock_core::{Access, AsHandle, Error, Fifo};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::arguments::{self, Timeout};
use crate::errors::{self, OrRaise};
use crate::log;
use crate::sys;
use crate::ticket::{LoopWaker, Watch};
use crate::waiting::until;

/// Open a FIFO and return the descriptor. Waits for a reader if it is opened for writing.
#[pyfunction]
#[pyo3(signature = (path, mode, timeout=None))]
pub(crate) fn _fifo_open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    mode: &str,
    timeout: Option<Timeout>,
) -> PyResult<i32> {
    let access = access(mode)?;
    let fifo = fifo_at(path)?;
    let opened = match access {
        Access::Read => py.detach(|| fifo.reader()),
        Access::Write => {
            let mut opening = fifo.opening(access);
            until(py, timeout, |slice| opening.wait_for(Some(slice)).into())?
        }
    };
    let opened = opened.map_err(|error| raised(path, &error))?;
    sys::descriptor_of(py, opened, access == Access::Read)
}

/// Start to open a FIFO on a native thread.
#[pyfunction]
pub(crate) fn _fifo_open_async(path: &Bound<'_, PyAny>, mode: &str) -> PyResult<FifoTicket> {
    let access = access(mode)?;
    let fifo = fifo_at(path)?;
    let opening = path.py().detach(|| fifo.open_in_background(access));
    let ticket = opening.map_err(|error| raised(path, &error))?;
    Ok(FifoTicket { ticket, path: path.clone().unbind(), access })
}

fn access(mode: &str) -> PyResult<Access> {
    arguments::choice("mode", mode, &[("r", Access::Read), ("w", Access::Write)])
}

fn fifo_at(path: &Bound<'_, PyAny>) -> PyResult<Fifo> {
    let py = path.py();
    let found: OsString = py.import("os")?.call_method1("fsdecode", (path,))?.extract()?;
    if found.as_encoded_bytes().contains(&0) {
        return Err(PyValueError::new_err("embedded null byte")); // as Python's own functions say
    }
    py.detach(|| Fifo::at(found)).map_err(|error| raised(path, &error))
}

/// The exception for a FIFO, with its path.
fn raised(path: &Bound<'_, PyAny>, error: &Error) -> PyErr {
    in_words(path, error).unwrap_or_else(|failure| failure)
}

fn in_words(path: &Bound<'_, PyAny>, error: &Error) -> PyResult<PyErr> {
    let py = path.py();
    let errors = py.import("penstock.errors")?;
    let exception = match error {
        Error::Io { os_error, .. } => {
            let (errno, text) = errors::number_and_text(py, *os_error)?;
            py.get_type::<PyOSError>().call1((errno, text, path))?
        }
        Error::Stalled { waited, .. } => {
            let seconds = waited.as_secs_f64();
            let text = format!("nobody has opened the other side of {} after {seconds:.3} s", path.repr()?);
            errors.getattr("StalledError")?.call1((text, seconds))?
        }
        Error::Aborted { .. } => {
            let text = format!("the opening of {} was cancelled", path.repr()?);
            errors.getattr("ClosedError")?.call1((text,))?
        }
        _ => return Ok(errors::to_python(py, error)),
    };
    Ok(PyErr::from_value(exception))
}

/// The opening of a FIFO on a native thread. ``penstock.fifo.FifoTicket`` turns its descriptor into a stream.
#[pyclass(frozen, name = "_FifoTicket", module = "penstock._native")]
pub(crate) struct FifoTicket {
    ticket: penstock_core::FifoTicket,
    path: Py<PyAny>,
    access: Access,
}

impl FifoTicket {
    fn ended_within(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Result<(), Error>> {
        until(py, timeout, |slice| self.ticket.wait_for(Some(slice)).into())
    }

    fn raised(&self, py: Python<'_>, error: &Error) -> PyErr {
        raised(self.path.bind(py), error)
    }
}

#[pymethods]
impl FifoTicket {
    // The path can be any object, even one that has the ticket.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.path)
    }

    /// Whether the opening has ended, successfully or not.
    fn done(&self) -> bool {
        self.ticket.wait_for(Some(Duration::ZERO)).is_some()
    }

    /// Wait until the opening has ended.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        self.ended_within(py, timeout)?.map_err(|error| self.raised(py, &error))
    }

    /// Wait as ``wait`` does and return the exception of an opening that failed; None if it succeeded.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Timeout>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        errors::failure_of(py, self.ended_within(py, timeout)?, |error| self.raised(py, error))
    }

    /// Return the descriptor of an opening that has ended. Once.
    fn take(&self, py: Python<'_>) -> PyResult<i32> {
        let taken = py.detach(|| self.ticket.take());
        sys::descriptor_of(py, taken.map_err(|error| self.raised(py, &error))?, self.access == Access::Read)
    }

    /// Cancel the opening, and close a descriptor that was not taken.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.ticket.cancel());
    }

    /// Tell the waker that number when the opening ends.
    fn _notify(&self, waker: &LoopWaker, number: u64) -> Watch {
        Watch::start(self.ticket.ticket(), waker, number)
    }
}

/// Make a pipe of that capacity, or the nearest that is granted, and return its reading and writing descriptors.
#[pyfunction]
#[pyo3(signature = (capacity_bytes=None))]
pub(crate) fn _make_pipe(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
) -> PyResult<(i32, i32)> {
    let (reader, writer) = py.detach(|| penstock_core::make_pipe(capacity_bytes)).or_raise(py)?;
    log::smaller_pipe(py, "make_pipe", pipe_capacity(writer.as_handle()).ok(), capacity_bytes)?;
    let reader = sys::descriptor_of(py, reader.into(), true)?;
    Ok((reader, sys::descriptor_of(py, writer.into(), false)?))
}
