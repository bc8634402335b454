//! Relays in Python.

use std::time::Duration;

use penstock_core::{RelayError, RelayMode, RelayOptions};
use pyo3::exceptions::{PyBaseException, PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::arguments::{self, Seconds};
use crate::errors;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Watch;
use crate::waiting::{Attempt, until};

/// A relay in the caller's thread, prepared: see ``penstock.relay``, which also knows Python's streams.
#[pyclass(module = "penstock._native", name = "_Relay")]
pub(crate) struct Relay {
    /// Gone when it has ended: a traceback keeps this object, and shall not keep descriptors.
    relay: Option<penstock_core::Relay>,
    offset: Option<u64>,
    ahead_bytes: u64,
    bytes_delivered: u64,
    bytes_lost: u64,
}

#[pymethods]
impl Relay {
    /// ``ahead`` goes first: it has been read from the source already.
    #[new]
    #[allow(clippy::too_many_arguments)] // those of `penstock.relay`
    fn new(
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        dst: &Bound<'_, PyAny>,
        count: Option<Bound<'_, PyAny>>,
        offset: Option<Bound<'_, PyAny>>,
        timeout: Option<Seconds>,
        method: &str,
        ahead: &[u8],
    ) -> PyResult<Self> {
        let options = options(count, offset, timeout, method)?;
        let (src, dst) = (arguments::descriptor(src)?, arguments::descriptor(dst)?);
        let ahead_bytes = ahead.len() as u64;
        let relay = penstock_core::Relay::new(src, dst, &options);
        let relay = relay.map_err(|error| raised(py, &error))?.after(ahead.to_vec());
        let offset = options.offset;
        Ok(Self { relay: Some(relay), offset, ahead_bytes, bytes_delivered: 0, bytes_lost: 0 })
    }

    /// Moves the bytes, and has the stream, whose descriptor is the source, go on after those that were delivered. Once.
    fn run(&mut self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<Relayed> {
        let spent = || PyValueError::new_err("this relay has ended");
        let mut relay = self.relay.take().ok_or_else(spent)?;
        let outcome = until(py, None, |slice| match relay.run(Some(slice)) {
            Some(outcome) => Attempt::Ended(Ok(outcome)),
            None => Attempt::NotYet { bytes_pending: 0 },
        });
        (self.bytes_delivered, self.bytes_lost) = (relay.relayed().bytes, relay.bytes_held());
        let outcome = match outcome {
            Ok(Ok(Ok(relayed))) => Ok(Relayed(relayed)),
            Ok(Ok(Err(failure))) => {
                (self.bytes_delivered, self.bytes_lost) = (failure.bytes_delivered(), failure.bytes_lost());
                Err(errors::to_python(py, &failure.error))
            }
            Ok(Err(error)) => Err(errors::to_python(py, &error)),
            Err(interruption) => Err(interruption),
        };
        // Here and not in Python, where a signal's exception could come before it.
        let left = stream.map_or(Ok(()), |stream| self.leave(stream, relay.relayed().bytes));
        outcome.and_then(|relayed| left.map(|()| relayed))
    }

    /// Has the exception that ended the relay say how far it came.
    fn tell(&self, exception: &Bound<'_, PyAny>) {
        tell(exception, self.bytes_delivered, self.bytes_lost);
    }
}

impl Relay {
    /// Has the stream stand behind the bytes that were delivered.
    fn leave(&self, stream: &Bound<'_, PyAny>, moved: u64) -> PyResult<()> {
        match self.offset {
            Some(offset) => stream.call_method1("seek", (offset + self.bytes_delivered,))?,
            // Of a pipe those from its buffer: what was taken from the descriptor is gone.
            None => stream.call_method1("read", (moved.min(self.ahead_bytes),))?,
        };
        Ok(())
    }
}

/// Starts a relay on a native thread.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // those of `penstock.start_relay`
pub(crate) fn _start_relay(
    py: Python<'_>,
    src: &Bound<'_, PyAny>,
    dst: &Bound<'_, PyAny>,
    count: Option<Bound<'_, PyAny>>,
    offset: Option<Bound<'_, PyAny>>,
    timeout: Option<Seconds>,
    method: &str,
    policy: Option<ThreadPolicy>,
) -> PyResult<RelayTicket> {
    let options = options(count, offset, timeout, method)?;
    let (src, dst) = (arguments::descriptor(src)?, arguments::descriptor(dst)?);
    arm_exit(py)?;
    penstock_core::relay_in_background(src, dst, &options, policy.map(|policy| policy.0))
        .map(RelayTicket)
        .map_err(|error| raised(py, &error))
}

fn options(
    count: Option<Bound<'_, PyAny>>,
    offset: Option<Bound<'_, PyAny>>,
    timeout: Option<Seconds>,
    method: &str,
) -> PyResult<RelayOptions> {
    Ok(RelayOptions {
        count: count.map(|count| not_negative("count", &count)).transpose()?,
        offset: offset.map(|offset| not_negative("offset", &offset)).transpose()?,
        timeout: arguments::timeout(timeout)?,
        mode: mode(method)?,
    })
}

fn mode(name: &str) -> PyResult<RelayMode> {
    match name {
        "auto" => Ok(RelayMode::Auto),
        "read-write" => Ok(RelayMode::ReadWrite),
        _ => Err(PyValueError::new_err(format!("method must be 'auto' or 'read-write', not {name:?}"))),
    }
}

/// A number of bytes; more than any stream has if it is more than we can count.
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

/// The exception, with how far the relay came.
fn raised(py: Python<'_>, failure: &RelayError) -> PyErr {
    let exception = errors::to_python(py, &failure.error);
    if !matches!(failure.error, penstock_core::Error::Unsuitable(_)) {
        tell(exception.value(py), failure.bytes_delivered(), failure.bytes_lost());
    }
    exception
}

/// Sets what an exception says of a relay's bytes, whatever class it is of, if it does not say it yet.
fn tell(exception: &Bound<'_, PyAny>, delivered: u64, lost: u64) {
    // Of a class of somebody's own that takes neither attributes nor notes, it is itself that matters.
    let _ = try_to_tell(exception, delivered, lost);
}

fn try_to_tell(exception: &Bound<'_, PyAny>, delivered: u64, lost: u64) -> PyResult<()> {
    let says_so = exception.getattr("__dict__")?.contains("bytes_lost")?;
    // Not by `setattr`, which a frozen dataclass refuses.
    let set = exception.py().get_type::<PyBaseException>().getattr("__setattr__")?;
    set.call1((exception, "bytes_delivered", delivered))?;
    set.call1((exception, "bytes_lost", lost))?;
    if lost > 0 && !says_so {
        exception.call_method1("add_note", (format!("{delivered} bytes delivered, {lost} lost"),))?;
    }
    Ok(())
}

/// What a relay has moved, and how.
#[pyclass(frozen, eq, module = "penstock.results")]
#[derive(PartialEq)]
pub(crate) struct Relayed(penstock_core::Relayed);

#[pymethods]
impl Relayed {
    /// Bytes that the destination has taken.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// How: "splice", "splice-through-pipe", "copy_file_range", "sendfile" or "read-write"; the last, if it was more than one.
    #[getter]
    fn method(&self) -> &'static str {
        self.0.method.name()
    }

    /// Why that method.
    #[getter]
    fn reason(&self) -> String {
        self.0.reason.to_string()
    }

    /// Whether the source has come to its end, and not only the count to its own.
    #[getter]
    fn source_ended(&self) -> bool {
        self.0.source_ended
    }

    fn __repr__(&self) -> String {
        let end = if self.0.source_ended { ", to the source's end" } else { "" };
        format!("<Relayed {} bytes by {} ({}){end}>", self.0.bytes, self.method(), self.0.reason)
    }
}

/// A relay under way on a native thread. ``await ticket`` waits for it in asyncio; if the task that awaits is cancelled, so is
/// the relay, and the ``CancelledError`` has ``bytes_delivered`` and ``bytes_lost``.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct RelayTicket(penstock_core::RelayTicket);

impl RelayTicket {
    fn ended_within(
        &self,
        py: Python<'_>,
        timeout: Option<Seconds>,
    ) -> PyResult<Result<penstock_core::Relayed, PyErr>> {
        let ended = until(py, arguments::timeout(timeout)?, |slice| {
            self.0
                .wait_for(Some(slice))
                .map_or(Attempt::NotYet { bytes_pending: 0 }, |end| Attempt::Ended(Ok(end)))
        })?;
        let outcome = ended.map_err(|error| {
            let exception = errors::to_python(py, &error);
            tell(exception.value(py), self.0.relayed().bytes, 0);
            exception
        })?;
        Ok(outcome.map_err(|failure| raised(py, &failure)))
    }
}

#[pymethods]
impl RelayTicket {
    /// Whether the relay has ended, well or not.
    fn done(&self) -> bool {
        self.0.ticket().outcome().is_some()
    }

    /// Waits until the relay has ended, with the GIL released and awake to signals, and gives its result.
    ///
    /// Args:
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     StalledError: it has not ended in that time. It goes on.
    ///     ClosedError: it was cancelled.
    ///     BrokenStreamError, OSError: as ``relay`` does.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Relayed> {
        self.ended_within(py, timeout)?.map(Relayed)
    }

    /// Waits as ``wait`` does, and gives what that would raise; None if all went well.
    #[pyo3(signature = (timeout=None))]
    fn exception<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let outcome = self.ended_within(py, timeout)?;
        Ok(outcome.err().map(|error| error.into_value(py).into_bound(py).into_any()))
    }

    /// Stops the relay where it is; what it has moved stays moved. Does nothing after its end.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// What has been moved so far.
    #[getter]
    fn relayed(&self) -> Relayed {
        Relayed(self.0.relayed())
    }

    /// What its thread runs with; None without a policy, and before it has started.
    #[getter]
    fn policy(&self) -> Option<AppliedPolicy> {
        self.0.applied_policy().map(AppliedPolicy)
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("penstock._asyncio")?.call_method1("relayed", (&slf,))?;
        ended.call_method0("__await__")
    }

    /// Adds 1 to the eventfd when the relay ends. The answer ends the watch.
    fn _notify(&self, eventfd: i32) -> PyResult<Watch> {
        Watch::start(self.0.ticket(), eventfd)
    }

    /// Has an exception say how far the relay, which has ended, came.
    fn _tell(&self, error: &Bound<'_, PyAny>) {
        match self.0.wait_for(Some(Duration::ZERO)) {
            Some(Err(failure)) => tell(error, failure.bytes_delivered(), failure.bytes_lost()),
            _ => tell(error, self.0.relayed().bytes, 0),
        }
    }

    fn __repr__(&self) -> String {
        let relayed = self.relayed().__repr__();
        let state = match self.0.ticket().outcome() {
            None => "under way".into(),
            Some(Ok(())) => "done".into(),
            Some(Err(error)) => format!("failed: {error}"),
        };
        format!("<RelayTicket {state}, {}>", relayed.trim_matches(['<', '>']))
    }
}
