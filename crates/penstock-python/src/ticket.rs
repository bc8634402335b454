//! Tickets in Python.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use pyo3::prelude::*;

use crate::arguments::{self, Seconds};
use crate::buffer::release_parked;
use crate::errors;
use crate::waiting::{Attempt, until};

/// One queued write and what became of it. ``await ticket`` waits for it in asyncio.
///
/// A write has ended when its buffer is free again: with the transports ``write`` and ``staged`` when the kernel has all of
/// its bytes, with ``zero-copy`` when the reader has read them.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct Ticket(pub(crate) penstock_core::Ticket);

impl Ticket {
    fn wait_until(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
    ) -> PyResult<Result<(), penstock_core::Error>> {
        let bytes_pending = self.0.bytes() as u64;
        until(py, timeout, |slice| {
            self.0.wait_for(Some(slice)).map_or(Attempt::NotYet { bytes_pending }, Attempt::Ended)
        })
    }
}

#[pymethods]
impl Ticket {
    /// The size of the write in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.bytes()
    }

    /// Whether the write has ended, well or not.
    fn done(&self, py: Python<'_>) -> bool {
        let done = self.0.has_ended();
        release_parked(py);
        done
    }

    /// Waits until the write has ended, with the GIL released and awake to signals.
    ///
    /// Args:
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     StalledError: it has not ended in that time. It goes on.
    ///     BrokenStreamError, OSError: the stream failed.
    ///     ClosedError: the write was aborted.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
        let timeout = arguments::timeout(timeout)?;
        self.wait_until(py, timeout)?.map_err(|error| errors::to_python(py, &error))
    }

    /// The error of a write that has failed, None for one that went well. Waits as ``wait`` does.
    ///
    /// Raises:
    ///     StalledError: it has not ended in that time.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let timeout = arguments::timeout(timeout)?;
        match self.wait_until(py, timeout)? {
            Ok(()) => Ok(None),
            Err(error @ penstock_core::Error::Stalled { .. }) => Err(errors::to_python(py, &error)),
            Err(error) => Ok(Some(errors::to_python(py, &error).into_value(py).into_bound(py).into_any())),
        }
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("penstock._asyncio")?.call_method1("ended", (&slf,))?;
        ended.call_method0("__await__")
    }

    /// Adds 1 to the eventfd when the write ends; the worker does it, without Python. The answer ends the watch.
    fn _notify(&self, eventfd: i32) -> PyResult<Watch> {
        Watch::start(&self.0, eventfd)
    }

    fn __repr__(&self) -> String {
        let state = match self.0.outcome() {
            None => "pending".into(),
            Some(Ok(())) => "done".into(),
            Some(Err(error)) => format!("failed: {error}"),
        };
        format!("<Ticket of {} bytes, {state}>", self.0.bytes())
    }
}

/// A wait for a ticket that can be given up, with the descriptor that it holds.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Watch {
    ticket: penstock_core::Ticket,
    callback: penstock_core::CallbackId,
}

impl Watch {
    /// Has the worker add 1 to the eventfd, without Python, when the ticket ends.
    pub(crate) fn start(ticket: &penstock_core::Ticket, eventfd: i32) -> PyResult<Self> {
        // SAFETY: the caller passes an open eventfd; it is duplicated before this returns.
        let own = unsafe { BorrowedFd::borrow_raw(eventfd) }.try_clone_to_owned()?;
        let callback = ticket.on_end(move || {
            // It can only fail when the counter is full, and then somebody is awake already.
            let _ = File::from(own).write_all(&1u64.to_ne_bytes());
        });
        Ok(Self { ticket: ticket.clone(), callback })
    }
}

#[pymethods]
impl Watch {
    /// Stops watching, if the write has not ended.
    fn stop(&self) {
        self.ticket.forget_callback(self.callback);
    }
}
