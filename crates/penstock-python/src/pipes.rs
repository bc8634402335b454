//! `pipe`, `sync` and `close` in Python, and what must happen before an interpreter ends.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use penstock_core::Error;
use penstock_core::process::{self, Marks, Outlet};
use pyo3::prelude::*;

use crate::arguments::{self, Seconds};
use crate::buffer;
use crate::errors;
use crate::ticket::Ticket;
use crate::waiting::{Attempt, until};

/// Queues a buffer to be written to a file descriptor by a native thread, in order, and returns its ticket.
///
/// It waits only while that stream's queue is full (128 MiB or 64 writes). The descriptor may be closed, and its number
/// reused, as soon as this returns. Descriptors of the same pipe are one stream, with one order.
///
/// Args:
///     data: anything with the buffer protocol that is C-contiguous, of any dtype, shape and size; also a CPU torch tensor,
///         and a ``moderngl.Buffer``, whose bytes are copied at the call. Memory that is not copied at the call is in use, and
///         must not be written to, until the ticket is done or ``sync(data)`` returns.
///     fd: an int, or anything with ``fileno()``, open for writing. What a Python stream has buffered for it goes there first.
///     mode: ``"auto"``, ``"write"``, ``"staged"`` or ``"zero-copy"``. Zero-copy is right only for readers that copy (read(2)).
///
/// Raises:
///     BrokenStreamError, OSError: an earlier write to this stream failed (nothing of ``data`` was taken), or ``fd`` is bad.
///     ValueError: ``data`` is not C-contiguous, or another wrong argument.
///     TypeError: ``data`` has no buffer, or ``fd`` is no descriptor, or one that does not carry what the object writes: that of a
///         compressed file, a TLS socket.
#[pyfunction]
#[pyo3(signature = (data, fd, *, mode="auto"))]
pub(crate) fn pipe(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    fd: &Bound<'_, PyAny>,
    mode: &str,
) -> PyResult<Ticket> {
    let mode = arguments::mode(mode)?;
    arm_exit(py)?;
    let outlet = Outlet::open(arguments::destination(fd)?).map_err(|error| errors::to_python(py, &error))?;
    let mut region = Some(buffer::export(data)?);
    let pushed = until(py, None, |slice| {
        let region = &mut region;
        buffer::hand_in(region, |data| outlet.write(data, mode, Some(slice))).into()
    });
    drop(region);
    buffer::release_parked(py);
    pushed?.map(Ticket).map_err(|error| errors::to_python(py, &error))
}

/// Waits until buffers are free again: those that ``data`` looks at, or all that were piped.
///
/// Args:
///     data: any object on the memory in question, such as the buffer itself, a memoryview or a slice of it; None for
///         everything that ``pipe`` has queued.
///     timeout: seconds; None waits for as long as it takes.
///
/// Raises:
///     BrokenStreamError, OSError: a stream failed. Without ``data``, the failure is forgotten with this report, and further
///         ones are notes on it; with ``data``, only writes of that memory in flight are reported, and nothing is forgotten.
///     StalledError: it took longer than ``timeout``. Nothing is lost.
#[pyfunction]
#[pyo3(signature = (data=None, timeout=None))]
pub(crate) fn sync(
    py: Python<'_>,
    data: Option<&Bound<'_, PyAny>>,
    timeout: Option<Seconds>,
) -> PyResult<()> {
    let timeout = arguments::timeout(timeout)?;
    match data {
        None => report(py, timeout, process::sync_to),
        Some(data) => sync_memory(py, data, timeout),
    }
}

/// As ``sync()``, and lets idle worker threads go. ``pipe`` may be used again afterwards.
///
/// Raises:
///     As ``sync``.
#[pyfunction]
#[pyo3(signature = (timeout=None))]
pub(crate) fn close(py: Python<'_>, timeout: Option<Seconds>) -> PyResult<()> {
    report(py, arguments::timeout(timeout)?, process::close_at)
}

fn report(
    py: Python<'_>,
    timeout: Option<Duration>,
    drain: fn(&Marks, Option<Duration>) -> Result<(), Vec<Error>>,
) -> PyResult<()> {
    let marks = process::marks();
    let mut failures = Vec::new();
    until(py, timeout, |slice| match drain(&marks, Some(slice)) {
        Ok(()) => Attempt::Ended(Ok(())),
        Err(errors) => match errors.as_slice() {
            [Error::Stalled { bytes_pending, .. }] => Attempt::NotYet { bytes_pending: *bytes_pending },
            _ => {
                failures = errors;
                Attempt::Ended(Ok(()))
            }
        },
    })?
    .map_err(|error| errors::to_python(py, &error))?;
    if failures.is_empty() { Ok(()) } else { Err(errors::first_of(py, &failures)) }
}

fn sync_memory(py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<Duration>) -> PyResult<()> {
    let Some((start, len)) = buffer::extent(data)? else {
        return Ok(());
    };
    let began = Instant::now();
    for ticket in process::tickets_of(start, len) {
        let left = timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        let bytes_pending = ticket.bytes() as u64;
        until(py, left, |slice| {
            ticket.wait_for(Some(slice)).map_or(Attempt::NotYet { bytes_pending }, Attempt::Ended)
        })?
        .map_err(|error| errors::to_python(py, &error))?;
    }
    buffer::release_parked(py);
    Ok(())
}

/// Sees to it, once in each process, that the interpreter delivers what is queued before it ends.
pub(crate) fn arm_exit(py: Python<'_>) -> PyResult<()> {
    static ARMED_FOR: AtomicU32 = AtomicU32::new(0);
    let id = std::process::id();
    // Relaxed: at worst two threads arm twice, and the second drain finds nothing to do.
    if ARMED_FOR.swap(id, Ordering::Relaxed) != id {
        py.import("penstock._exit")?.call_method0("arm")?;
    }
    Ok(())
}

/// Waits until all streams and relays have ended, or none makes progress for so many seconds, or a signal raises. Gives the
/// bytes that no destination has taken, those that were lost to failures of which no call has told, and the number of relays and
/// tees that were cut off. These may be without an end: after so many seconds `on_long_wait` is called.
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
    let told = (lost, process::take_unheard_bytes(), cut_off);
    match raised {
        Some(raised) if told == (0, 0, 0) => Err(raised),
        _ => Ok(told),
    }
}

/// Sets how much memory all streams together may use for staging, in bytes.
#[pyfunction]
pub(crate) fn _set_staging_budget(nbytes: usize) {
    process::set_staging_budget(nbytes);
}
