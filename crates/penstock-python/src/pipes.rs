//! Writes by descriptor, for `penstock.turbopipe`, and what must happen before an interpreter ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use penstock_core::engine::{self, Target};
use penstock_core::process::{self, SyncError};
use penstock_core::{Error, Rejected};
use pyo3::prelude::*;

use crate::arguments::{self, Timeout};
use crate::buffer;
use crate::errors::{self, OrRaise};
use crate::ticket::{Ticket, queue};
use crate::waiting::{Attempt, until};

/// Queue a buffer to be written to a file descriptor by a native thread, in order, and return its ticket.
///
/// Waits only while the queue of that stream is full (128 MiB or 64 writes). The descriptor may be closed, and its
/// number reused, as soon as this returns. All descriptors of one pipe are one stream with one order.
///
/// Args:
///     data: a C-contiguous buffer of any dtype, shape and size: any object with the buffer protocol, a torch tensor
///         on the CPU, or a ``moderngl.Buffer``, whose bytes are copied during the call. Other memory is in use until
///         the ticket is done or ``sync(data)`` returns, and must not change until then.
///     fd: an int or an object with ``fileno()``, open for writing. Bytes that a Python stream has buffered for it are
///         flushed first.
///     mode: ``"auto"``, ``"write"``, ``"staged"`` or ``"zero-copy"``. Zero-copy needs a reader that copies (read(2)).
///
/// Raises:
///     BrokenStreamError, OSError: an earlier write to this stream failed, which no ticket has reported, and nothing
///         of ``data`` was taken; or ``fd`` is not open for writing.
///     ValueError: ``data`` is not C-contiguous, or an argument has a wrong value.
///     TypeError: ``data`` has no buffer; or ``fd`` is not a descriptor, or does not carry the bytes that the object
///         writes, as with a compressed file or a TLS socket.
#[pyfunction]
#[pyo3(signature = (data, fd, *, mode="auto"))]
pub(crate) fn _pipe(data: &Bound<'_, PyAny>, fd: &Bound<'_, PyAny>, mode: &str) -> PyResult<Ticket> {
    let mode = arguments::mode(mode)?;
    arm_exit(fd.py())?;
    let destination = arguments::destination(fd, "fd")?;
    let mut target = None;
    queue(data, None, |region, slice| {
        if target.is_none() {
            match Target::open(destination) {
                Ok(opened) => target = Some(opened),
                Err(error) => return Err(Rejected { region, error }),
            }
        }
        target.as_mut().expect("it was opened").submit(region, mode, Some(slice))
    })
}

/// Wait until buffers are free again: those on the memory of ``data``, or all that ``pipe`` has queued.
///
/// Args:
///     data: any object on that memory, such as the buffer itself, a memoryview or a slice of it; None for everything.
///     timeout: seconds; None waits without limit.
///
/// Raises:
///     BrokenStreamError, OSError: a stream failed. Further failures are notes on the first. Without ``data``, each
///         failure that no ticket has reported is reported once. With ``data``, only writes of that memory that are in
///         flight are reported, once all of them have ended.
///     StalledError: it took longer than ``timeout``. Nothing is lost.
#[pyfunction]
#[pyo3(signature = (data=None, timeout=None))]
pub(crate) fn _sync(
    py: Python<'_>,
    data: Option<&Bound<'_, PyAny>>,
    timeout: Option<Timeout>,
) -> PyResult<()> {
    let Some(data) = data else {
        let marks = engine::marks();
        return report(py, timeout, |slice| engine::sync_to(&marks, slice));
    };
    let Some((start, len)) = buffer::extent(data)? else { return Ok(()) };
    let tickets = engine::tickets_of(start, len);
    report(py, timeout, |slice| engine::sync_writes(&tickets, slice))
}

/// Wait as ``sync()`` does, then let idle worker threads end. ``pipe`` can be used again afterwards.
///
/// Args:
///     timeout: seconds; None waits without limit.
///
/// Raises:
///     BrokenStreamError, OSError, StalledError: as for ``sync``.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub(crate) fn _close(py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
    let marks = engine::marks();
    report(py, timeout, |slice| engine::close_at(&marks, slice))
}

fn report(
    py: Python<'_>,
    timeout: Option<Timeout>,
    wait: impl Fn(Option<Duration>) -> Result<(), SyncError> + Sync,
) -> PyResult<()> {
    let outcome = until(py, timeout, |slice| match wait(Some(slice)) {
        Err(SyncError { first: Error::Stalled { bytes_pending, .. }, .. }) => {
            Attempt::NotYet { bytes_pending }
        }
        outcome => Attempt::Ended(Ok(outcome)),
    })?;
    outcome.or_raise(py)?.map_err(|error| errors::first_of(py, &error.first, &error.others))
}

/// Makes the interpreter deliver what is queued before it ends. Once in each process.
pub(crate) fn arm_exit(py: Python<'_>) -> PyResult<()> {
    static ARMED_FOR: AtomicU32 = AtomicU32::new(0);
    let id = std::process::id();
    // Relaxed: at worst two threads arm twice, and the second drain finds nothing to do.
    if ARMED_FOR.swap(id, Ordering::Relaxed) != id {
        py.import("penstock._common.exits")?.call_method0("arm")?;
    }
    Ok(())
}

/// Wait until all streams and relays have ended, or none makes progress for ``stall_timeout`` seconds, or a signal
/// handler raises.
///
/// Relays may never end: after the same time ``on_long_wait`` is called once.
///
/// Returns:
///     The bytes that no destination has taken; the bytes lost to failures that no call has reported; and the number
///     of relays and tees that were stopped.
#[pyfunction]
pub(crate) fn _drain(
    py: Python<'_>,
    stall_timeout: f64,
    on_long_wait: &Bound<'_, PyAny>,
) -> PyResult<(u64, u64, usize)> {
    let mut raised = None;
    let stall = Duration::from_secs_f64(stall_timeout);
    let begun = Instant::now();
    let mut on_long_wait = Some(on_long_wait.clone().unbind());
    let cut_off = py.detach(|| {
        process::drain_tasks(stall, || {
            raised = Python::attach(|py| {
                let due = on_long_wait.take_if(|_| begun.elapsed() >= stall);
                due.and_then(|say| say.call0(py).err()).or_else(|| py.check_signals().err())
            });
            raised.is_none()
        })
    });
    // After an interruption nothing more is waited for.
    let lost = py.detach(|| {
        process::drain_streams(stall, || {
            raised = raised.take().or_else(|| Python::attach(|py| py.check_signals().err()));
            raised.is_none()
        })
    });
    buffer::release_parked(py);
    let told = (lost, process::take_unreported_bytes(), cut_off);
    match raised {
        Some(raised) if told == (0, 0, 0) => Err(raised),
        _ => Ok(told),
    }
}
