//! Relays in Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_core::{RelayError, RelayMode, RelayOptions};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::arguments::{self, Timeout};
use crate::errors::{self, OrRaise, value_of};
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::relay_log;
use crate::ticket::{LoopWaker, Watch};
use crate::waiting::{awaited, until};

/// A relay on the caller's thread, prepared to run once or to move piece by piece. ``penstock.relay`` and
/// ``penstock.pipes.Relay`` document it.
#[pyclass(module = "penstock._native", name = "_Relay")]
pub(crate) struct Relay {
    /// Dropped at its end: a traceback may keep this object alive, and must not keep descriptors open.
    relay: Option<penstock_core::Relay>,
    offset: Option<u64>,
    ahead_bytes: u64,
    bytes_delivered: u64,
    bytes_lost: u64,
}

#[pymethods]
impl Relay {
    #[new]
    #[allow(clippy::too_many_arguments)] // those of `penstock.relay`
    fn new(
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        count: Option<Bound<'_, PyAny>>,
        offset: Option<Bound<'_, PyAny>>,
        timeout: Option<Timeout>,
        method: &str,
        ahead: &[u8],
    ) -> PyResult<Self> {
        let options = options(count, offset, timeout, method)?;
        let (src, dst) = (arguments::descriptor(src)?, arguments::descriptor(dst)?);
        let ahead_bytes = ahead.len() as u64;
        let relay = py.detach(|| penstock_core::Relay::new(src, dst, &options));
        let relay = relay.map_err(|error| raised(py, &error))?.after(ahead.to_vec());
        let offset = options.offset;
        Ok(Self { relay: Some(relay), offset, ahead_bytes, bytes_delivered: 0, bytes_lost: 0 })
    }

    /// Move the bytes, then set the stream of the source, if given, behind those that were delivered.
    fn run(&mut self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<RelayReport> {
        let spent = || PyValueError::new_err("the relay has ended");
        let mut relay = Some(self.relay.take().ok_or_else(spent)?);
        let mut moved_bytes = 0;
        let outcome = until(py, None, |slice| {
            let running = relay.as_mut().expect("it runs until it has ended");
            let outcome = running.run(Some(slice));
            moved_bytes = running.relayed().bytes;
            (self.bytes_delivered, self.bytes_lost) = (moved_bytes, running.bytes_held());
            if outcome.is_some() {
                // Here, because a close may be slow, and other threads want the interpreter.
                let _ = relay.take().expect("it has just run").close(); // the outcome has what it reports
            }
            outcome.map(Ok).into()
        });
        if relay.take().is_some() {
            let _ = arm_exit(py); // it was interrupted, and a file may have to be closed
        }
        if let Ok(Ok(Err(failure))) = &outcome {
            (self.bytes_delivered, self.bytes_lost) = (failure.bytes_delivered(), failure.bytes_lost());
        }
        // Not in Python, where the exception of a signal handler could prevent it.
        let left = stream.map_or(Ok(()), |stream| self.leave(stream, moved_bytes));
        let outcome = outcome?.or_raise_of(py, "relay")?;
        relay_log::relay_ended(py, outcome.as_ref())?;
        let relayed = outcome.map_err(|failure| errors::to_python_of(py, &failure.error, "relay"))?;
        left.map(|()| RelayReport(relayed))
    }

    /// Move so many bytes more, and keep the descriptors.
    fn advance(&mut self, py: Python<'_>, count: &Bound<'_, PyAny>) -> PyResult<RelayReport> {
        let count = not_negative("count", count)?;
        (self.bytes_delivered, self.bytes_lost) = (0, 0);
        let Some(relay) = &mut self.relay else {
            return Err(errors::to_python_of(py, &penstock_core::Error::Closed, "relay"));
        };
        let before = relay.relayed().bytes;
        let target = before.saturating_add(count);
        let outcome = until(py, None, |slice| {
            let outcome = relay.run_to(target, Some(slice));
            self.bytes_delivered = relay.relayed().bytes - before;
            outcome.map(Ok).into()
        });
        if let Ok(Ok(Err(failure))) = &outcome {
            let delivered = failure.bytes_delivered().saturating_sub(before);
            (self.bytes_delivered, self.bytes_lost) = (delivered, failure.bytes_lost());
        }
        let outcome = outcome?.or_raise_of(py, "relay")?;
        relay_log::relay_ended(py, outcome.as_ref())?;
        let mut relayed = outcome.map_err(|failure| errors::to_python_of(py, &failure.error, "relay"))?;
        relayed.bytes -= before;
        Ok(RelayReport(relayed))
    }

    /// Have a file closed before the interpreter ends, if the object is dropped before.
    fn close_at_exit(&self, py: Python<'_>) -> PyResult<()> {
        arm_exit(py)
    }

    /// Close the descriptors of the relay.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(relay) = self.relay.take() else { return Ok(()) };
        let closed = py.detach(|| relay.close());
        closed.map(drop).map_err(|failure| raised(py, &failure))
    }

