//! Writers in Python.

use std::collections::HashMap;
use std::time::Duration;

use penstock_core::{Error, ReaderKind, WriterOptions};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arguments::{self, Timeout};
use crate::buffer;
use crate::conversion::Conversion;
use crate::errors::{self, OrRaise, WRITER, no_memory};
use crate::log;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::{Ticket, push, queue};
use crate::waiting::{coroutine, until};

pyo3::import_exception!(io, UnsupportedOperation);

/// Writes buffers to a file descriptor from a native thread, whole and in order.
///
/// ```python
/// with Writer(process.stdin) as writer:
///     pickle.dump(table, writer)
/// process.stdin.close()
/// ```
///
/// ``write`` copies the bytes, ``submit`` borrows the buffer. With ``write``, ``flush`` and ``close``, a writer is a
/// binary file for ``json``, ``pickle``, ``numpy.save``, ``zipfile`` and whatever else writes from the beginning to the
/// end. It has no ``fileno``: pass the descriptor itself to a program that you start.
///
/// The writer duplicates the descriptor, so you can close yours or reuse its number. The reader gets its end of file
/// once the writer is closed and nobody else has the pipe open: close your own descriptor, too. Writers on the same
/// pipe share one ordered stream, with its queue and its failure.
///
/// ``with`` and ``async with`` close the writer. If the block raises, queued bytes are still delivered, but the writer
/// gives up if the reader takes nothing for 5 seconds. Your exception propagates, with a note if bytes were lost. If an
/// ``async with`` is cancelled while it closes, it aborts the writer.
///
/// Args:
///     fd: an int or an object with ``fileno()``, open for writing. Bytes that a Python stream has buffered for it are
///         flushed first.
///     mode: the transport: ``"write"`` (the kernel copies), ``"staged"`` (the thread copies into pages that the pipe
///         takes over) or ``"zero-copy"`` (the pipe gets the buffer's own pages). ``"auto"`` picks the fastest safe
///         one. With zero-copy, a buffer is in use until the reader has read it, and the reader must copy what it takes
///         (read(2)), as FFmpeg does.
///     queue_bytes: bytes that the queue holds before a call waits; None is 128 MiB. One write always fits.
///     queue_items: number of writes that the queue holds before a call waits; None is 64.
///     capacity_bytes: pipe size to ask the kernel for, in bytes; None is 1 MiB.
///     policy: priority and CPUs of the worker thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.
///     reader_copies: promises that the reader uses read(2), as FFmpeg does, and doesn't splice onward. ``"auto"`` can
///         then use zero-copy, and ``"staged"`` can reuse its pages.
///
/// Raises:
///     OSError: EBADF if the descriptor is closed or not open for writing; or another failure of the system.
///     TypeError: if the object has no descriptor, or the descriptor doesn't carry the bytes that the object writes: a
///         compressed file or a TLS socket; or if an argument has the wrong type.
///     ValueError: if an argument has a wrong value.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Writer {
    pub(crate) writer: penstock_core::Writer,
    /// The pipe size that the caller asked for.
    asked_bytes: Option<usize>,
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (fd, *, mode="auto", queue_bytes=None, queue_items=None, capacity_bytes=None, policy=None, reader_copies=false))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn new(
        fd: &Bound<'_, PyAny>,
        mode: &str,
        #[pyo3(from_py_with = arguments::queue_bytes)] queue_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
        reader_copies: bool,
    ) -> PyResult<Self> {
        Self::_converting(fd, mode, queue_bytes, queue_items, capacity_bytes, policy, reader_copies, None)
    }

    /// A writer whose worker converts each write, a frame; without a conversion, a plain one.
    ///
    /// All byte counts are those of the conversion's output.
    #[staticmethod]
    #[pyo3(signature = (fd, *, mode="auto", queue_bytes=None, queue_items=None, capacity_bytes=None, policy=None, reader_copies=false, conversion=None))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn _converting(
        fd: &Bound<'_, PyAny>,
        mode: &str,
        #[pyo3(from_py_with = arguments::queue_bytes)] queue_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
        reader_copies: bool,
        conversion: Option<&Conversion>,
    ) -> PyResult<Self> {
        let mut options = WriterOptions::default().mode(arguments::mode(mode)?);
        options.reader = if reader_copies { ReaderKind::Reads } else { ReaderKind::Unknown };
        (options.queue_bytes, options.queue_items) = (queue_bytes, queue_items);
        options.capacity_bytes = capacity_bytes;
        options.policy = policy.map(|policy| policy.0);
        options.transform = conversion.map(Conversion::transform);
        let py = fd.py();
        arm_exit(py)?;
        let fd = arguments::destination(fd, "fd")?;
        let writer = py.detach(|| penstock_core::Writer::new(fd, &options)).or_raise(py)?;
        Ok(Self { writer, asked_bytes: capacity_bytes })
    }

    /// Copies a buffer and queues the copy. Returns the number of bytes.
    ///
    /// The call waits only while the queue is full. You can reuse the buffer when it returns. If the call raises,
    /// nothing was queued. While the thread is busy, writes of up to 16 KiB are gathered into larger ones, unless the
    /// destination preserves message boundaries.
    ///
    /// Args:
    ///     data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch
    ///         tensor on the CPU, or a ``moderngl.Buffer``.
    ///     timeout: seconds to wait for room in the queue; None waits without limit.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: if the stream has failed.
    ///     StalledError: if the queue stayed full.
    ///     ClosedError: if the writer is closed.
    ///     MemoryError: if there is no memory for the copy.
    ///     ValueError: if ``data`` isn't C-contiguous.
    ///     TypeError: if ``data`` has no buffer.
    #[pyo3(signature = (data, *, timeout=None))]
    fn write(&self, data: &Bound<'_, PyAny>, timeout: Option<Timeout>) -> PyResult<usize> {
        let py = data.py();
        let copy = buffer::of_bytes(data, |bytes| self.writer.copy(bytes))?.map_err(no_memory)?;
        let bytes = copy.len();
        push(py, copy, timeout, |copy, slice| self.writer.write_copy(copy, Some(slice)))?;
        Ok(bytes)
    }

    /// Queues a buffer without copying it. Its memory must not change until the returned ticket is done.
    ///
    /// The call waits only while the queue is full. If it raises, nothing was queued. If nothing else is in flight, the
    /// calling thread itself writes up to 4 KiB to a pipe or socket, and up to 128 KiB as the stream's first: that's
    /// quicker than to wake or start a native thread.
    ///
    /// Args:
    ///     data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch
    ///         tensor on the CPU, or a ``moderngl.Buffer``.
    ///     timeout: seconds to wait for room in the queue; None waits without limit.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: if the stream has failed.
    ///     StalledError: if the queue stayed full.
    ///     ClosedError: if the writer is closed.
    ///     ValueError: if ``data`` isn't C-contiguous.
    ///     TypeError: if ``data`` has no buffer.
    #[pyo3(signature = (data, *, timeout=None))]
    fn submit(&self, data: &Bound<'_, PyAny>, timeout: Option<Timeout>) -> PyResult<Ticket> {
        queue(data, timeout, |data, slice| self.writer.submit(data, Some(slice)))
    }

    /// Queue bytes that are converted already, in order with all others. Their memory must never change again.
    #[pyo3(signature = (data, *, timeout=None))]
    fn _submit_converted(&self, data: &Bound<'_, PyAny>, timeout: Option<Timeout>) -> PyResult<Ticket> {
        queue(data, timeout, |data, slice| self.writer.submit_transformed(data, Some(slice)))
    }

    /// The ticket of the oldest write that has not ended; None if all have.
    fn _oldest(&self) -> Option<Ticket> {
        self.writer.oldest().map(Ticket)
    }

    /// Waits until all writes that are queued now have ended.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: if the stream failed, or the reader went away with bytes unread in the pipe.
    ///     StalledError: if it took longer than ``timeout``. Nothing is lost.
    ///     ClosedError: if the writer is closed, or another thread aborts it meanwhile.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        let mark = self.writer.mark();
        until(py, timeout, |slice| self.writer.flush_to(mark, Some(slice)).into())?.or_raise_of(py, WRITER)
    }

    /// Waits as ``flush`` does, then closes the writer. Your descriptor stays open. Closing again does nothing.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: if the stream failed. The writer is closed nevertheless. A file may report only
    ///         now that it couldn't keep what it had accepted (ENOSPC on a network file system); all bytes then count
    ///         as lost.
    ///     ClosedError: if another thread aborts it meanwhile.
    ///     StalledError: if it took longer than ``timeout``. The writer is still open, and nothing is lost.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        self.close_within(py, timeout)?.or_raise_of(py, WRITER)
    }

    /// Discards what this writer has queued, and closes it. The tickets of those writes end with ``ClosedError``.
    ///
    /// A write in progress is cut short. Pages that zero-copy has put into the pipe stay in use until the reader has
    /// read them or is gone, and the ticket of their write ends only then.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.writer.abort());
        buffer::release_parked(py);
    }

    /// Returns False.
    #[staticmethod]
    fn readable() -> bool {
        false
    }

    /// Returns True.
    #[staticmethod]
    fn writable() -> bool {
        true
    }

    /// Returns False.
    #[staticmethod]
    fn seekable() -> bool {
        false
    }

    /// Returns False.
    #[staticmethod]
    fn isatty() -> bool {
        false
    }

    /// Raises ``io.UnsupportedOperation``. It exists because ``numpy.savez`` only accepts files that have it.
    #[staticmethod]
    #[pyo3(signature = (size=None))]
    fn read(size: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let _ = size;
        Err(UnsupportedOperation::new_err("a writer can't be read. Use a penstock.Reader on the other end"))
    }

    /// Raises ``io.UnsupportedOperation``: a writer has no position.
    #[staticmethod]
    fn tell() -> PyResult<u64> {
        Err(UnsupportedOperation::new_err("a writer has no position. Its stats have bytes_accepted"))
    }

    /// Whether ``close`` or ``abort`` has ended the writer.
    #[getter]
    fn closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// Statistics of the stream so far, and its transport.
    #[getter]
    fn stats(&self) -> WriterStats {
        self.writer.stats().into()
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exc_type: Option<&Bound<'_, PyAny>>,
        exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let Some(exc) = exc else { return self.close_within(py, None)?.or_raise_of(py, WRITER) };
        // Not raised: the block's own exception is what has to be seen.
        let Err(failure) = self.close_unless_stalled(py)? else { return Ok(()) };
        let raised = errors::to_python_of(py, &failure, WRITER);
        let is_told = !matches!(failure, Error::Stalled { .. }) && exc.is_instance(&raised.get_type(py))?;
        if !is_told {
            exc.call_method1("add_note", (format!("the writer could not deliver everything: {failure}"),))?;
        }
        Ok(())
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "entered", (slf,))
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exception: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "leave_writer", (slf, exception))
    }
}

