//! Log lines of relays and tees.

use penstock_core::{Error, MethodReason, RelayError, RelayReport, TeeEnd, TeePolicy, TeeReport};
use pyo3::prelude::*;

use crate::log::log;

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
