//! The Python bindings of Penstock: they convert arguments, detach from the interpreter, delegate, and map errors.

#![cfg_attr(windows, allow(dead_code))]

mod arguments;
mod attach;
mod buffer;
mod chunk;
mod confinement;
mod conversion;
mod cpu;
mod delivery;
mod errors;
mod fifo;
mod finalization;
mod interned;
mod log;
mod nut_feed;
mod parked;
mod pipeline;
mod pipeline_object;
mod pipes;
mod plane_converter;
mod policy;
mod python_stage;
mod reader;
#[cfg(windows)]
mod refused;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod relay_log;
mod slot;
mod sys;
#[cfg(target_os = "linux")]
mod tee;
mod ticket;
mod value_range;
mod waiting;
mod writer;

/// The native core of Penstock. The package `penstock` documents it.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arguments::{_count, _seconds};
    #[pymodule_export]
    use crate::attach::{_after_fork_in_child, _after_fork_in_parent, _before_fork};
    #[pymodule_export]
    use crate::buffer::_copy;
    #[pymodule_export]
    use crate::chunk::Chunk;
    #[pymodule_export]
    use crate::confinement::_confine;
    #[pymodule_export]
    use crate::conversion::Conversion;
    #[pymodule_export]
    use crate::cpu::_topology;
    #[pymodule_export]
    use crate::delivery::Delivery;
    #[pymodule_export]
    use crate::fifo::{_fifo_open, _fifo_open_async, _make_pipe, FifoTicket};
    #[pymodule_export]
    use crate::nut_feed::NutFeed;
    #[pymodule_export]
    use crate::pipeline::{Pipeline, Sink, Source, Stage};
    #[pymodule_export]
    use crate::pipes::{_close, _drain, _pipe, _sync};
    #[pymodule_export]
    use crate::plane_converter::{PlaneConverter, PlaneJob};
    #[pymodule_export]
    use crate::policy::{
        _apply_policy, _current_policy, _thread_policy, _try_priorities, AppliedPolicy, ThreadPolicy,
    };
    #[pymodule_export]
    use crate::reader::{Frame, Reader, ReaderStats};
    #[cfg(windows)]
    #[pymodule_export]
    use crate::refused::{_start_relay, RelayReport, RelayTicket, Tee, TeeReport, relay};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::relay::{_start_relay, Relay, RelayReport, RelayTicket};
    #[pymodule_export]
    use crate::slot::{Slot, SlotPool};
    #[cfg(target_os = "linux")]
    #[pymodule_export]
    use crate::tee::{Tee, TeeReport};
    #[pymodule_export]
    use crate::ticket::{LoopWaker, Ticket, Watch};
    #[pymodule_export]
    use crate::value_range::ValueRange;
    #[pymodule_export]
    use crate::writer::{Writer, WriterStats};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::attach::remember_interpreter(module.py())?;
        penstock_core::process::leave_exit_to_host();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
