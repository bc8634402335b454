//! The logger `penstock` of Python's `logging`.
//!
//! The core knows no Python: facts are read and logged when a call returns or a stream closes, never for a single write or frame.

use penstock_core::{
    Error, MethodReason, Reason, RelayError, RelayReport, TeeEnd, TeePolicy, TeeReport, WriterStats,
};
use pyo3::prelude::*;

/// A writer that was closed: a transport that fell back, or a pipe that is smaller than the caller asked for.
pub(crate) fn writer_closed(py: Python<'_>, stats: &WriterStats, asked_bytes: Option<usize>) -> PyResult<()> {
    let fell_back = stats.choice.filter(|(_, reason)| {
        use Reason::{Asked, NotAPipe, OurPages, ReaderIsSlower, ReaderKeepsUp, ReaderUnknown, SmallPiece};
        let of_auto =
            matches!(reason, SmallPiece | ReaderIsSlower | ReaderKeepsUp | ReaderUnknown | OurPages);
        !of_auto && !matches!(reason, Asked | NotAPipe)
    });
    if let Some((transport, reason)) = fell_back {
        let transport = transport.name();
        log(py, "info", format!("a writer fell back to the transport {transport}: {reason}"))?;
    }
    smaller_pipe(py, "a writer", stats.capacity_bytes, asked_bytes)
}

/// A pipe that is smaller than the caller asked for.
pub(crate) fn smaller_pipe(
    py: Python<'_>,
    whose: &str,
    granted: Option<usize>,
    asked: Option<usize>,
) -> PyResult<()> {
    match (granted, asked) {
        (Some(granted), Some(asked)) if granted < asked => {
            log(py, "info", format!("{whose} asked for a pipe of {asked} bytes, but got {granted}"))
        }
        _ => Ok(()),
    }
}

/// A relay that has ended: a method that fell back, or a stall.
pub(crate) fn relay_ended(py: Python<'_>, outcome: Result<&RelayReport, &RelayError>) -> PyResult<()> {
    match outcome {
        Ok(relayed) if matches!(relayed.reason, MethodReason::Refused { .. }) => {
            let (method, reason) = (relayed.method.name(), relayed.reason);
            log(py, "info", format!("a relay fell back to the method {method}: {reason}"))
        }
        Err(RelayError { error: error @ Error::Stalled { .. }, .. }) => {
            log(py, "warning", format!("a relay stalled: {error}"))
        }
        _ => Ok(()),
    }
}

/// A tee that has ended or was cancelled: the outputs that it evicted.
pub(crate) fn tee_evicted(py: Python<'_>, report: &TeeReport) -> PyResult<()> {
    for output in &report.outputs {
        let (of, policy) = (output.report(), output.policy());
        if let (Some(TeeEnd::Evicted), TeePolicy::Evict { after }) = (of.end, policy) {
            let (fd, s) = (output.number(), after.as_secs_f64());
            let bytes = format!("{} bytes were delivered, {} were lost", of.bytes_delivered, of.bytes_lost);
            log(py, "warning", format!("a tee evicted fd {fd}, which took nothing for {s} s. {bytes}"))?;
        }
    }
    match report.forgotten.evictions {
        0 => Ok(()),
        count => log(py, "warning", format!("a tee evicted outputs that its report doesn't list: {count}")),
    }
}

/// `logging` reports errors of handlers itself: what raises here is a signal handler, and Ctrl-C must not be lost.
fn log(py: Python<'_>, level: &str, message: String) -> PyResult<()> {
    py.import("penstock._common.log")?.getattr("logger")?.call_method1(level, (message,)).map(drop)
}
