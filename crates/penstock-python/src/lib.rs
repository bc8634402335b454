//! The Python bindings of Penstock: they convert arguments, detach from the interpreter, delegate, and map errors.

mod arguments;
mod attach;
mod buffer;
mod chunk;
mod conversion;
mod cpu;
mod errors;
mod fifo;
mod finalization;
mod interned;
mod log;
mod parked;
mod pipeline;
mod pipeline_object;
mod pipes;
mod policy;
mod python_stage;
mod reader;
mod relay;
mod slot;
mod tee;
mod ticket;
mod waiting;
mod writer;

use pyo3::prelude::*;

/// The native core of Penstock. The package `penstock` documents it.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<ticket::Ticket>()?;
    module.add_class::<ticket::Watch>()?;
    module.add_class::<ticket::LoopWaker>()?;
    module.add_function(wrap_pyfunction!(buffer::_copy, module)?)?;
    module.add_class::<policy::ThreadPolicy>()?;
    module.add_class::<policy::AppliedPolicy>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<writer::WriterStats>()?;
    module.add_class::<conversion::Conversion>()?;
    module.add_class::<slot::SlotPool>()?;
    module.add_class::<slot::Slot>()?;
    module.add_class::<fifo::FifoTicket>()?;
    module.add_function(wrap_pyfunction!(fifo::_fifo_open, module)?)?;
    module.add_function(wrap_pyfunction!(fifo::_fifo_open_async, module)?)?;
    module.add_function(wrap_pyfunction!(fifo::_make_pipe, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::_topology, module)?)?;
    module.add_class::<chunk::Chunk>()?;
    module.add_class::<pipeline::Source>()?;
    module.add_class::<pipeline::Stage>()?;
    module.add_class::<pipeline::Sink>()?;
    module.add_class::<pipeline::Pipeline>()?;
    module.add_function(wrap_pyfunction!(policy::_apply_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policy::_current_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policy::_try_priorities, module)?)?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<reader::Frame>()?;
    module.add_class::<reader::ReaderStats>()?;
    module.add_class::<relay::Relay>()?;
    module.add_class::<relay::Relayed>()?;
    module.add_class::<relay::RelayTicket>()?;
    module.add_class::<tee::Tee>()?;
    module.add_class::<tee::TeeOutlet>()?;
    module.add_class::<tee::TeeReport>()?;
    module.add_function(wrap_pyfunction!(relay::_start_relay, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::pipe, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::sync, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::close, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::_drain, module)?)?;
    penstock_core::process::leave_exit_to_host();
    attach::remember_interpreter(module.py());
    module.add_function(wrap_pyfunction!(attach::_before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(attach::_after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(attach::_after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_count, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::_set_staging_budget, module)?)?;
    Ok(())
}
