//! Waiting: detached from the interpreter and awake to signals, or in asyncio.

use std::time::{Duration, Instant};

use crate::interned::intern;
use penstock_core::Error;
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::arguments::Timeout;
use crate::buffer::release_parked;

/// The longest wait between two checks for signals: half of the 100 ms within which Ctrl-C has to work.
const SLICE: Duration = Duration::from_millis(50);

/// Repeats the attempt until it ends or the timeout is over. Between the attempts, signal handlers run, so that Ctrl-C raises.
///
/// Each attempt gets the time that it may take.
pub(crate) fn until<T: Send>(
    py: Python<'_>,
    timeout: Option<Timeout>,
    mut attempt: impl FnMut(Duration) -> Attempt<T> + Send,
) -> PyResult<Result<T, Error>> {
    let start = Instant::now();
    loop {
        let left = timeout.map(|Timeout(limit)| limit.saturating_sub(start.elapsed()));
        let answer = py.detach(|| attempt(left.map_or(SLICE, |left| left.min(SLICE))));
        release_parked(py);
        match answer {
            Attempt::Ended(outcome) => return Ok(outcome),
            Attempt::NotYet { bytes_pending }
                if timeout.is_some_and(|Timeout(limit)| start.elapsed() >= limit) =>
            {
                return Ok(Err(Error::Stalled { waited: start.elapsed(), bytes_pending }));
            }
            Attempt::NotYet { .. } => py.check_signals()?,
        }
    }
}

pub(crate) enum Attempt<T> {
    Ended(Result<T, Error>),
    NotYet { bytes_pending: u64 },
}

impl<T> From<Result<T, Error>> for Attempt<T> {
    fn from(outcome: Result<T, Error>) -> Self {
        match outcome {
            Err(Error::Stalled { bytes_pending, .. }) => Self::NotYet { bytes_pending },
            outcome => Self::Ended(outcome),
        }
    }
}

/// The answer of a `wait_for`: none if the end was not reached in time.
impl<T> From<Option<Result<T, Error>>> for Attempt<T> {
    fn from(outcome: Option<Result<T, Error>>) -> Self {
        outcome.map_or(Self::NotYet { bytes_pending: 0 }, Self::Ended)
    }
}

/// The answer of a `close_within`: whether all threads have ended.
impl From<bool> for Attempt<()> {
    fn from(has_ended: bool) -> Self {
        has_ended.then_some(Ok(())).into()
    }
}

/// Waits for a write. A timeout reports its size as pending.
pub(crate) fn until_written(
    py: Python<'_>,
    ticket: &penstock_core::Ticket,
    timeout: Option<Timeout>,
) -> PyResult<Result<(), Error>> {
    let bytes_pending = ticket.bytes() as u64;
    until(py, timeout, |slice| {
        ticket.wait_for(Some(slice)).map_or(Attempt::NotYet { bytes_pending }, Attempt::Ended)
    })
}

/// A coroutine of `penstock._common.event_loops`.
pub(crate) fn coroutine<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "penstock._common.event_loops"))?.getattr(name)?.call1(arguments)
}

/// What `__await__` returns: an iterator over a coroutine of `penstock._common.event_loops`, which gets the object.
pub(crate) fn awaited<'py>(own: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    coroutine(own.py(), name, (own,))?.call_method0(intern!(own.py(), "__await__"))
}
