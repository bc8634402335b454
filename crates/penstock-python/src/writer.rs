//! Writers in Python.

use std::collections::HashMap;
use std::time::Duration;

use penstock_core::{Error, Options, Region, Rejected};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::arguments::{self, Seconds};
use crate::buffer;
use crate::conversion::Conversion;
use crate::errors;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Ticket;
use crate::waiting::until;

/// Writer(fd, *, mode="auto", queue_bytes=None, queue_items=None, capacity_bytes=None, policy=None, reader="unknown", conversion=None)
/// --
///
/// Writes buffers to a file descriptor from a native thread, in order and whole.
///
/// The writer owns a duplicate of the descriptor: whatever happens to the number, every byte goes where the writer was
/// opened, and the reader has its end of file when the writer is closed and nobody else has the pipe open. Writers on the
/// same pipe share one ordered stream, with its queue and its failure.
///
/// Args:
///     fd: an int, or anything with ``fileno()``, open for writing. What a Python stream has buffered for it goes there first.
///     mode: ``"auto"``, ``"write"``, ``"staged"`` or ``"zero-copy"``. With zero-copy a buffer is in use until the reader has
///         read it, and the reader must be one that copies (read(2)), as FFmpeg does.
///     queue_bytes: bytes that the queue holds before ``write`` waits; 128 MiB unless told. One write always fits.
///     queue_items: writes that the queue holds before ``write`` waits; 64 unless told.
///     capacity_bytes: size to ask for if it is a pipe; unless told, it is grown to 1 MiB where that is granted.
///     policy: priority and CPUs of the worker thread.
///     reader: ``"reads"`` promises that the reader takes bytes with read(2) and does not splice them onward, which lets
///         ``auto`` use zero-copy and ``staged`` use its pages again.
///     conversion: what the worker makes of each write, which must be a frame of its input; all numbers of bytes are then those of
///         its output.
///
/// Raises:
///     OSError: EBADF for a descriptor that is closed or not open for writing, or what the system says.
///     TypeError: the descriptor does not carry what the object writes: that of a compressed file, a TLS socket. Or there is none.
///     ValueError, TypeError: a wrong argument.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Writer(penstock_core::Writer);

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (fd, *, mode="auto", queue_bytes=None, queue_items=None, capacity_bytes=None, policy=None, reader="unknown", conversion=None))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn new(
        fd: &Bound<'_, PyAny>,
        mode: &str,
        #[pyo3(from_py_with = arguments::queue_bytes)] queue_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::capacity_bytes)] capacity_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
        reader: &str,
        conversion: Option<&Conversion>,
    ) -> PyResult<Self> {
        let options = Options {
            mode: arguments::mode(mode)?,
            reader: arguments::reader(reader)?,
            queue_bytes,
            queue_items,
            capacity_bytes,
            policy: policy.map(|policy| policy.0),
            transform: conversion.map(Conversion::recipe),
        };
        let py = fd.py();
        arm_exit(py)?;
        let writer = penstock_core::Writer::new(arguments::destination(fd)?, &options);
        writer.map(Self).map_err(|error| errors::to_python(py, &error))
    }

    /// Queues a buffer without a copy: its memory must stay unchanged until the returned ticket is done.
    ///
    /// It waits only while the queue is full.
    ///
    /// Args:
    ///     data: anything with the buffer protocol that is C-contiguous, of any dtype, shape and size.
    ///     timeout: seconds to wait for room in the queue; None waits for as long as it takes.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: the stream has failed; nothing of ``data`` was taken.
    ///     StalledError: the queue was full all the time; nothing of ``data`` was taken.
    ///     ClosedError: the writer is closed.
    ///     ValueError: ``data`` is not C-contiguous.
    ///     TypeError: ``data`` has no buffer.
    #[pyo3(signature = (data, *, timeout=None))]
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<Seconds>) -> PyResult<Ticket> {
        self.queue(py, data, timeout, penstock_core::Writer::write)
    }

    /// Queues what the conversion makes already: it enters the stream as it is, in order with all else. The memory must never be
    /// written to again.
    #[pyo3(signature = (data, *, timeout=None))]
    fn _write_made(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<Seconds>,
    ) -> PyResult<Ticket> {
        self.queue(py, data, timeout, penstock_core::Writer::write_made)
    }

    /// The ticket of the oldest write that has not ended; None if all have.
    fn _oldest(&self) -> Option<Ticket> {
        self.0.oldest().map(Ticket)
    }

    /// Waits until everything queued so far has ended.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: the stream failed, or the reader went away with bytes unread in the pipe.
    ///     StalledError: it took longer than ``timeout`` seconds. Nothing is lost.
    ///     ClosedError: the writer is closed.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let timeout = arguments::timeout(timeout)?;
        let mark = self.0.mark();
        until(py, timeout, |slice| self.0.flush_to(mark, Some(slice)).into())?
            .map_err(|error| errors::to_python(py, &error))
    }

    /// Waits as ``flush`` does, then closes. The descriptor that was passed in stays open; closing again does nothing.
    ///
    /// Raises:
    ///     BrokenStreamError, OSError: the stream failed. The writer is closed all the same.
    ///     StalledError: it took longer than ``timeout`` seconds. The writer is still open, and nothing is lost.
    #[pyo3(signature = (timeout=None))]
    fn close(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let timeout = arguments::timeout(timeout)?;
        self.close_within(py, timeout)?.map_err(|error| errors::to_python(py, &error))
    }

    /// Gives up what this writer has queued, and closes. The tickets of those writes end with ``ClosedError``.
    ///
    /// A write in the middle is cut short. Pages that zero-copy has put into the pipe stay in use until they are read.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.0.abort());
        buffer::release_parked(py);
    }

    /// Whether ``close`` or ``abort`` has ended the writer.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// What the stream has done so far, and what it does it with.
    #[getter]
    fn stats(&self) -> WriterStats {
        WriterStats(self.0.stats())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Closes. If the block raised, what was queued is still delivered, unless the reader stalls for 5 seconds.
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyType>>,
        exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let closed =
            if exc_type.is_none() { self.close_within(py, None) } else { self.close_unless_stalled(py) };
        closed?.map_err(|error| {
            let raised = errors::to_python(py, &error);
            if let Some(exc) = exc {
                // As a `raise` in Python would: the block's own exception is not to be lost behind ours.
                let _ = raised.value(py).setattr("__context__", exc);
            }
            raised
        })
    }
}

