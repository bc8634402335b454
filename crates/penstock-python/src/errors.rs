//! Errors of the core to exceptions of `penstock.errors`.

use penstock_core::Error;
use penstock_pipeline::{Cause, ChunkError};
use pyo3::exceptions::{PyBaseException, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::pipeline_object::Raised;
use crate::sys;

/// Raises errors of the core.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;

    /// The same for an object that messages call `whose`.
    fn or_raise_of(self, py: Python<'_>, whose: &str) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.or_raise_of(py, STREAM)
    }

    fn or_raise_of(self, py: Python<'_>, whose: &str) -> PyResult<T> {
        self.map_err(|error| to_python_of(py, &error, whose))
    }
}

/// What an object is in messages if its kind isn't known.
const STREAM: &str = "stream";

/// What a ticket's `exception()` returns: the exception of an operation that has failed, None if it succeeded. A wait that timed out
/// raises.
pub(crate) fn failure_of<'py>(
    py: Python<'py>,
    outcome: Result<(), Error>,
    to_python: impl Fn(&Error) -> PyErr,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match outcome {
        Ok(()) => Ok(None),
        Err(error @ Error::Stalled { .. }) => Err(to_python(&error)),
        Err(error) => Ok(Some(value_of(py, to_python(&error)))),
    }
}

/// The exception as an object.
pub(crate) fn value_of(py: Python<'_>, error: PyErr) -> Bound<'_, PyAny> {
    error.into_value(py).into_bound(py).into_any()
}

/// Of memory that is the caller's to use, such as a copy of its bytes.
pub(crate) fn no_memory(error: Error) -> PyErr {
    PyMemoryError::new_err(error.to_string())
}

pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    to_python_of(py, error, STREAM)
}

/// The exception about an object that its message calls `whose`.
pub(crate) fn to_python_of(py: Python<'_>, error: &Error, whose: &str) -> PyErr {
    build(py, error, whose).unwrap_or_else(|failure| failure)
}

/// The message, with what only users of Python need to know.
fn message(error: &Error, whose: &str) -> String {
    match error {
        Error::Closed => format!("the {whose} is closed"),
        Error::Aborted { bytes_lost } => format!("the {whose} was aborted. {bytes_lost} bytes were lost"),
        Error::Forked => {
            format!("the {whose} belongs to the parent process. Make another one in this process")
        }
        Error::Stalled { waited, bytes_pending } if whose == WRITER => format!(
            "timed out after {:.3} s. The reader has not taken {bytes_pending} bytes yet. Nothing is lost. Call again, \
             or abort()",
            waited.as_secs_f64()
        ),
        Error::Stalled { waited, bytes_pending } if whose == READER => format!(
            "timed out after {:.3} s. {bytes_pending} bytes of the frame are missing. Nothing is lost. Call again",
            waited.as_secs_f64()
        ),
        _ => error.to_string(),
    }
}

/// A writer, in messages.
pub(crate) const WRITER: &str = "writer";

/// A reader, in messages.
pub(crate) const READER: &str = "reader";

fn build(py: Python<'_>, error: &Error, whose: &str) -> PyResult<PyErr> {
    if let Error::Custom(custom) = error
        && let Some(error) = custom.downcast_ref()
    {
        return chunk_error(py, error);
    }
    let errors = py.import("penstock.errors")?;
    let exception = match error {
        Error::Broken { os_error, bytes_delivered, bytes_lost } => errors
            .getattr("BrokenStreamError")?
            .call1((sys::errno(py, *os_error), error.to_string(), bytes_delivered, bytes_lost))?,
        Error::Stalled { waited, bytes_pending } => errors.getattr("StalledError")?.call1((
            message(error, whose),
            waited.as_secs_f64(),
            bytes_pending,
        ))?,
        Error::Truncated { frames, frame_bytes, bytes_over } => {
            let raised = errors.getattr("TruncatedStreamError")?;
            raised.call1((error.to_string(), frames, frame_bytes, bytes_over))?
        }
        Error::Io { os_error, bytes_delivered, bytes_lost } => {
            return of_system(py, *os_error, *bytes_delivered, *bytes_lost);
        }
        Error::NoThread { os_error, bytes_delivered, bytes_lost } => {
            // Constructed without the number: for EAGAIN, Python would make it a `BlockingIOError`, and nothing here is non-blocking.
            let exception = py.get_type::<PyOSError>().call1((error.to_string(),))?;
            exception.setattr("errno", sys::errno(py, *os_error))?;
            exception.setattr("strerror", error.to_string())?;
            if *bytes_lost > 0 {
                add_byte_counts(&exception, *bytes_delivered, *bytes_lost)?;
            }
            exception
        }
        Error::Unsuitable(why) => return Ok(PyValueError::new_err(why.to_string())),
        _ => errors.getattr("ClosedError")?.call1((message(error, whose),))?,
    };
    Ok(PyErr::from_value(exception))
}

