//! Tees in Python.

use std::time::Duration;

use penstock_core::{Error, TeeEnd, TeePolicy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::arguments::{self, Seconds};
use crate::errors;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::ticket::Watch;
use crate::waiting::{Attempt, until};

/// Tee(src, *dsts, policy="block", stall_timeout=5.0, thread_policy=None, start=True)
/// --
///
/// Copies one stream to many destinations on a native thread, by tee(2) and splice(2).
///
/// No byte passes through user space when all are pipes; for other sources and destinations there is a pipe of ours in between.
/// The death of one destination never stops or shortens another's stream. The tee ends when the source does, or when there is
/// no destination left, and what the source holds then stays there. All descriptors are duplicated: a reader of a destination
/// has its end of file when the caller, too, has closed it.
///
/// As a context manager it waits at the end of the block, and raises what the first destination failed of; if the block
/// raised, it is cancelled. ``await tee`` gives the report; if the task that awaits is cancelled, so is the tee.
///
/// Args:
///     src: an int, or anything with ``fileno()``, open for reading. Of a buffered file the tee begins where the program is.
///     dsts: destinations, open for writing. What a Python stream has buffered for one goes there first.
///     policy: what is done about one of ``dsts`` that takes nothing: ``"block"`` has all wait for it, ``"evict"`` gives it up
///         after ``stall_timeout``; one that is merely slow stays.
///     stall_timeout: seconds in which an evictable destination may take no byte at all while there are some to take.
///     thread_policy: priority and CPUs of the thread.
///     start: False begins only with ``start()``, so that destinations with policies of their own can be added and miss
///         nothing.
///
/// Raises:
///     OSError: EBADF for a descriptor that is closed or open for something else, or what the system says.
///     TypeError: the descriptor does not carry what the object reads or writes: that of a text source, a compressed file, a
///         TLS socket. Or there is none.
///     ValueError: a destination is the source, or is given twice; the source is a pipe or socket of which a Python stream has
///         read ahead; or another wrong argument.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Tee(penstock_core::Tee);

#[pymethods]
impl Tee {
    #[new]
    #[pyo3(signature = (src, *dsts, policy="block", stall_timeout=5.0, thread_policy=None, start=true))]
    fn new(
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        dsts: &Bound<'_, PyTuple>,
        policy: &str,
        #[pyo3(from_py_with = arguments::stall_timeout)] stall_timeout: f64,
        thread_policy: Option<ThreadPolicy>,
        start: bool,
    ) -> PyResult<Self> {
        let source = arguments::descriptor(&arguments::tee_source(src)?)?;
        let tee = penstock_core::Tee::new(source, thread_policy.map(|policy| policy.0))
            .map_err(|error| errors::to_python(py, &error))?;
        let tee = Self(tee);
        for dst in dsts {
            tee.add(py, &dst, policy, stall_timeout)?;
        }
        if start {
            tee.start(py)?;
        }
        Ok(tee)
    }

    /// Begins, if it was made with ``start=False``; else does nothing.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        arm_exit(py)?;
        self.0.start().map_err(|error| errors::to_python(py, &error))
    }

    /// Adds a destination: before the start it gets the whole stream, afterwards what comes from now on.
    ///
    /// Args:
    ///     dst: an int, or anything with ``fileno()``, open for writing.
    ///     policy, stall_timeout: as for the tee's own ``dsts``.
    ///
    /// Raises:
    ///     ClosedError: the tee has ended.
    ///     OSError, ValueError: as the constructor does.
    #[pyo3(signature = (dst, *, policy="block", stall_timeout=5.0))]
    fn add(
        &self,
        py: Python<'_>,
        dst: &Bound<'_, PyAny>,
        policy: &str,
        #[pyo3(from_py_with = arguments::stall_timeout)] stall_timeout: f64,
    ) -> PyResult<TeeOutlet> {
        let policy = tee_policy(policy, stall_timeout)?;
        let outlet = self.0.add(arguments::destination(dst)?, policy);
        outlet.map(TeeOutlet).map_err(|error| errors::to_python(py, &error))
    }

    /// Takes a destination off: what it has taken is still delivered, and no more. Does nothing if it has ended.
    ///
    /// Args:
    ///     dst: what ``add`` gave, or a descriptor that leads there.
    ///
    /// Raises:
    ///     ValueError: it is no destination of this tee.
    fn remove(&self, dst: &Bound<'_, PyAny>) -> PyResult<()> {
        let unknown = || PyValueError::new_err("it is no destination of this tee");
        let outlet = match dst.cast::<TeeOutlet>() {
            Ok(outlet) => outlet.get().0.clone(),
            Err(_) => self.0.find(arguments::descriptor(dst)?).ok_or_else(unknown)?,
        };
        // One that has ended may not be listed any more, and there is nothing to do about it.
        if outlet.report().end.is_none() {
            self.0.report().outlets.iter().find(|other| other.is(&outlet)).ok_or_else(unknown)?;
            self.0.remove(&outlet);
        }
        Ok(())
    }

    /// Starts the tee if it was not, waits for its end with the GIL released and awake to signals, and gives its report.
    ///
    /// The failures of destinations are in the report: see ``TeeReport.check``.
    ///
    /// Args:
    ///     timeout: seconds; None waits for as long as it takes.
    ///
    /// Raises:
    ///     StalledError: it has not ended in that time. It goes on.
    ///     OSError: the source failed.
    ///     ClosedError: it was cancelled.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<TeeReport> {
        self.start(py)?;
        until(py, arguments::timeout(timeout)?, |slice| {
            self.0.wait_for(Some(slice)).map_or(Attempt::NotYet { bytes_pending: 0 }, Attempt::Ended)
        })?
        .map(TeeReport)
        .map_err(|error| errors::to_python(py, &error))
    }

    /// Stops the tee where it is. Does nothing after its end.
    fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether the tee has ended.
    fn done(&self) -> bool {
        self.0.ticket().is_some_and(|ticket| ticket.outcome().is_some())
    }

    /// What became of it so far.
    #[getter]
    fn report(&self) -> TeeReport {
        TeeReport(self.0.report())
    }

    /// What its thread runs with; None without a policy, and before it has started.
    #[getter]
    fn thread_policy(&self) -> Option<AppliedPolicy> {
        self.0.applied_policy().map(AppliedPolicy)
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().start(py)?;
        let ended = py.import("penstock._asyncio")?.call_method1("ended_or_cancelled", (&slf,))?;
        ended.call_method0("__await__")
    }

    /// Adds 1 to the eventfd when the tee, which must have begun, ends. The answer ends the watch.
    fn _notify(&self, eventfd: i32) -> PyResult<Watch> {
        match self.0.ticket() {
            Some(ticket) => Watch::start(&ticket, eventfd),
            None => Err(PyValueError::new_err("the tee has not begun")),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().start(slf.py())?;
        Ok(slf)
    }

    /// Waits, and raises what the first destination failed of; cancels if the block raised.
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: Option<&Bound<'_, PyType>>,
        _exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if exc_type.is_some() {
            self.cancel();
            return Ok(());
        }
        self.wait(py, None)?.check(py)
    }
}

