//! Arguments: Python objects to what the core takes, with Python's usual errors at the call.

use std::time::Duration;

use crate::interned::intern;
use crate::sys;
use penstock_core::Mode;
use penstock_core::engine::handle;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyInt, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

/// A descriptor: an int, or an object with `fileno()`. Flushes what Python has buffered for it, so that bytes written through the
/// object come before ours.
pub(crate) fn descriptor(fd: &Bound<'_, PyAny>) -> PyResult<handle::Borrowed<'static>> {
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
    // SAFETY: it is not negative.
    unsafe { sys::borrow(py, number) }
}

/// What a Python stream has read ahead of the program.
#[derive(Default)]
pub(crate) struct Ahead {
    pub(crate) bytes: Vec<u8>,
    stream: Option<Py<PyAny>>,
}

impl Ahead {
    /// Visits the stream for the garbage collector.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.stream.as_ref().map_or(Ok(()), |stream| visit.call(stream))
    }

    /// Takes the bytes out of the stream's buffer, after a copy of them has found its reader.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<()> {
        match &self.stream {
            Some(stream) if !self.bytes.is_empty() => {
                stream.call_method1(py, intern!(py, "read"), (self.bytes.len(),)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// A descriptor to read from, and what a Python stream has read ahead of it. Refuses streams whose bytes are not their descriptor's.
///
/// The descriptor of a file is set to the stream's position. Of anything else, the bytes stay in the stream until they are taken.
pub(crate) fn source(fd: &Bound<'_, PyAny>) -> PyResult<(handle::Borrowed<'static>, Ahead)> {
    if fd.is_instance_of::<PyInt>() {
        return Ok((descriptor(fd)?, Ahead::default()));
    }
    let found = streams(fd)?.call_method1(intern!(fd.py(), "source"), (fd, "fd"))?;
    let (stream, bytes): (Bound<'_, PyAny>, PyBackedBytes) = found.extract()?;
    let number = descriptor(&stream)?;
    Ok((number, Ahead { bytes: bytes.to_vec(), stream: Some(stream.unbind()) }))
}

/// What a tee may read from: a source of which nothing has been read ahead.
pub(crate) fn tee_source<'py>(src: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if src.is_instance_of::<PyInt>() {
        return Ok(src.clone());
    }
    streams(src)?.call_method1(intern!(src.py(), "tee_source"), (src,))
}

/// A descriptor to write to, flushed. Refuses streams whose bytes are not their descriptor's.
pub(crate) fn destination(fd: &Bound<'_, PyAny>, name: &str) -> PyResult<handle::Borrowed<'static>> {
    if !fd.is_instance_of::<PyInt>() {
        streams(fd)?.call_method1(intern!(fd.py(), "check_destination"), (fd, name))?;
    }
    descriptor(fd)
}

/// The exception of a tee: of an EBADF, it says which end is meant.
pub(crate) fn name_end(src: &Bound<'_, PyAny>, outputs: &Bound<'_, PyTuple>, raised: PyErr) -> PyErr {
    let arguments = (raised.value(src.py()).clone(), src, outputs, "output");
    let named =
        streams(src).and_then(|streams| streams.call_method1(intern!(src.py(), "name_end"), arguments));
    named.err().unwrap_or(raised)
}

/// Begins the message of an ``OSError`` with where it happened.
pub(crate) fn say_where(py: Python<'_>, raised: &PyErr, place: &str) -> PyResult<()> {
    let streams = py.import(intern!(py, "penstock._streams.python_streams"))?;
    streams.call_method1(intern!(py, "say_where"), (raised.value(py), place)).map(drop)
}

fn streams<'py>(fd: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyModule>> {
    fd.py().import(intern!(fd.py(), "penstock._streams.python_streams"))
}

fn is_path(fd: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(fd.is_instance_of::<PyString>()
        || fd.is_instance_of::<PyBytes>()
        || fd.hasattr(intern!(fd.py(), "__fspath__"))?)
}

fn not_a_path(path: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let path = path.py().import("os")?.call_method1("fspath", (path,))?.repr()?;
    Ok(PyTypeError::new_err(format!(
        "expected an open file or a descriptor, not a path. Pass open({path}, 'rb') to read from it, or \
         open({path}, 'wb') to write to it"
    )))
}

/// A name in quotes, as Python writes it.
pub(crate) fn quoted(name: &str) -> String {
    format!("'{}'", name.escape_debug())
}

/// The choice of that name, for an argument that takes one of a few names.
pub(crate) fn choice<T: Copy>(argument: &str, name: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(choice, _)| *choice == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(choice, _)| format!("'{choice}'")).collect();
        let (last, others) = names.split_last().expect("there are choices");
        let others = others.join(", ");
        PyValueError::new_err(format!("{argument} must be {others} or {last}, not {}", quoted(name)))
    })
}

