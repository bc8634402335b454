//! Waiting: detached from the interpreter, awake to signals.

use std::time::{Duration, Instant};

use penstock_core::Error;
use pyo3::prelude::*;

use crate::buffer::release_parked;

/// How long we wait at most before signals are looked at: half of the 100 ms within which Ctrl-C is to work.
const SLICE: Duration = Duration::from_millis(50);

/// Attempts again and again, each time for a slice of the timeout, until there is an answer that is not "not yet".
///
/// Between the slices signals are handled, so that Ctrl-C raises. `attempt` gets the time that it may take.
pub(crate) fn until<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut attempt: impl FnMut(Duration) -> Attempt<T> + Send,
) -> PyResult<Result<T, Error>> {
    let start = Instant::now();
    loop {
        let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
        let answer = py.detach(|| attempt(left.map_or(SLICE, |left| left.min(SLICE))));
        release_parked(py);
        match answer {
            Attempt::Ended(outcome) => return Ok(outcome),
            Attempt::NotYet { bytes_pending } if timeout.is_some_and(|limit| start.elapsed() >= limit) => {
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