fn tee_policy(name: &str, stall_timeout: f64) -> PyResult<TeePolicy> {
    let after = arguments::timeout(Some(stall_timeout))?;
    match name {
        "block" => Ok(TeePolicy::Block),
        "evict" if after.is_some_and(|after| after.is_zero()) => Err(PyValueError::new_err(
            "stall_timeout must be more than 0 seconds: it would evict who is merely slow",
        )),
        "evict" => Ok(TeePolicy::Evict { after: after.unwrap_or(Duration::MAX) }),
        _ => Err(PyValueError::new_err(format!("policy must be 'block' or 'evict', not {name:?}"))),
    }
}

/// One destination of a tee: live while it runs, a report afterwards.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct TeeOutlet(penstock_core::TeeOutlet);

#[pymethods]
impl TeeOutlet {
    /// The number of the descriptor that it was added by.
    #[getter]
    fn fd(&self) -> i32 {
        self.0.number()
    }

    /// "block" or "evict".
    #[getter]
    fn policy(&self) -> &'static str {
        match self.0.policy() {
            TeePolicy::Block => "block",
            TeePolicy::Evict { .. } => "evict",
        }
    }

    /// The offset in the stream at which it began, in bytes: 0 unless it was added after the start.
    #[getter]
    fn start_bytes(&self) -> u64 {
        self.0.report().start
    }

    /// Bytes that it has taken; after its reader went away, those that the reader had taken.
    #[getter]
    fn bytes_delivered(&self) -> u64 {
        self.0.report().bytes_delivered
    }

    /// Bytes that were taken for it and did not arrive.
    #[getter]
    fn bytes_lost(&self) -> u64 {
        self.0.report().bytes_lost
    }

    /// Why it gets nothing more: "source-ended", "source-failed", "removed", "broken" (its reader went away), "evicted",
    /// "failed" (the system refused, as a full disk does) or "cancelled"; None while it runs.
    #[getter]
    fn ended(&self) -> Option<&'static str> {
        self.0.report().end.map(TeeEnd::name)
    }

    /// What it failed of: BrokenStreamError, StalledError (evicted) or another OSError; None if it did not.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let error = self.0.report().error?;
        Some(errors::to_python(py, &error).into_value(py).into_bound(py).into_any())
    }

    /// How its bytes move: "tee", or through a pipe of ours "tee, splice" or "tee, read-write".
    #[getter]
    fn method(&self) -> &'static str {
        self.0.report().method()
    }

    /// Why that method.
    #[getter]
    fn reason(&self) -> String {
        self.0.report().reason()
    }

    fn __repr__(&self) -> String {
        let report = self.0.report();
        format!(
            "<TeeOutlet fd={} {}, {} bytes delivered, {} lost>",
            self.0.number(),
            report.end.map_or("running", TeeEnd::name),
            report.bytes_delivered,
            report.bytes_lost
        )
    }
}