pub(crate) fn mode(name: &str) -> PyResult<Mode> {
    choice("mode", name, sys::MODES)
}

/// The most threads for one part of a pipeline; more are a mistake. Chosen: we know no machine with more CPUs.
const MOST_WORKERS: usize = 1024;

/// What memory can hold.
const MOST_BYTES: usize = isize::MAX as usize;

/// Defines functions for `from_py_with`, for arguments of these names.
macro_rules! counts {
    ($($name:ident),*) => {$(
        pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<usize> {
            count(stringify!($name), value)
        }
    )*};
}

/// The same for arguments that may be None.
macro_rules! optional_counts {
    ($($name:ident),*) => {$(
        pub(crate) fn $name(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
            if value.is_none() { Ok(None) } else { count(stringify!($name), value).map(Some) }
        }
    )*};
}

counts!(frame_bytes, height, max_chunk_bytes, piece_bytes, width, workers);
optional_counts!(capacity_bytes, queue_bytes, queue_items);

/// A count or size: an integer of at least 1 (a budget may be nothing), and at most what its name allows.
fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let least = usize::from(name != "nbytes");
    let number = number(value, name)?.unwrap_or(if value.gt(0)? { i64::MAX } else { i64::MIN });
    match usize::try_from(number).ok().filter(|number| *number >= least) {
        None => Err(PyValueError::new_err(format!("{name} must be at least {least}, not {value}"))),
        Some(number) if name == "workers" && number > MOST_WORKERS => {
            Err(PyValueError::new_err(format!("{name} must be at most {MOST_WORKERS}, not {value}")))
        }
        Some(number) if is_size(name) && number >= MOST_BYTES => {
            Err(PyValueError::new_err(format!("{name} must be less than memory can hold, not {value}")))
        }
        // The other arguments are limits. A limit above `MOST_BYTES` means no limit.
        Some(number) => Ok(number.min(MOST_BYTES)),
    }
}

/// Whether memory of that size, or of a multiple of it, is allocated.
fn is_size(name: &str) -> bool {
    matches!(name, "frame_bytes" | "height" | "width")
}

/// Check a count or size, for the parts that are written in Python.
#[pyfunction]
pub(crate) fn _count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    count(name, value)
}

/// Check a number of seconds, for the parts that are written in Python. None stays None.
#[pyfunction]
pub(crate) fn _seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_none() {
        return Ok(None);
    }
    let seconds = value.extract::<Seconds>().map_err(|error| {
        PyTypeError::new_err(format!(
            "{name} must be None or seconds, not {value:?} ({})",
            error.value(value.py())
        ))
    })?;
    duration(name, seconds)?;
    Ok(Some(seconds.0))
}

/// An integer, and not a bool; none if it does not fit into 64 bits.
pub(crate) fn number(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<i64>> {
    // Of any type that is one, as NumPy's are.
    let index = value.call_method0("__index__").ok().filter(|_| !value.is_instance_of::<PyBool>());
    let Some(index) = index.filter(|index| index.is_instance_of::<PyInt>()) else {
        return Err(PyTypeError::new_err(format!("{name} must be an integer, not {value:?}")));
    };
    match index.extract() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A number of seconds, not checked yet: infinite for an int that no float can hold.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(pub(crate) f64);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match value.extract() {
            Ok(seconds) => Ok(Self(seconds)),
            Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
                Ok(Self(if value.gt(0)? { f64::INFINITY } else { f64::NEG_INFINITY }))
            }
            Err(error) => Err(error),
        }
    }
}

/// The argument `timeout`: how long a call may wait. More than the clock can count is `Duration::MAX`.
#[derive(Clone, Copy)]
pub(crate) struct Timeout(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Timeout {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(duration("timeout", value.extract()?)?.unwrap_or(Duration::MAX)))
    }
}

/// For `from_py_with`: seconds that are not None.
pub(crate) fn stall_timeout(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    let seconds = value.extract()?;
    duration("stall_timeout", seconds)?;
    Ok(seconds.0)
}

/// Seconds as a duration; none for more than the clock can count, which is no limit.
pub(crate) fn duration(name: &str, Seconds(seconds): Seconds) -> PyResult<Option<Duration>> {
    if seconds.is_nan() || seconds < 0.0 {
        let why = format!("{name} must be None or at least 0 seconds, not {seconds}");
        return Err(PyValueError::new_err(why));
    }
    Ok(Duration::try_from_secs_f64(seconds).ok())
}
