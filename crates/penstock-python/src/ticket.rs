//! Tickets in Python.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use penstock_core::engine::{Mailbox, Waker, handle};
use penstock_core::{AsHandle, Region, Rejected};
use pyo3::prelude::*;

use crate::arguments::Timeout;
use crate::buffer::{self, release_parked};
use crate::errors::{self, OrRaise, WRITER};
use crate::waiting::{awaited, until, until_written};

/// One queued write. ``await ticket`` waits for it in asyncio.
///
/// A write has ended when its buffer is free again. With the transports ``write`` and ``staged``, that is when the
/// kernel has all of its bytes; with ``zero-copy``, when the reader has read them.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct Ticket(pub(crate) penstock_core::Ticket);

#[pymethods]
impl Ticket {
    /// The size of the write in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.bytes()
    }

    /// Whether the write has ended, successfully or not.
    fn done(&self, py: Python<'_>) -> bool {
        let done = self.0.has_ended();
        release_parked(py);
        done
    }

    /// Waits until the write has ended. Releases the GIL; Ctrl-C interrupts it.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     StalledError: if the write didn't end in that time. It continues.
    ///     BrokenStreamError, OSError: if the stream failed.
    ///     ClosedError: if the write was aborted.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        until_written(py, &self.0, timeout)?.or_raise(py)
    }

    /// Waits as ``wait`` does, and returns the exception of a write that failed; None if it succeeded.
    ///
    /// Raises:
    ///     StalledError: if the write didn't end in that time.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Timeout>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outcome = until_written(py, &self.0, timeout)?;
        errors::failure_of(py, outcome, |error| errors::to_python(py, error))
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaited(slf, "ended")
    }

    /// Tell the waker that number when the write ends. The native worker does it, without Python.
    fn _notify(&self, waker: &LoopWaker, number: u64) -> Watch {
        Watch::start(&self.0, waker, number)
    }

    fn __repr__(&self) -> String {
        let state = match self.0.peek() {
            None => "pending".into(),
            Some(Ok(())) => "done".into(),
            Some(Err(error)) => format!("failed: {error}"),
        };
        format!("<Ticket of {} bytes, {state}>", self.0.bytes())
    }
}

/// Wakes an event loop by an eventfd, and has the numbers of what has ended. Native threads use it.
#[pyclass(frozen, name = "_LoopWaker", module = "penstock._native")]
pub(crate) struct LoopWaker(Arc<(Mailbox<u64>, Waker)>);

#[pymethods]
impl LoopWaker {
    #[new]
    fn new() -> PyResult<Self> {
        let waker = Waker::new().map_err(io::Error::from)?;
        Ok(Self(Arc::new((Mailbox::new(), waker))))
    }

    /// The eventfd, which is readable when ``take`` has numbers.
    fn fileno(&self) -> handle::Number {
        handle::number(self.0.1.as_handle())
    }

    /// The numbers that were told since the last call.
    fn take(&self) -> Vec<u64> {
        // In this order: a number that comes in between wakes the loop again.
        self.0.1.clear();
        self.0.0.take()
    }
}

/// A watch on a ticket.
#[pyclass(frozen, name = "_Watch", module = "penstock._native")]
pub(crate) struct Watch {
    ticket: penstock_core::Ticket,
    callback: penstock_core::CallbackId,
}

impl Watch {
    /// Has the worker tell the waker that number when the ticket ends.
    pub(crate) fn start(ticket: &penstock_core::Ticket, waker: &LoopWaker, number: u64) -> Self {
        let waker = Arc::clone(&waker.0);
        let callback = ticket.on_end(move || {
            let _ = waker.0.put(number); // nobody closes the mailbox
            waker.1.wake();
        });
        Self { ticket: ticket.clone(), callback }
    }
}

#[pymethods]
impl Watch {
    /// Stop watching.
    fn stop(&self) {
        self.ticket.forget_callback(self.callback);
    }
}

/// Queues a buffer by one of the core's writes, which gets the memory and the time that it may wait for room.
pub(crate) fn queue(
    data: &Bound<'_, PyAny>,
    timeout: Option<Timeout>,
    mut write: impl FnMut(Box<dyn Region>, Duration) -> Result<penstock_core::Ticket, Rejected<Box<dyn Region>>>
    + Send,
) -> PyResult<Ticket> {
    let pushed = push(data.py(), buffer::export_for_write(data)?, timeout, &mut write);
    release_parked(data.py());
    pushed.map(Ticket)
}

/// Queues memory by one of the core's writes, as [`queue`] does.
pub(crate) fn push<R: Region>(
    py: Python<'_>,
    region: R,
    timeout: Option<Timeout>,
    mut write: impl FnMut(R, Duration) -> Result<penstock_core::Ticket, Rejected<R>> + Send,
) -> PyResult<penstock_core::Ticket> {
    let mut region = Some(region);
    let pushed = until(py, timeout, |slice| {
        let data = region.take().expect("a rejected region came back");
        let ticket = write(data, slice).map_err(|rejected| {
            region = Some(rejected.region);
            rejected.error
        });
        ticket.into()
    });
    pushed?.or_raise_of(py, WRITER)
}