/// The exception for a chunk that failed. An exception of the caller's own code becomes its cause.
pub(crate) fn chunk_error(py: Python<'_>, error: &ChunkError) -> PyResult<PyErr> {
    let (class, failure) = match &error.cause {
        Cause::Io { os_error } => ("ChunkReadError", Some(number_and_text(py, *os_error)?)),
        Cause::Corrupt(_) | Cause::Truncated | Cause::TooLarge { .. } | Cause::WindowTooLarge { .. } => {
            ("ChunkDataError", None)
        }
        _ => ("PipelineError", None),
    };
    let place = (&*error.name, error.offset, error.index, &error.stage);
    let class = py.import("penstock.errors")?.getattr(class)?;
    let raised = match failure {
        Some((errno, why)) => class.call1((errno, why, place.0, place.1, place.2, place.3))?,
        None => class.call1((error.cause.to_string(), place.0, place.1, place.2, place.3))?,
    };
    let raised = PyErr::from_value(raised);
    if let Cause::Failed(own) = &error.cause
        && let Some(own) = own.downcast_ref::<Raised>()
    {
        raised.set_cause(py, own.to_python(py));
    }
    Ok(raised)
}

/// An `OSError`, in the subclass that Python has for the number. With the byte counts if a stream failed.
fn of_system(py: Python<'_>, os_error: i32, delivered: u64, lost: u64) -> PyResult<PyErr> {
    let exception = py.get_type::<PyOSError>().call1(number_and_text(py, os_error)?)?;
    if lost > 0 {
        add_byte_counts(&exception, delivered, lost)?;
    }
    Ok(PyErr::from_value(exception))
}

/// The number of a failure, and its text, as Python's own exceptions have them.
pub(crate) fn number_and_text(py: Python<'_>, os_error: i32) -> PyResult<(i32, Bound<'_, PyAny>)> {
    let errno = sys::errno(py, os_error);
    Ok((errno, py.import("os")?.call_method1("strerror", (errno,))?))
}

/// Sets the byte counts on an exception of any class, with a note about lost bytes unless it has counts.
pub(crate) fn add_byte_counts(exception: &Bound<'_, PyAny>, delivered: u64, lost: u64) -> PyResult<()> {
    let says_so = exception.getattr("__dict__")?.contains("bytes_lost")?;
    // Not `setattr`, which a frozen dataclass refuses.
    let set = exception.py().get_type::<PyBaseException>().getattr("__setattr__")?;
    set.call1((exception, "bytes_delivered", delivered))?;
    set.call1((exception, "bytes_lost", lost))?;
    if lost > 0 && !says_so {
        exception
            .call_method1("add_note", (format!("{delivered} bytes were delivered, {lost} were lost"),))?;
    }
    Ok(())
}

/// The first failure, with a note for each of the others.
pub(crate) fn first_of(py: Python<'_>, first: &Error, others: &[Error]) -> PyErr {
    let first = to_python(py, first);
    for other in others {
        let note = (format!("another stream failed as well: {other}"),);
        if let Err(failure) = first.value(py).call_method1("add_note", note) {
            return failure;
        }
    }
    first
}