    /// Set the byte counts on the exception that ended the relay.
    fn tell(&self, exception: &Bound<'_, PyAny>) {
        tell(exception, self.bytes_delivered, self.bytes_lost);
    }
}

impl Relay {
    /// Sets the stream behind the bytes that were delivered.
    fn leave(&self, stream: &Bound<'_, PyAny>, moved: u64) -> PyResult<()> {
        match self.offset {
            Some(offset) => stream.call_method1("seek", (offset + self.bytes_delivered,))?,
            // Only bytes of a pipe's buffer can be skipped: those taken from the descriptor are gone.
            None => stream.call_method1("read", (moved.min(self.ahead_bytes),))?,
        };
        Ok(())
    }
}

/// Start a relay on a native thread. ``penstock.pipes.start_relay`` documents it.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // those of `penstock.pipes.start_relay`
pub(crate) fn _start_relay(
    py: Python<'_>,
    src: &Bound<'_, PyAny>,
    dst: &Bound<'_, PyAny>,
    count: Option<Bound<'_, PyAny>>,
    offset: Option<Bound<'_, PyAny>>,
    timeout: Option<Timeout>,
    method: &str,
    policy: Option<ThreadPolicy>,
) -> PyResult<RelayTicket> {
    let options = options(count, offset, timeout, method)?;
    let (src, dst) = (arguments::descriptor(src)?, arguments::descriptor(dst)?);
    arm_exit(py)?;
    let policy = policy.map(|policy| policy.0);
    py.detach(|| penstock_core::relay_in_background(src, dst, &options, policy))
        .map(|ticket| RelayTicket { ticket, is_logged: AtomicBool::new(false) })
        .map_err(|error| raised(py, &error))
}

fn options(
    count: Option<Bound<'_, PyAny>>,
    offset: Option<Bound<'_, PyAny>>,
    timeout: Option<Timeout>,
    method: &str,
) -> PyResult<RelayOptions> {
    let mut options = RelayOptions::default();
    options.count = count.map(|count| not_negative("count", &count)).transpose()?;
    options.offset = offset.map(|offset| not_negative("offset", &offset)).transpose()?;
    options.timeout = timeout.map(|Timeout(limit)| limit).filter(|limit| *limit < Duration::MAX);
    let modes = [("auto", RelayMode::Auto), ("read-write", RelayMode::ReadWrite)];
    options.mode = arguments::choice("method", method, &modes)?;
    Ok(options)
}

/// A number of bytes, capped at what 64 bits can count.
fn not_negative(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let number = match value.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) && value.gt(0)? => {
            return Ok(u64::MAX);
        }
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => i64::MIN,
        number => number?,
    };
    u64::try_from(number)
        .map_err(|_| PyValueError::new_err(format!("{name} must be at least 0, not {value}")))
}

/// The exception, with its byte counts.
fn raised(py: Python<'_>, failure: &RelayError) -> PyErr {
    let exception = errors::to_python_of(py, &failure.error, "relay");
    if !matches!(failure.error, penstock_core::Error::Unsuitable(_)) {
        tell(exception.value(py), failure.bytes_delivered(), failure.bytes_lost());
    }
    exception
}

/// Sets the byte counts of a relay on an exception of any class.
fn tell(exception: &Bound<'_, PyAny>, delivered: u64, lost: u64) {
    // A class of the caller's may refuse attributes or notes; the exception itself matters more.
    let _ = errors::add_byte_counts(exception, delivered, lost);
}

/// The result of a relay: how many bytes it moved, and by which method.
#[pyclass(frozen, eq, module = "penstock.results")]
#[derive(PartialEq)]
pub(crate) struct RelayReport(penstock_core::RelayReport);

