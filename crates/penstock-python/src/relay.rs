//! Relays in Python.

use std::os::fd::BorrowedFd;

use penstock_core::{RelayError, RelayMode, RelayOptions};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::arguments::{self, Seconds};
use crate::errors;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Watch;
use crate::waiting::{Attempt, until};

/// Moves bytes from one descriptor to another: see ``penstock.relay``, which also knows Python's buffered files.
#[pyfunction]
#[pyo3(signature = (src, dst, count=None, *, offset=None, timeout=None, method="auto", policy=None, wait=true))]
#[allow(clippy::too_many_arguments)] // keyword-only options
pub(crate) fn relay<'py>(
    py: Python<'py>,
    src: &Bound<'py, PyAny>,
    dst: &Bound<'py, PyAny>,
    count: Option<Bound<'py, PyAny>>,
    offset: Option<Bound<'py, PyAny>>,
    timeout: Option<Seconds>,
    method: &str,
    policy: Option<ThreadPolicy>,
    wait: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let options = RelayOptions {
        count: count.map(|count| not_negative("count", &count)).transpose()?,
        offset: offset.map(|offset| not_negative("offset", &offset)).transpose()?,
        timeout: arguments::timeout(timeout)?,
        mode: mode(method)?,
    };
    if wait && policy.is_some() {
        return Err(PyValueError::new_err("policy is for a thread of its own: it needs wait=False"));
    }
    let ends = (arguments::descriptor(src)?, arguments::descriptor(dst)?);
    if wait {
        Ok(run(py, ends, &options)?.into_pyobject(py)?.into_any())
    } else {
        Ok(start(py, ends, &options, policy)?.into_pyobject(py)?.into_any())
    }
}

type Ends = (BorrowedFd<'static>, BorrowedFd<'static>);

fn run(py: Python<'_>, (src, dst): Ends, options: &RelayOptions) -> PyResult<Relayed> {
    let mut relay = penstock_core::Relay::new(src, dst, options).map_err(|error| raised(py, &error))?;
    let outcome = until(py, None, |slice| match relay.run(Some(slice)) {
        Some(outcome) => Attempt::Ended(Ok(outcome)),
        None => Attempt::NotYet { bytes_pending: 0 },
    });
    // A signal's exception, as Ctrl-C raises, tells as well how far it came.
    let outcome =
        outcome.map_err(|interruption| with_counts(py, interruption, relay.relayed().bytes, None))?;
    let outcome = outcome.map_err(|error| errors::to_python(py, &error))?;
    outcome.map(Relayed).map_err(|error| raised(py, &error))
}

fn start(
    py: Python<'_>,
    (src, dst): Ends,
    options: &RelayOptions,
    policy: Option<ThreadPolicy>,
) -> PyResult<RelayTicket> {
    arm_exit(py)?;
    penstock_core::relay_in_background(src, dst, options, policy.map(|policy| policy.0))
        .map(RelayTicket)
        .map_err(|error| raised(py, &error))
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
    use penstock_core::Error;
    let exception = errors::to_python(py, &failure.error);
    match failure.error {
        Error::Unsuitable(_) => exception,
        Error::Broken { .. } => exception, // knows better: what the reader did not take is not delivered
        Error::Io { bytes_delivered, bytes_lost, .. } => {
            with_counts(py, exception, bytes_delivered, Some(bytes_lost))
        }
        Error::Aborted { bytes_lost } => with_counts(py, exception, failure.relayed.bytes, Some(bytes_lost)),
        _ => with_counts(py, exception, failure.relayed.bytes, None),
    }
}

fn with_counts(py: Python<'_>, exception: PyErr, delivered: u64, lost: Option<u64>) -> PyErr {
    let value = exception.value(py);
    let set = value
        .setattr("bytes_delivered", delivered)
        .and_then(|()| lost.map_or(Ok(()), |lost| value.setattr("bytes_lost", lost)));
    match set {
        Ok(()) => exception,
        Err(failure) => failure,
    }
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

    /// The same with so many bytes in front, which went another way.
    fn _after(&self, bytes: u64) -> Self {
        Self(penstock_core::Relayed { bytes: bytes + self.0.bytes, ..self.0 })
    }

    fn __repr__(&self) -> String {
        let end = if self.0.source_ended { ", to the source's end" } else { "" };
        format!("<Relayed {} bytes by {} ({}){end}>", self.0.bytes, self.method(), self.0.reason)
    }
}

/// A relay under way on a native thread. ``await ticket`` waits for it in asyncio; if the task that awaits is cancelled, so is
/// the relay.
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
        let outcome = ended
            .map_err(|error| with_counts(py, errors::to_python(py, &error), self.0.relayed().bytes, None))?;
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
        let ended = slf.py().import("penstock._asyncio")?.call_method1("ended_or_cancelled", (&slf,))?;
        ended.call_method0("__await__")
    }

    /// Adds 1 to the eventfd when the relay ends. The answer ends the watch.
    fn _notify(&self, eventfd: i32) -> PyResult<Watch> {
        Watch::start(self.0.ticket(), eventfd)
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