/// How long a block that raised waits for a reader that takes nothing: as long as the end of a program waits.
const EXIT_STALL: Timeout = Timeout(Duration::from_secs(5));

impl Writer {
    fn close_within(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Result<(), Error>> {
        if self.writer.is_closed() {
            return Ok(Ok(()));
        }
        let mark = self.writer.mark();
        let closed = until(py, timeout, |slice| self.writer.close_at(mark, Some(slice)).into())?;
        if self.writer.is_closed() {
            log::writer_closed(py, &self.writer.stats(), self.asked_bytes)?;
        }
        Ok(closed)
    }

    /// Closes, or aborts when the reader has taken nothing for a while.
    fn close_unless_stalled(&self, py: Python<'_>) -> PyResult<Result<(), Error>> {
        let mut delivered = self.writer.stats().delivered_bytes;
        loop {
            let closed = self.close_within(py, Some(EXIT_STALL))?;
            let now = self.writer.stats().delivered_bytes;
            if matches!(closed, Err(Error::Stalled { .. })) {
                if now > delivered {
                    delivered = now;
                    continue;
                }
                self.abort(py);
            }
            return Ok(closed);
        }
    }
}

/// Statistics of a writer's stream, and its transport: a snapshot.
#[pyclass(frozen, get_all, module = "penstock.results")]
pub(crate) struct WriterStats {
    /// The transport of the last write: ``"write"``, ``"staged"`` or ``"zero-copy"``; None before the first.
    transport: Option<&'static str>,
    /// Why this transport was chosen.
    reason: String,
    /// The size of the pipe in bytes, as granted by the kernel; None if it isn't a pipe.
    capacity_bytes: Option<usize>,
    /// Bytes queued since the stream began.
    bytes_accepted: u64,
    /// Bytes that the reader has taken (pipes) or the kernel has accepted (files, sockets).
    ///
    /// Bytes that the reader takes after ``close`` don't count.
    bytes_delivered: u64,
    /// Bytes of writes that haven't ended, without those that are delivered or lost.
    ///
    /// Bytes of ended writes that wait in the pipe for the reader count neither as delivered nor as pending.
    bytes_pending: u64,
    /// Writes queued since the stream began. Gathered writes count as one.
    items_accepted: u64,
    /// Writes that haven't ended.
    items_pending: u64,
    /// Bytes that the destination has taken, by the name of the transport.
    bytes_by_transport: HashMap<&'static str, u64>,
    /// Seconds that callers spent in ``write`` and ``submit``: waiting for room in the queue, and queueing.
    caller_wait_s: f64,
    /// Seconds that the worker waited for its output: for room, or for the reader to take zero-copy pages.
    output_wait_s: f64,
    /// Seconds that the worker spent on writes, including ``output_wait_s`` and ``converting_s``.
    busy_s: f64,
    /// Seconds that the worker spent on conversions.
    converting_s: f64,
    /// The policy that was applied to the worker; None if you asked for none, or before the worker starts.
    policy: Option<AppliedPolicy>,
}

impl From<penstock_core::WriterStats> for WriterStats {
    fn from(stats: penstock_core::WriterStats) -> Self {
        let by_name = stats.written_by.iter().map(|(transport, bytes)| (transport.name(), *bytes));
        Self {
            transport: stats.choice.map(|(transport, _)| transport.name()),
            reason: stats
                .choice
                .map_or_else(|| "nothing was written yet".into(), |(_, reason)| reason.to_string()),
            capacity_bytes: stats.capacity_bytes,
            bytes_accepted: stats.accepted_bytes,
            bytes_delivered: stats.delivered_bytes,
            bytes_pending: stats.pending_bytes,
            items_accepted: stats.accepted_items,
            items_pending: stats.pending_items,
            bytes_by_transport: by_name.collect(),
            caller_wait_s: stats.caller_blocked.as_secs_f64(),
            output_wait_s: stats.worker_blocked.as_secs_f64(),
            busy_s: stats.worker_busy.as_secs_f64(),
            converting_s: stats.transforming.as_secs_f64(),
            policy: stats.policy.map(AppliedPolicy),
        }
    }
}

#[pymethods]
impl WriterStats {
    fn __repr__(&self) -> String {
        format!(
            "<WriterStats transport={} ({}), {} of {} bytes delivered, {} pending>",
            self.transport.unwrap_or("None"),
            self.reason,
            self.bytes_delivered,
            self.bytes_accepted,
            self.bytes_pending
        )
    }
}