#[pymethods]
impl RelayReport {
    /// Bytes that reached the destination.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// ``"splice"``, ``"splice-through-pipe"``, ``"copy_file_range"``, ``"sendfile"`` or ``"read-write"``; the last
    /// method if the relay changed it.
    #[getter]
    fn method(&self) -> &'static str {
        self.0.method.name()
    }

    /// Why this method was used.
    #[getter]
    fn reason(&self) -> String {
        self.0.reason.to_string()
    }

    /// Whether the relay ended because the source ended, and not because of ``count``.
    #[getter]
    fn source_ended(&self) -> bool {
        self.0.source_ended
    }

    fn __repr__(&self) -> String {
        let end = if self.0.source_ended { ", to the source's end" } else { "" };
        format!("<RelayReport {} bytes by {} ({}){end}>", self.0.bytes, self.method(), self.0.reason)
    }
}

/// A relay on a native thread. ``await ticket`` waits for it in asyncio.
///
/// If you cancel the task that awaits the ticket, the relay is cancelled; the ``CancelledError`` has
/// ``bytes_delivered`` and ``bytes_lost``.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct RelayTicket {
    ticket: penstock_core::RelayTicket,
    /// Whether its end was logged: once, however often it is waited for.
    is_logged: AtomicBool,
}

impl RelayTicket {
    fn ended_within(
        &self,
        py: Python<'_>,
        timeout: Option<Timeout>,
    ) -> PyResult<Result<penstock_core::RelayReport, PyErr>> {
        let ended = until(py, timeout, |slice| self.ticket.wait_for(Some(slice)).map(Ok).into())?;
        let outcome = ended.map_err(|error| {
            let exception = errors::to_python_of(py, &error, "relay");
            tell(exception.value(py), self.ticket.relayed().bytes, 0);
            exception
        })?;
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            relay_log::relay_ended(py, outcome.as_ref())?;
        }
        Ok(outcome.map_err(|failure| raised(py, &failure)))
    }
}

#[pymethods]
impl RelayTicket {
    /// Whether the relay has ended, successfully or not.
    fn done(&self) -> bool {
        self.ticket.ticket().has_ended()
    }

    /// Waits until the relay has ended, and returns its result. Releases the GIL; Ctrl-C interrupts it.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     StalledError: if the relay didn't end in that time, and continues; or if no byte moved for its own timeout.
    ///     ClosedError: if the relay was cancelled.
    ///     BrokenStreamError, OSError: as for ``relay``.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<RelayReport> {
        self.ended_within(py, timeout)?.map(RelayReport)
    }

    /// Waits as ``wait`` does, and returns the exception of a relay that failed; None if it succeeded.
    ///
    /// Raises:
    ///     StalledError: if the relay didn't end in that time.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Timeout>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.ended_within(py, timeout)?.err().map(|error| value_of(py, error)))
    }

    /// Stops the relay. Moved bytes stay moved. Does nothing after its end.
    fn cancel(&self) {
        self.ticket.cancel();
    }

    /// The progress so far.
    #[getter]
    fn report(&self) -> RelayReport {
        RelayReport(self.ticket.relayed())
    }

    /// The policy that was applied to the thread; None if you asked for none, or before the thread starts.
    #[getter]
    fn policy(&self) -> Option<AppliedPolicy> {
        self.ticket.applied_policy().map(AppliedPolicy)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        awaited(slf, "relayed")
    }

    /// Tell the waker that number when the relay ends.
    fn _notify(&self, waker: &LoopWaker, number: u64) -> Watch {
        Watch::start(self.ticket.ticket(), waker, number)
    }

    /// Set the byte counts of this relay, which has ended, on an exception.
    fn _tell(&self, error: &Bound<'_, PyAny>) {
        match self.ticket.wait_for(Some(Duration::ZERO)) {
            Some(Err(failure)) => tell(error, failure.bytes_delivered(), failure.bytes_lost()),
            _ => tell(error, self.ticket.relayed().bytes, 0),
        }
    }

    fn __repr__(&self) -> String {
        let relayed = self.report().__repr__();
        let state = match self.ticket.ticket().peek() {
            None => "under way".into(),
            Some(Ok(())) => "done".into(),
            Some(Err(error)) => format!("failed: {error}"),
        };
        format!("<RelayTicket {state}, {}>", relayed.trim_matches(['<', '>']))
    }
}
