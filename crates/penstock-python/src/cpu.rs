//! The machine's CPUs as plain data, which `penstock.cpu` turns into records.

use std::path::PathBuf;

use penstock_cpu::{CacheDomain, Core, LogicalProcessor, NumaNode, Package};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::sys;

/// Read the machine under that root, as a dict with an item for each field of a ``Topology``.
#[pyfunction]
pub(crate) fn _topology(py: Python<'_>, root: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let read = py.detach(|| sys::topology(&root));
    let record = PyDict::new(py);
    record.set_item("model", read.model)?;
    record.set_item("packages", records(py, &read.packages, package)?)?;
    record.set_item("numa_nodes", records(py, &read.numa_nodes, numa_node)?)?;
    record.set_item("cores", records(py, &read.cores, core)?)?;
    record.set_item("logical_processors", records(py, &read.logical_processors, logical_processor)?)?;
    record.set_item("l1d_domains", records(py, &read.l1d_domains, cache_domain)?)?;
    record.set_item("l2_domains", records(py, &read.l2_domains, cache_domain)?)?;
    record.set_item("l3_domains", records(py, &read.l3_domains, cache_domain)?)?;
    record.set_item("notes", PyTuple::new(py, read.notes.iter().map(ToString::to_string))?)?;
    Ok(record)
}

fn records<'py, T>(
    py: Python<'py>,
    all: &[T],
    fill: fn(&Bound<'py, PyDict>, &T) -> PyResult<()>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for one in all {
        let record = PyDict::new(py);
        fill(&record, one)?;
        list.append(record)?;
    }
    Ok(list)
}

fn set_numbers(record: &Bound<'_, PyDict>, name: &str, numbers: &[usize]) -> PyResult<()> {
    record.set_item(name, PyTuple::new(record.py(), numbers)?)
}

fn package(record: &Bound<'_, PyDict>, package: &Package) -> PyResult<()> {
    record.set_item("id", package.id)?;
    set_numbers(record, "cores", &package.cores)?;
    set_numbers(record, "logical_processors", &package.logical_processors)
}

fn numa_node(record: &Bound<'_, PyDict>, node: &NumaNode) -> PyResult<()> {
    record.set_item("id", node.id)?;
    record.set_item("memory_bytes", node.memory_bytes)?;
    set_numbers(record, "logical_processors", &node.logical_processors)
}

fn core(record: &Bound<'_, PyDict>, core: &Core) -> PyResult<()> {
    record.set_item("id", core.id)?;
    record.set_item("package", core.package)?;
    record.set_item("kind", core.kind.name())?;
    record.set_item("kind_source", core.kind_source.name())?;
    set_numbers(record, "logical_processors", &core.logical_processors)
}

fn logical_processor(record: &Bound<'_, PyDict>, processor: &LogicalProcessor) -> PyResult<()> {
    record.set_item("id", processor.id)?;
    record.set_item("core", processor.core)?;
    record.set_item("package", processor.package)?;
    record.set_item("numa_node", processor.numa_node)?;
    record.set_item("online", processor.online)?;
    record.set_item("allowed", processor.allowed)?;
    set_numbers(record, "smt_siblings", &processor.smt_siblings)?;
    record.set_item("kind", processor.kind.map(penstock_cpu::CoreKind::name))?;
    record.set_item("kind_source", processor.kind_source.map(penstock_cpu::KindSource::name))
}

fn cache_domain(record: &Bound<'_, PyDict>, domain: &CacheDomain) -> PyResult<()> {
    record.set_item("size_bytes", domain.size_bytes)?;
    set_numbers(record, "logical_processors", &domain.logical_processors)
}
