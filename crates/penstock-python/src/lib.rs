//! The Python face of `penstock-core`: converts, detaches, delegates, maps errors.

mod arguments;
mod attach;
mod buffer;
mod chunk;
mod conversion;
mod cpu;
mod errors;
mod fifo;
mod hanging;
mod lent;
mod parked;
mod pipeline;
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

/// Native core of Penstock: see the package `penstock`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<ticket::Ticket>()?;
    module.add("_Watch", module.py().get_type::<ticket::Watch>())?;
    module.add_class::<policy::ThreadPolicy>()?;
    module.add_class::<policy::AppliedPolicy>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<writer::WriterStats>()?;
    module.add("_Conversion", module.py().get_type::<conversion::Conversion>())?;
    module.add("_SlotPool", module.py().get_type::<slot::SlotPool>())?;
    module.add("_Slot", module.py().get_type::<slot::Slot>())?;
    module.add("_FifoTicket", module.py().get_type::<fifo::FifoTicket>())?;
    module.add_function(wrap_pyfunction!(fifo::_fifo_open, module)?)?;
    module.add_function(wrap_pyfunction!(fifo::_fifo_open_async, module)?)?;
    module.add_function(wrap_pyfunction!(fifo::_make_pipe, module)?)?;
    module.add_function(wrap_pyfunction!(cpu::_topology, module)?)?;
    module.add_class::<chunk::Chunk>()?;
    module.add("_Source", module.py().get_type::<pipeline::Source>())?;
    module.add("_Stage", module.py().get_type::<pipeline::Stage>())?;
    module.add("_Sink", module.py().get_type::<pipeline::Sink>())?;
    module.add("_Pipeline", module.py().get_type::<pipeline::Pipeline>())?;
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
    attach::remember_interpreter(module.py());
    module.add_function(wrap_pyfunction!(attach::_before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(attach::_after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(attach::_after_fork_in_child, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_count, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(pipes::_set_staging_budget, module)?)?;
    Ok(())
}