/// How long a block that raised waits for a reader that reads nothing: as long as a program's end does.
const EXIT_STALL: Duration = Duration::from_secs(5);

/// What any buffer is handed in as.
type AnyRegion = Box<dyn Region>;

/// One of the core's ways to queue memory.
type Write = fn(
    &penstock_core::Writer,
    AnyRegion,
    Option<Duration>,
) -> Result<penstock_core::Ticket, Rejected<AnyRegion>>;

impl Writer {
    fn queue(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<Seconds>,
        write: Write,
    ) -> PyResult<Ticket> {
        let timeout = arguments::timeout(timeout)?;
        let mut region = Some(buffer::export(data)?);
        let pushed = until(py, timeout, |slice| {
            let region = &mut region;
            buffer::hand_in(region, |data| write(&self.0, data, Some(slice))).into()
        });
        drop(region);
        buffer::release_parked(py);
        pushed?.map(Ticket).map_err(|error| errors::to_python(py, &error))
    }

    fn close_within(&self, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Result<(), Error>> {
        let mark = self.0.mark();
        until(py, timeout, |slice| self.0.close_at(mark, Some(slice)).into())
    }

    /// Closes, or aborts when the reader has read nothing for a while.
    fn close_unless_stalled(&self, py: Python<'_>) -> PyResult<Result<(), Error>> {
        let mut delivered = self.0.stats().delivered_bytes;
        loop {
            let closed = self.close_within(py, Some(EXIT_STALL))?;
            let now = self.0.stats().delivered_bytes;
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

/// What a stream has done so far, and what it does it with. A picture of one moment.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct WriterStats(penstock_core::Stats);

#[pymethods]
impl WriterStats {
    /// The transport of the last write: "write", "staged" or "zero-copy"; None before the first.
    #[getter]
    fn transport(&self) -> Option<&'static str> {
        self.0.choice.map(|(transport, _)| transport.name())
    }

    /// Why it was that transport.
    #[getter]
    fn reason(&self) -> &'static str {
        self.0.choice.map_or("nothing was written yet", |(_, reason)| reason.text())
    }

    /// The size of the pipe in bytes, as granted; None if it is not a pipe.
    #[getter]
    fn capacity_bytes(&self) -> Option<usize> {
        self.0.capacity_bytes
    }

    /// Bytes taken into the queue since the stream began.
    #[getter]
    fn bytes_accepted(&self) -> u64 {
        self.0.accepted_bytes
    }

    /// Bytes that the reader has taken (pipes) or the kernel has accepted (files, sockets).
    #[getter]
    fn bytes_delivered(&self) -> u64 {
        self.0.delivered_bytes
    }

    /// Bytes of writes that have not ended, as far as they are neither delivered nor lost. What a pipe holds of writes that have
    /// ended is neither delivered nor pending: it waits for the reader.
    #[getter]
    fn bytes_pending(&self) -> u64 {
        self.0.pending_bytes
    }

    /// Writes taken into the queue since the stream began.
    #[getter]
    fn items_accepted(&self) -> u64 {
        self.0.accepted_items
    }

    /// Writes that have not ended.
    #[getter]
    fn items_pending(&self) -> u64 {
        self.0.pending_items
    }

    /// Bytes that the destination has taken, by transport.
    #[getter]
    fn bytes_by_transport(&self) -> HashMap<&'static str, u64> {
        self.0.written_by.iter().map(|(transport, bytes)| (transport.name(), *bytes)).collect()
    }

    /// Seconds that callers spent in ``write``: waiting for room in the queue, and queueing.
    #[getter]
    fn caller_wait_s(&self) -> f64 {
        self.0.caller_blocked.as_secs_f64()
    }

    /// Seconds that the worker waited for its output: for room in the pipe, or for the reader to take zero-copy pages.
    #[getter]
    fn output_wait_s(&self) -> f64 {
        self.0.worker_blocked.as_secs_f64()
    }

    /// Seconds that the worker spent on writes, including ``output_wait_s`` and ``converting_s``.
    #[getter]
    fn busy_s(&self) -> f64 {
        self.0.worker_busy.as_secs_f64()
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
        format!(
            "<WriterStats transport={} ({}), {} of {} bytes delivered, {} pending>",
            self.transport().unwrap_or("None"),
            self.reason(),
            self.0.delivered_bytes,
            self.0.accepted_bytes,
            self.0.pending_bytes
        )
    }
}
