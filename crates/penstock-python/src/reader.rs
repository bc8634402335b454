//! Readers in Python, and the frames that they give.

use std::ffi::c_int;
use std::ptr;

use penstock_core::ReaderOptions;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::{self, Timeout};
use crate::buffer::{export_space, fill_view};
use crate::errors::{OrRaise, READER};
use crate::log;
use crate::parked::ReleaseAtEnd;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Ticket;
use crate::waiting::{coroutine, until};

/// Reads frames of a fixed size from a file descriptor, ahead of the caller, on a native thread.
///
/// Iterate over it with ``for`` or ``async for``, or call ``read``. The reader duplicates the descriptor and begins to
/// read at once. If a stream ends inside a frame, or fails, you first get all whole frames, and then the error. Further
/// calls raise the same error. ``with`` and ``async with`` close the reader.
///
/// Args:
///     fd: an int or an object with ``fileno()``, open for reading: a pipe, a stream socket, a device, or a file, which
///         is read from its current position. A buffered Python stream such as ``Popen.stdout`` is read from the first
///         byte that your program hasn't taken; the reader takes over what the stream has read ahead.
///     frame_bytes: size in bytes of a frame that ``read`` returns.
///     queue_items: maximum number of frames to read ahead; None is 4. Memory is held for these, for the frames that
///         you have, and for at most ``queue_items`` + 2 free frames that are kept for reuse.
///     capacity_bytes: pipe size to ask the kernel for, in bytes; None is 1 MiB.
///     policy: priority and CPUs of the worker thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.
///
/// Raises:
///     OSError: EBADF if the descriptor is closed or not open for reading, EISDIR for a directory, ENOMEM if the frames
///         don't fit into memory; or another failure of the system.
///     TypeError: if the object has no descriptor, or the descriptor doesn't carry the bytes that the object reads: a
///         text stream, a compressed file or a TLS socket; or if an argument has the wrong type.
///     ValueError: if an argument has a wrong value, or the socket preserves message boundaries.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Reader {
    reader: penstock_core::Reader,
    /// The pipe size that the caller asked for.
    asked_bytes: Option<usize>,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (fd, *, frame_bytes, queue_items=None, capacity_bytes=None, policy=None))]
    fn new(
        fd: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::frame_bytes)] frame_bytes: usize,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
    ) -> PyResult<Self> {
        let py = fd.py();
        let (source, ahead) = arguments::source(fd)?;
        let mut options = ReaderOptions::new(frame_bytes);
        options.depth = queue_items.unwrap_or(options.depth);
        options.capacity_bytes = capacity_bytes;
        options.policy = policy.map(|policy| policy.0);
        options.ahead = ahead.bytes.clone();
        let reader = py.detach(|| penstock_core::Reader::new(source, &options)).or_raise(py)?;
        ahead.take(py)?;
        Ok(Self { reader, asked_bytes: capacity_bytes })
    }

    /// Returns the next frame in order; None when the stream has ended between two frames.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     TruncatedStreamError: if the stream ended inside a frame.
    ///     OSError: if the stream failed.
    ///     StalledError: if no whole frame came in time. Nothing is lost: the next call continues.
    ///     ClosedError: if the reader is closed, or belongs to the parent process.
    #[pyo3(signature = (timeout=None))]
    fn read(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Option<Frame>> {
        until(py, timeout, |slice| self.reader.read(Some(slice)).into())?
            .map(|frame| frame.map(Frame))
            .or_raise_of(py, READER)
    }

    /// Copies the next frame into a buffer and returns its size; 0 when the stream has ended between two frames.
    ///
    /// Args:
    ///     buffer: a writable, C-contiguous buffer with room for a frame. Bytes after the frame don't change.
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     ValueError: if the buffer is smaller than a frame, or isn't C-contiguous. No frame is lost.
    ///     BufferError, TypeError: if the buffer is read-only, or the object has no buffer.
    ///     TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
    #[pyo3(signature = (buffer, timeout=None))]
    fn readinto(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        timeout: Option<Timeout>,
    ) -> PyResult<usize> {
        let _release = ReleaseAtEnd(py);
        let space = export_space(buffer)?;
        let frame_bytes = self.reader.frame_bytes();
        if space.len() < frame_bytes {
            let why =
                format!("buffer must have at least {frame_bytes} bytes, as a frame has, not {}", space.len());
            return Err(PyValueError::new_err(why));
        }
        let Some(Frame(frame)) = self.read(py, timeout)? else { return Ok(0) };
        // SAFETY: the export pins the memory, which can be written to and has room; a frame's is its own.
        py.detach(|| unsafe { ptr::copy_nonoverlapping(frame.as_ptr(), space.as_mut_ptr(), frame.len()) });
        Ok(frame.len())
    }

    /// Returns the newest frame of a live source: the last that became whole after this call began; None at the end.
    ///
    /// Earlier frames are dropped; ``stats.frames_dropped`` counts them, and ``index`` skips them. The first call also
    /// skips frames that are read ahead or wait whole in the pipe, unless the stream ends after them. After the first
    /// call, the worker never waits for callers, so the source never waits either. ``read``, ``readinto`` and iteration
    /// make it wait again, and return every frame that hasn't been dropped.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
    #[pyo3(signature = (timeout=None))]
    fn latest(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Option<Frame>> {
        until(py, timeout, |slice| self.reader.latest(Some(slice)).into())?
            .map(|frame| frame.map(Frame))
            .or_raise_of(py, READER)
    }

    /// Returns the bytes of the incomplete last frame, as a shorter ``Frame``, after a ``TruncatedStreamError``.
    ///
    /// Returns None on later calls.
    fn take_rest(&self) -> Option<Frame> {
        self.reader.take_rest().map(Frame)
    }

    /// Stops reading, drops the frames that nobody has taken, and closes the duplicate of the descriptor.
    ///
    /// Frames that you have stay valid. Threads that wait for a frame get ``ClosedError``. Closing again does nothing.
    /// The call waits at most 5 seconds for the worker, which only a disk read or a lingering socket can delay. Ctrl-C
    /// interrupts it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let was_open = !self.reader.is_closed();
        let closed = until(py, Some(Timeout(penstock_core::Reader::LEAVE_WITHIN)), |slice| {
            self.reader.close_within(slice).into()
        })?;
        drop(closed); // a thread that takes longer ends later, on its own
        if was_open {
            log::smaller_pipe(py, "a reader", self.reader.stats().capacity_bytes, self.asked_bytes)?;
        }
        Ok(())
    }

    /// Whether the reader was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.reader.is_closed()
    }

    /// Statistics so far, also after the reader's end.
    #[getter]
    fn stats(&self) -> ReaderStats {
        self.reader.stats().into()
    }

    /// Done when ``read`` would not wait.
    fn _ready(&self) -> Ticket {
        Ticket(self.reader.ready())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Frame>> {
        self.read(py, None)
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "next_frame", (slf,))
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exc_type: Option<&Bound<'_, PyAny>>,
        _exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "entered", (slf,))
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exception: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "leave_reader", (slf, exception))
    }
}

