//! Tees in Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_core::{Error, TeeEnd, TeePolicy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::arguments::{self, Seconds, Timeout};
use crate::errors::{self, OrRaise, value_of};
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::relay_log;
use crate::ticket::{LoopWaker, Watch};
use crate::waiting::{awaited, coroutine, until};

/// Copies one stream to many outputs on a native thread, by tee(2) and splice(2).
///
/// ```python
/// report = Tee(source, archive, process.stdin).wait()
/// report.check()  # raises if an output failed
/// ```
///
/// If all ends are pipes, no byte passes through user space. For other ends, the tee puts a pipe of its own in between.
/// If one output fails, the others still receive everything. The tee ends when the source ends, or when no output is
/// left; in that case the bytes in the source stay there. The tee duplicates all descriptors: the reader of an output
/// gets its end of file once you have closed the descriptor, too.
///
/// ``with`` and ``async with`` start the tee, wait for it at the end of the block, and raise the error of the first
/// output that failed. If the block raises, they cancel the tee. ``await tee`` returns the report. If you cancel the
/// task that awaits it, the tee is cancelled.
///
/// Args:
///     src: an int or an object with ``fileno()``, open for reading. A buffered file is read from the stream's
///         position.
///     outputs: the same, open for writing. Bytes that a Python stream has buffered are flushed first.
///     when_full: what to do if an output takes nothing: with ``"block"`` all others wait for it, with ``"evict"`` it
///         is removed after ``stall_timeout``. A slow output stays.
///     stall_timeout: seconds after which an output is evicted if it takes no byte although bytes are ready.
///     policy: priority and CPUs of the thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.
///     start: False delays the start until ``start()``, so that ``add`` can add outputs that miss nothing.
///
/// Raises:
///     OSError: EBADF if a descriptor is closed, or isn't open for reading or writing as needed; or another failure of
///         the system.
///     TypeError: if an object has no descriptor, or its descriptor doesn't carry the bytes that the object reads or
///         writes: a text source, a compressed file or a TLS socket.
///     ValueError: if an output is the source, or occurs twice; if the source is a pipe or socket of which a Python
///         stream has read ahead; or if an argument has a wrong value.
#[pyclass(frozen, module = "penstock")]
pub(crate) struct Tee {
    tee: penstock_core::Tee,
    /// Whether its evictions were logged: once, however often it is waited for or cancelled.
    is_logged: AtomicBool,
}

#[pymethods]
impl Tee {
    #[classattr]
    #[pyo3(name = "Output")]
    fn output(py: Python<'_>) -> Bound<'_, PyType> {
        py.get_type::<TeeOutput>()
    }

    #[new]
    #[pyo3(signature = (src, *outputs, when_full="block", stall_timeout=5.0, policy=None, start=true))]
    fn new(
        py: Python<'_>,
        src: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyTuple>,
        when_full: &str,
        #[pyo3(from_py_with = arguments::stall_timeout)] stall_timeout: f64,
        policy: Option<ThreadPolicy>,
        start: bool,
    ) -> PyResult<Self> {
        let when_full = tee_policy(when_full, stall_timeout)?;
        let tee = between(py, src, outputs, when_full, policy)
            .map_err(|raised| arguments::name_end(src, outputs, raised))?;
        let tee = Self { tee, is_logged: AtomicBool::new(false) };
        if start {
            tee.start(py)?;
        }
        Ok(tee)
    }

    /// Starts a tee that was made with ``start=False``. Otherwise does nothing.
    ///
    /// Raises:
    ///     OSError: EAGAIN if no thread could be started. The tee can be started again.
    ///     ClosedError: if the tee belongs to the parent process.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        arm_exit(py)?;
        py.detach(|| self.tee.start()).or_raise_of(py, "tee")
    }

    /// Adds an output. Before the start it gets the whole stream, later the bytes from now on.
    ///
    /// Args:
    ///     output: an int or an object with ``fileno()``, open for writing.
    ///     when_full: as for the constructor's ``outputs``.
    ///     stall_timeout: as for the constructor's ``outputs``.
    ///
    /// Raises:
    ///     ClosedError: if the tee has ended.
    ///     OSError, TypeError, ValueError: as for the constructor.
    #[pyo3(signature = (output, *, when_full="block", stall_timeout=5.0))]
    fn add(
        &self,
        py: Python<'_>,
        output: &Bound<'_, PyAny>,
        when_full: &str,
        #[pyo3(from_py_with = arguments::stall_timeout)] stall_timeout: f64,
    ) -> PyResult<TeeOutput> {
        let policy = tee_policy(when_full, stall_timeout)?;
        let output = arguments::destination(output, "output")?;
        py.detach(|| self.tee.add(output, policy)).map(TeeOutput).or_raise_of(py, "tee")
    }

