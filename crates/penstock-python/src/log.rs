//! The logger `penstock` of Python's `logging`.
//!
//! The core knows no Python: facts are read and logged when a call returns or a stream closes, never for a single write or frame.

use penstock_core::{Reason, WriterStats};
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

/// `logging` reports errors of handlers itself: what raises here is a signal handler, and Ctrl-C must not be lost.
pub(crate) fn log(py: Python<'_>, level: &str, message: String) -> PyResult<()> {
    py.import("penstock._common.log")?.getattr("logger")?.call_method1(level, (message,)).map(drop)
}