/// A frame of a ``Reader``: a writable, page-aligned buffer.
///
/// ``memoryview(frame)`` and ``numpy.asarray(frame)`` are views of its bytes, without a copy. The memory is recycled
/// once you drop the last view of it.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct Frame(penstock_core::Frame);

#[pymethods]
impl Frame {
    /// The frame's number in the stream, from 0. Dropped frames count.
    #[getter]
    fn index(&self) -> u64 {
        self.0.index()
    }

    /// The frame's size in bytes.
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
        let frame = &slf.get().0;
        // SAFETY: the memory stays where it is while the frame lives, and this type forms no reference into it.
        unsafe { fill_view(slf, (frame.buffer().start(), frame.len()), false, view, flags) }
    }

    fn __repr__(&self) -> String {
        format!("<Frame {}: {} bytes>", self.0.index(), self.0.len())
    }
}

/// Statistics of a reader: a snapshot.
#[pyclass(frozen, get_all, module = "penstock.results")]
pub(crate) struct ReaderStats {
    /// Whole frames read.
    frames_read: u64,
    /// Frames that callers took.
    frames_delivered: u64,
    /// Frames that ``latest`` skipped.
    frames_dropped: u64,
    /// Frames that were read ahead and wait for a caller.
    frames_waiting: usize,
    /// Bytes read, including those of an incomplete frame.
    bytes_read: u64,
    /// The size of the pipe in bytes, as granted by the kernel; None if it isn't a pipe.
    capacity_bytes: Option<usize>,
    /// Seconds that callers waited for frames.
    caller_wait_s: f64,
    /// Seconds that the worker waited for its input, the source.
    input_wait_s: f64,
    /// Seconds that the worker waited for callers to take frames, because ``queue_items`` of them were ready.
    output_wait_s: f64,
    /// The policy that was applied to the worker; None if you asked for none, or before the worker starts.
    policy: Option<AppliedPolicy>,
}

impl From<penstock_core::ReaderStats> for ReaderStats {
    fn from(stats: penstock_core::ReaderStats) -> Self {
        Self {
            frames_read: stats.frames_read,
            frames_delivered: stats.frames_delivered,
            frames_dropped: stats.frames_dropped,
            frames_waiting: stats.frames_waiting,
            bytes_read: stats.bytes_read,
            capacity_bytes: stats.capacity_bytes,
            caller_wait_s: stats.caller_blocked.as_secs_f64(),
            input_wait_s: stats.worker_blocked.as_secs_f64(),
            output_wait_s: stats.worker_full.as_secs_f64(),
            policy: stats.policy.map(AppliedPolicy),
        }
    }
}

#[pymethods]
impl ReaderStats {
    fn __repr__(&self) -> String {
        format!(
            "<ReaderStats {} frames read, {} delivered, {} dropped, {} waiting>",
            self.frames_read, self.frames_delivered, self.frames_dropped, self.frames_waiting
        )
    }
}