    /// Removes an output. Bytes that were taken for it are still delivered. Does nothing if it has ended.
    ///
    /// Args:
    ///     output: the ``Tee.Output`` that ``add`` returned, or a descriptor of the output.
    ///
    /// Raises:
    ///     ValueError: if it isn't an output of this tee.
    fn remove(&self, output: &Bound<'_, PyAny>) -> PyResult<()> {
        let unknown = || PyValueError::new_err("output must be an output of this tee");
        let output = match output.cast::<TeeOutput>() {
            Ok(output) => output.get().0.clone(),
            Err(_) => {
                let fd = arguments::descriptor(output)?;
                output.py().detach(|| self.tee.find(fd)).ok_or_else(unknown)?
            }
        };
        // One that has ended may not be listed any more.
        if output.report().end.is_none() {
            self.tee.report().outputs.iter().find(|other| other.is(&output)).ok_or_else(unknown)?;
            self.tee.remove(&output);
        }
        Ok(())
    }

    /// Starts the tee if needed, waits for its end and returns its report. Releases the GIL; Ctrl-C interrupts it.
    ///
    /// Failures of outputs don't raise here: see ``TeeReport.check``.
    ///
    /// Args:
    ///     timeout: seconds; None waits without limit.
    ///
    /// Raises:
    ///     StalledError: if the tee didn't end in that time. It continues.
    ///     OSError: if the source failed.
    ///     ClosedError: if the tee was cancelled.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<TeeReport> {
        self.start(py)?;
        let ended = until(py, timeout, |slice| self.tee.wait_for(Some(slice)).into())?;
        if self.done() {
            self.log_evictions(py)?;
        }
        ended.map(TeeReport).or_raise_of(py, "tee")
    }

    /// Stops the tee. Does nothing after its end.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.tee.cancel();
        self.log_evictions(py)
    }

    /// Whether the tee has ended.
    fn done(&self) -> bool {
        self.tee.ticket().is_some_and(|ticket| ticket.has_ended())
    }

    /// The report so far.
    #[getter]
    fn report(&self) -> TeeReport {
        TeeReport(self.tee.report())
    }

    /// The policy that was applied to the thread; None if you asked for none, or before the thread starts.
    #[getter]
    fn policy(&self) -> Option<AppliedPolicy> {
        self.tee.applied_policy().map(AppliedPolicy)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().start(slf.py())?;
        awaited(slf, "ended_or_cancelled")
    }

    /// Tell the waker that number when the tee, which must have started, ends.
    fn _notify(&self, waker: &LoopWaker, number: u64) -> PyResult<Watch> {
        match self.tee.ticket() {
            Some(ticket) => Ok(Watch::start(&ticket, waker, number)),
            None => Err(PyValueError::new_err("the tee has not started. Call start()")),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().start(slf.py())?;
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exc_type: Option<&Bound<'_, PyAny>>,
        exc: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if exc.is_some() {
            return self.cancel(py);
        }
        self.wait(py, None)?.check(py)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().start(slf.py())?;
        coroutine(slf.py(), "entered", (slf,))
    }

    #[pyo3(signature = (*exception))]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exception: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        coroutine(slf.py(), "leave_tee", (slf, exception))
    }
}

impl Tee {
    fn log_evictions(&self, py: Python<'_>) -> PyResult<()> {
        // Those of a parent process are logged there.
        let is_ours = self.tee.ticket().is_some_and(|ticket| ticket.peek() != Some(Err(Error::Forked)));
        if is_ours && !self.is_logged.swap(true, Ordering::Relaxed) {
            relay_log::tee_evicted(py, &self.tee.report())?;
        }
        Ok(())
    }
}

/// A tee that has not started.
fn between(
    py: Python<'_>,
    src: &Bound<'_, PyAny>,
    outputs: &Bound<'_, PyTuple>,
    when_full: TeePolicy,
    policy: Option<ThreadPolicy>,
) -> PyResult<penstock_core::Tee> {
    let source = arguments::descriptor(&arguments::tee_source(src)?)?;
    let outputs = outputs
        .iter()
        .map(|output| arguments::destination(&output, "output"))
        .collect::<PyResult<Vec<_>>>()?;
    let policy = policy.map(|policy| policy.0);
    let made = py.detach(|| {
        let tee = penstock_core::Tee::new(source, policy)?;
        outputs.into_iter().try_for_each(|output| tee.add(output, when_full).map(drop))?;
        Ok(tee)
    });
    made.or_raise(py)
}

fn tee_policy(name: &str, stall_timeout: f64) -> PyResult<TeePolicy> {
    let after = arguments::duration("stall_timeout", Seconds(stall_timeout))?;
    match name {
        "block" => Ok(TeePolicy::Block),
        "evict" if after.is_some_and(|after| after.is_zero()) => Err(PyValueError::new_err(
            "stall_timeout must be more than 0 seconds, because 0 would evict outputs that are only slow",
        )),
        "evict" => Ok(TeePolicy::Evict { after: after.unwrap_or(Duration::MAX) }),
        _ => Err(PyValueError::new_err(format!(
            "when_full must be 'block' or 'evict', not {}",
            arguments::quoted(name)
        ))),
    }
}

/// One output of a tee. Its properties change while the tee runs.
#[pyclass(frozen, name = "Output", module = "penstock.Tee")]
pub(crate) struct TeeOutput(penstock_core::TeeOutput);

