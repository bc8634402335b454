//! Readers in Python, and the frames that they give.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use penstock_core::{Error, ReaderOptions};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::arguments::{self, Seconds};
use crate::buffer::{export_space, release_parked};
use crate::conversion::Conversion;
use crate::errors;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Ticket;
use crate::waiting::{Attempt, until};

/// Reader(fd, *, frame_bytes, depth=4, capacity_bytes=None, policy=None, conversion=None, parts=1)
/// --
///
/// Reads frames of a fixed size from a file descriptor, ahead and whole, by a native thread. Iterate over it, with ``for`` or
/// ``async for``, or call ``read``.
///
/// The reader owns a duplicate of the descriptor, and begins at once. A stream that ends inside a frame, or fails, gives all whole
/// frames first, then its error; what came last comes again.
///
/// Args:
///     fd: an int, or anything with ``fileno()``, open for reading: a pipe, a socket that is a stream, a file from its present
///         position, a device. A buffered stream of Python's, such as ``Popen.stdout``, is read from the first byte that the program
///         has not taken: what the stream has read ahead is the reader's from now on.
///     frame_bytes: the size of a frame, as it comes out.
///     depth: frames that are read ahead at most. Besides them only those take memory that you have, and as many as ``depth`` and
///         two that are kept for the next.
///     capacity_bytes: size to ask for if it is a pipe; unless told, it is grown to 256 KiB where that is granted.
///     policy: priority and CPUs of the worker thread.
///     conversion: what the worker makes of each part of a frame.
///     parts: of how many parts a frame is made, one after another, each by the conversion.
///
/// Raises:
///     OSError: EBADF for a descriptor that is closed or not open for reading, EISDIR for a directory, ENOMEM for frames that do
///         not fit into memory, or what the system says.
///     TypeError: the descriptor does not carry what the object reads: that of a text stream, a compressed file, a TLS socket. Or
///         there is none.
///     ValueError, TypeError: a wrong argument, or a socket that keeps messages apart.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Reader(penstock_core::Reader);

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (fd, *, frame_bytes, depth=4, capacity_bytes=None, policy=None, conversion=None, parts=1))]
    fn new(
        fd: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::frame_bytes)] frame_bytes: usize,
        #[pyo3(from_py_with = arguments::depth)] depth: usize,
        #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
        conversion: Option<&Conversion>,
        #[pyo3(from_py_with = arguments::parts)] parts: usize,
    ) -> PyResult<Self> {
        let py = fd.py();
        let (source, ahead) = arguments::source(fd)?;
        let options = ReaderOptions {
            frame_bytes,
            depth,
            capacity_bytes,
            policy: policy.map(|policy| policy.0),
            transform: conversion.map(Conversion::recipe),
            parts,
            ahead: ahead.bytes.clone(),
        };
        let reader = penstock_core::Reader::new(source, &options);
        let reader = reader.map_err(|error| errors::to_python(py, &error))?;
        ahead.take(py)?;
        Ok(Self(reader))
    }

    /// The next frame in order; None when the stream has ended between two frames.
    ///
    /// Args:
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     TruncatedStreamError: the stream has ended inside a frame.
    ///     OSError: it has failed.
    ///     StalledError: no whole frame came in time. Nothing is lost: the next call goes on.
    ///     ClosedError: the reader is closed, or was a parent process's.
    #[pyo3(signature = (timeout=None))]
    fn read(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<Frame>> {
        let timeout = arguments::timeout(timeout)?;
        self.read_within(py, timeout)
    }

    /// Copies the next frame into a buffer and returns its size; 0 when the stream has ended between two frames.
    ///
    /// Args:
    ///     buffer: anything with the buffer protocol that can be written to, is C-contiguous and has room for a frame. What it has
    ///         room for beyond that stays as it is.
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     ValueError: the buffer is smaller than a frame, or not C-contiguous. No frame is lost.
    ///     BufferError, TypeError: it cannot be written to, or is no buffer.
    ///     TruncatedStreamError, OSError, StalledError, ClosedError: as ``read``.
    #[pyo3(signature = (buffer, timeout=None))]
    fn readinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<usize> {
        let timeout = arguments::timeout(timeout)?;
        let space = export_space(buffer)?;
        let frame_bytes = self.0.frame_bytes();
        let copied = if space.len() < frame_bytes {
            let why = format!("buffer has room for {} bytes, and a frame has {frame_bytes}", space.len());
            Err(PyValueError::new_err(why))
        } else {
            self.read_within(py, timeout).map(|frame| {
                frame.map_or(0, |Frame(frame)| {
                    // SAFETY: the export pins the memory, which can be written to and has room; a frame's is its own.
                    py.detach(|| unsafe {
                        ptr::copy_nonoverlapping(frame.as_ptr(), space.as_mut_ptr(), frame.len());
                    });
                    frame.len()
                })
            })
        };
        drop(space);
        release_parked(py);
        copied
    }

    /// The newest frame, for live sources: one that became whole since the call and that nobody has got; None at the end. The
    /// frames before it are dropped, which ``stats.frames_dropped`` and gaps in ``index`` tell.
    ///
    /// At the first call, what has been read and what waits whole in the pipe is passed over, unless nothing else comes before
    /// the end. From then on the worker never waits for callers, so that the source never does. ``read``, ``readinto`` and
    /// iteration have it wait again, and give every frame that has not been dropped.
    ///
    /// Args:
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     TruncatedStreamError, OSError, StalledError, ClosedError: as ``read``.
    #[pyo3(signature = (timeout=None))]
    fn latest(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<Frame>> {
        let timeout = arguments::timeout(timeout)?;
        until(py, timeout, |slice| self.0.latest(Some(slice)).into())?
            .map(|frame| frame.map(Frame))
            .map_err(|error| errors::to_python(py, &error))
    }

    /// What came of the frame in the middle of which the stream ended, once ``TruncatedStreamError`` has told so: a shorter frame.
    /// None with a conversion, and the second time.
    fn take_rest(&self) -> Option<Frame> {
        self.0.take_rest().map(Frame)
    }

    /// Ends it wherever it is, and drops what nobody has got; frames that you have stay yours. The duplicate of the descriptor is
    /// closed, and threads that wait for a frame get ``ClosedError``. Closing again does nothing.
    ///
    /// It waits for its thread for at most 5 seconds, awake to signals: what cannot be interrupted is one read of a disk, and the
    /// close of a socket that lingers.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed =
            until(py, Some(penstock_core::Reader::LEAVE_WITHIN), |slice| match self.0.close_within(slice) {
                true => Attempt::Ended(Ok(())),
                false => Attempt::NotYet { bytes_pending: 0 },
            })?;
        drop(closed); // a thread that takes longer is left behind, and ends when it can
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// What it has done so far. The figures stay when it has ended or was closed.
    #[getter]
    fn stats(&self) -> ReaderStats {
        ReaderStats(self.0.stats())
    }

    /// Done when ``read`` would not wait.
    fn _ready(&self) -> Ticket {
        Ticket(self.0.ready())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        self.read_within(py, None)
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("penstock._asyncio")?.call_method1("next_frame", (slf,))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exc_type: Option<&Bound<'_, PyType>>,
        _exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.close(py)
    }
}

impl Reader {
    fn read_within(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Option<Frame>> {
        until(py, timeout, |slice| self.0.read(Some(slice)).into())?
            .map(|frame| frame.map(Frame))
            .map_err(|error: Error| errors::to_python(py, &error))
    }
}

/// A frame of a ``Reader``. It is a writable buffer: ``memoryview(frame)`` and ``numpy.asarray(frame)`` look at its bytes where they
/// lie, page-aligned, without a copy.
///
/// Its memory goes back to the reader, to be used again, when the last view of it is dropped.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct Frame(penstock_core::Frame);

#[pymethods]
impl Frame {
    /// Its number in the stream, from 0; those that were dropped count.
    #[getter]
    fn index(&self) -> u64 {
        self.0.index()
    }

    /// Its size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.len()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Fills a view of the bytes.
    ///
    /// # Safety
    ///
    /// The view is one that the interpreter wants to have filled.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let frame = &slf.get().0;
        let (start, bytes) = (frame.buffer().start().cast(), frame.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays where it is while the frame lives, which the view keeps alive; Rust no longer looks into it.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    fn __repr__(&self) -> String {
        format!("<Frame {}: {} bytes>", self.0.index(), self.0.len())
    }
}

/// What a reader has done so far. A picture of one moment.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct ReaderStats(penstock_core::ReaderStats);

#[pymethods]
impl ReaderStats {
    /// Whole frames read.
    #[getter]
    fn frames_read(&self) -> u64 {
        self.0.frames_read
    }

    /// Frames that callers got.
    #[getter]
    fn frames_delivered(&self) -> u64 {
        self.0.frames_delivered
    }

    /// Frames that ``latest`` passed over.
    #[getter]
    fn frames_dropped(&self) -> u64 {
        self.0.frames_dropped
    }

    /// Frames that are read and wait for a caller.
    #[getter]
    fn frames_waiting(&self) -> usize {
        self.0.frames_waiting
    }

    /// Bytes read, also of a frame that is not whole.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.0.bytes_read
    }

    /// The size of the pipe in bytes, as granted; None if it is not a pipe.
    #[getter]
    fn capacity_bytes(&self) -> Option<usize> {
        self.0.capacity_bytes
    }

    /// Seconds that callers waited for frames.
    #[getter]
    fn caller_wait_s(&self) -> f64 {
        self.0.caller_blocked.as_secs_f64()
    }

    /// Seconds that the worker waited for its input, the source.
    #[getter]
    fn input_wait_s(&self) -> f64 {
        self.0.worker_blocked.as_secs_f64()
    }

    /// Seconds that the worker waited for callers to take frames, because ``depth`` of them were ready.
    #[getter]
    fn output_wait_s(&self) -> f64 {
        self.0.worker_full.as_secs_f64()
    }

    /// Seconds that the worker spent on converting.
    #[getter]
    fn converting_s(&self) -> f64 {
        self.0.transforming.as_secs_f64()
    }

    /// What the worker runs with; None without a policy, and before it has started.
    #[getter]
    fn policy(&self) -> Option<AppliedPolicy> {
        self.0.policy.clone().map(AppliedPolicy)
    }

    fn __repr__(&self) -> String {
        let Self(stats) = self;
        format!(
            "<ReaderStats {} frames read, {} delivered, {} dropped, {} waiting>",
            stats.frames_read, stats.frames_delivered, stats.frames_dropped, stats.frames_waiting
        )
    }
}
