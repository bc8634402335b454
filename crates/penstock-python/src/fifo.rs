//! FIFOs and pipes in Python: what `penstock.fifo` and `penstock.pipes` are made of.

use std::ffi::OsStr;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use penstock_core::{Access, Error, Fifo};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::arguments::{self, Seconds};
use crate::errors;
use crate::ticket::Watch;
use crate::waiting::{Attempt, until};

/// Opens a FIFO and gives the descriptor; waits for a reader if it is opened for writing.
#[pyfunction]
#[pyo3(signature = (path, mode, timeout=None))]
pub(crate) fn _fifo_open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    mode: &str,
    timeout: Option<Seconds>,
) -> PyResult<i32> {
    let timeout = arguments::timeout(timeout)?;
    let access = access(mode)?;
    let fifo = fifo_at(path)?;
    let opened = match access {
        Access::Read => py.detach(|| fifo.reader()),
        Access::Both => py.detach(|| fifo.both()),
        Access::Write => {
            let mut opening = fifo.opening(access);
            until(py, timeout, |slice| opening.wait_for(Some(slice)).into())?
        }
    };
    opened.map(IntoRawFd::into_raw_fd).map_err(|error| raised(path, &error))
}

/// Begins to open a FIFO on a native thread.
#[pyfunction]
pub(crate) fn _fifo_open_async(path: &Bound<'_, PyAny>, mode: &str) -> PyResult<FifoTicket> {
    let access = access(mode)?;
    let fifo = fifo_at(path)?;
    let ticket = fifo.open_in_background(access).map_err(|error| raised(path, &error))?;
    Ok(FifoTicket { ticket, path: path.clone().unbind() })
}

fn access(mode: &str) -> PyResult<Access> {
    match mode {
        "r" => Ok(Access::Read),
        "w" => Ok(Access::Write),
        "r+" => Ok(Access::Both),
        _ => Err(PyValueError::new_err(format!("mode must be 'r', 'w' or 'r+', not {mode:?}"))),
    }
}

fn fifo_at(path: &Bound<'_, PyAny>) -> PyResult<Fifo> {
    let py = path.py();
    let encoded = py.import("os")?.call_method1("fsencode", (path,))?;
    let bytes: &[u8] = encoded.extract()?;
    if bytes.contains(&0) {
        return Err(PyValueError::new_err("embedded null byte")); // as Python's own functions say
    }
    py.detach(|| Fifo::at(OsStr::from_bytes(bytes))).map_err(|error| raised(path, &error))
}

/// The exception, in words that fit a FIFO and with its path.
fn raised(path: &Bound<'_, PyAny>, error: &Error) -> PyErr {
    in_words(path, error).unwrap_or_else(|failure| failure)
}

fn in_words(path: &Bound<'_, PyAny>, error: &Error) -> PyResult<PyErr> {
    let py = path.py();
    let errors = py.import("penstock.errors")?;
    let exception = match error {
        Error::Io { errno, .. } => {
            let number = errno.raw_os_error();
            let text = py.import("os")?.call_method1("strerror", (number,))?;
            py.get_type::<PyOSError>().call1((number, text, path))?
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

/// The opening of a FIFO on a native thread: `penstock.fifo.FifoTicket` makes a stream of its descriptor.
#[pyclass(frozen, name = "_FifoTicket", module = "penstock._native")]
pub(crate) struct FifoTicket {
    ticket: penstock_core::FifoTicket,
    path: Py<PyAny>,
}

impl FifoTicket {
    fn ended_within(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Result<(), Error>> {
        until(py, arguments::timeout(timeout)?, |slice| {
            self.ticket.wait_for(Some(slice)).map_or(Attempt::NotYet { bytes_pending: 0 }, Attempt::Ended)
        })
    }

    fn raised(&self, py: Python<'_>, error: &Error) -> PyErr {
        raised(self.path.bind(py), error)
    }
}

#[pymethods]
impl FifoTicket {
    /// The path may be any object, also one that has the ticket.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.path)
    }

    /// Whether the opening has ended, well or not.
    fn done(&self) -> bool {
        self.ticket.wait_for(Some(Duration::ZERO)).is_some()
    }

    /// Waits until the opening has ended.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        self.ended_within(py, timeout)?.map_err(|error| self.raised(py, &error))
    }

    /// What `wait` would raise.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.ended_within(py, timeout)? {
            Ok(()) => Ok(None),
            Err(error @ Error::Stalled { .. }) => Err(self.raised(py, &error)),
            Err(error) => Ok(Some(self.raised(py, &error).into_value(py).into_bound(py).into_any())),
        }
    }

    /// Gives the descriptor, once, of an opening that has ended.
    fn take(&self, py: Python<'_>) -> PyResult<i32> {
        let taken = py.detach(|| self.ticket.take());
        taken.map(IntoRawFd::into_raw_fd).map_err(|error| self.raised(py, &error))
    }

    /// Gives the opening up, and closes a descriptor that was not taken.
    fn cancel(&self, py: Python<'_>) {
        py.detach(|| self.ticket.cancel());
    }

    /// Adds 1 to the eventfd when the opening ends. The answer ends the watch.
    fn _notify(&self, eventfd: i32) -> PyResult<Watch> {
        Watch::start(self.ticket.ticket(), eventfd)
    }
}

/// Makes a pipe, of that capacity or what comes nearest to it, and gives the descriptors of its reader and its writer.
#[pyfunction]
#[pyo3(signature = (capacity_bytes=None))]
pub(crate) fn _make_pipe(
    py: Python<'_>,
    #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
) -> PyResult<(i32, i32)> {
    let pipe = penstock_core::Pipe::new(capacity_bytes).map_err(|error| errors::to_python(py, &error))?;
    let (reader, writer) = pipe.into_ends();
    Ok((reader.into_raw_fd(), writer.into_raw_fd()))
}