#[pymethods]
impl TeeOutput {
    /// The number of the descriptor that you added.
    #[getter]
    fn fd(&self) -> i32 {
        self.0.number()
    }

    /// ``"block"`` or ``"evict"``.
    #[getter]
    fn when_full(&self) -> &'static str {
        match self.0.policy() {
            TeePolicy::Block => "block",
            TeePolicy::Evict { .. } => "evict",
        }
    }

    /// The offset in the stream at which the output began, in bytes: 0 unless you added it after the start.
    #[getter]
    fn start_bytes(&self) -> u64 {
        self.0.report().start
    }

    /// Bytes that the output has taken; if its reader went away, bytes that the reader had taken.
    #[getter]
    fn bytes_delivered(&self) -> u64 {
        self.0.report().bytes_delivered
    }

    /// Bytes that were taken from the source for the output and didn't arrive.
    #[getter]
    fn bytes_lost(&self) -> u64 {
        self.0.report().bytes_lost
    }

    /// Why it ended: ``"source-ended"``, ``"source-failed"``, ``"removed"``, ``"broken"`` (its reader went
    /// away), ``"evicted"``, ``"failed"`` (a system call failed, as on a full disk) or ``"cancelled"``; None while
    /// it runs.
    #[getter]
    fn ended(&self) -> Option<&'static str> {
        self.0.report().end.map(TeeEnd::name)
    }

    /// The failure: a BrokenStreamError, a StalledError (evicted) or another OSError; None if it didn't fail.
    #[getter]
    fn error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.0.report().error.map(|error| value_of(py, errors::to_python(py, &error)))
    }

    /// How its bytes move: ``"tee"``; or ``"tee, splice"`` or ``"tee, read-write"``, through the tee's own pipe.
    ///
    /// If the system refuses tee(2), ``"read-write"`` replaces ``"tee"``.
    #[getter]
    fn method(&self) -> &'static str {
        self.0.report().method()
    }

    /// Why this method is used.
    #[getter]
    fn reason(&self) -> String {
        self.0.report().reason().to_string()
    }

    fn __repr__(&self) -> String {
        let report = self.0.report();
        format!(
            "<Tee.Output fd={} {}, {} bytes delivered, {} lost>",
            self.0.number(),
            report.end.map_or("running", TeeEnd::name),
            report.bytes_delivered,
            report.bytes_lost
        )
    }
}

/// The result of a tee and of each of its outputs.
#[pyclass(frozen, module = "penstock.results")]
pub(crate) struct TeeReport(penstock_core::TeeReport);

#[pymethods]
impl TeeReport {
    /// Bytes that were taken from the source.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes lost because all outputs were gone, from a source that is neither a pipe nor a file.
    #[getter]
    fn bytes_lost(&self) -> u64 {
        self.0.bytes_lost
    }

    /// Whether the source has ended.
    #[getter]
    fn source_ended(&self) -> bool {
        self.0.source_ended
    }

    /// The outputs, in the order in which you added them: all that run, and the last thousand that ended.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.outputs.iter().cloned().map(TeeOutput))
    }

    /// The number of outputs that ended earlier and are no longer listed.
    #[getter]
    fn forgotten(&self) -> u64 {
        self.0.forgotten.outputs
    }

    /// How many of the forgotten outputs failed. ``check`` raises the failure of the first.
    #[getter]
    fn forgotten_failures(&self) -> u64 {
        self.0.forgotten.failures
    }

    /// Bytes that were taken from the source for forgotten outputs and didn't arrive.
    #[getter]
    fn forgotten_bytes_lost(&self) -> u64 {
        self.0.forgotten.bytes_lost
    }

    /// Raises the first failure of an output, with the others as notes. Does nothing if none failed.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let listed = self.0.outputs.iter().filter_map(|output| {
            output
                .report()
                .error
                .map(|error| (format!("the output with descriptor {}", output.number()), error))
        });
        let forgotten = self.0.forgotten.first_error.clone().map(|error| ("an output".into(), error));
        let failures: Vec<(String, _)> = forgotten.into_iter().chain(listed).collect();
        let Some(((place, first), others)) = failures.split_first() else { return Ok(()) };
        let raised = errors::to_python(py, first);
        arguments::say_where(py, &raised, place)?;
        for (place, other) in others {
            raised.value(py).call_method1("add_note", (format!("{place} failed as well: {other}"),))?;
        }
        if self.forgotten_failures() > 1 {
            let note = format!(
                "{} more outputs failed, which this report doesn't list",
                self.forgotten_failures() - 1
            );
            raised.value(py).call_method1("add_note", (note,))?;
        }
        Err(raised)
    }

    fn __repr__(&self) -> String {
        let outputs: Vec<_> =
            self.0.outputs.iter().map(|output| TeeOutput(output.clone()).__repr__()).collect();
        let end = if self.0.source_ended { ", to the source's end" } else { "" };
        format!("<TeeReport {} bytes{end}: {}>", self.0.bytes, outputs.join(", "))
    }
}