/// What became of a tee, and of each of its destinations.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct TeeReport(penstock_core::TeeReport);

impl TeeReport {
    fn failures(&self) -> Vec<Error> {
        let listed = self.0.outlets.iter().filter_map(|outlet| outlet.report().error);
        self.0.forgotten.first_error.clone().into_iter().chain(listed).collect()
    }
}

#[pymethods]
impl TeeReport {
    /// Bytes that were taken out of the source.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes that were read ahead of a source that is neither pipe nor file, and that nobody got: all destinations were gone.
    #[getter]
    fn bytes_lost(&self) -> u64 {
        self.0.bytes_lost
    }

    /// Whether the source has come to its end.
    #[getter]
    fn source_ended(&self) -> bool {
        self.0.source_ended
    }

    /// The destinations, in the order in which they were added: all that run, and the last thousand that have ended.
    #[getter]
    fn destinations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.outlets.iter().cloned().map(TeeOutlet))
    }

    /// How many destinations ended before those that are listed.
    #[getter]
    fn forgotten(&self) -> u64 {
        self.0.forgotten.outlets
    }

    /// How many of the forgotten ones failed. ``check`` raises what the first of them failed of.
    #[getter]
    fn forgotten_failures(&self) -> u64 {
        self.0.forgotten.failures
    }

    /// Bytes that were taken for the forgotten ones and did not arrive.
    #[getter]
    fn forgotten_bytes_lost(&self) -> u64 {
        self.0.forgotten.bytes_lost
    }

    /// Raises what the first destination failed of, with the others as notes; does nothing if none did.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let failures = self.failures();
        if failures.is_empty() {
            return Ok(());
        }
        let raised = errors::first_of(py, &failures);
        if self.forgotten_failures() > 1 {
            let note =
                format!("{} more destinations failed, which are forgotten", self.forgotten_failures() - 1);
            raised.value(py).call_method1("add_note", (note,))?;
        }
        Err(raised)
    }

    fn __repr__(&self) -> String {
        let outlets: Vec<_> =
            self.0.outlets.iter().map(|outlet| TeeOutlet(outlet.clone()).__repr__()).collect();
        let end = if self.0.source_ended { ", to the source's end" } else { "" };
        format!("<TeeReport {} bytes{end}: {}>", self.0.bytes, outlets.join(", "))
    }
}
