//! Chunks in Python: their memory by the buffer protocol.

use std::ffi::{OsStr, c_int};
use std::sync::Arc;
use std::time::Duration;

use penstock_pipeline::{self as pipeline, Checksum};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer::fill_view;

/// A piece of data from a pipeline: a page-aligned buffer.
///
/// ``memoryview(chunk)`` and ``numpy.asarray(chunk)`` are views of its bytes, without a copy. The memory is recycled
/// once you drop the last view of it. A chunk from iteration is writable. A chunk that a callable in the pipeline gets
/// is read-only, because other parts share it.
#[pyclass(frozen, module = "penstock.pipeline")]
pub(crate) struct Chunk {
    pub(crate) chunk: pipeline::Chunk,
    /// False if other parts of the pipeline share it.
    pub(crate) is_writable: bool,
}

impl Chunk {
    /// A chunk that nobody else has.
    pub(crate) fn own(chunk: pipeline::Chunk) -> Self {
        let is_writable = Arc::strong_count(chunk.buffer()) == 1;
        Self { chunk, is_writable }
    }
}

#[pymethods]
impl Chunk {
    /// The path of its file as you passed it, or the name from its source.
    #[getter]
    fn name(&self) -> &OsStr {
        self.chunk.name()
    }

    /// The offset of its first byte in the file or stream; for a decompressed stream, in the decompressed bytes.
    #[getter]
    fn offset(&self) -> u64 {
        self.chunk.offset()
    }

    /// Its number in its source, from 0; for a decompressed stream, among the decompressed pieces.
    #[getter]
    fn index(&self) -> u64 {
        self.chunk.index()
    }

    /// Its size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.chunk.len()
    }

    /// The result of the last ``checksum`` stage, unsigned; None without a stage, or if the bytes changed since.
    #[getter]
    fn checksum(&self) -> Option<u64> {
        self.chunk.checksum().map(Checksum::value)
    }

    /// For each part that handled it, in order: ``(stage, queued_s, started_s, ended_s)``.
    ///
    /// Times are in seconds since the pipeline began. ``queued_s`` is when the part before had finished.
    #[getter]
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let timings = self.chunk.timings().into_iter().map(|timing| {
            (timing.stage, seconds(timing.queued_ns), seconds(timing.started_ns), seconds(timing.ended_ns))
        });
        PyTuple::new(py, timings)
    }

    fn __len__(&self) -> usize {
        self.chunk.len()
    }

    /// Fills a view of the bytes.
    ///
    /// # Safety
    ///
    /// The view is one that the interpreter wants to have filled.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Self { chunk, is_writable } = slf.get();
        // SAFETY: the memory stays where it is while the chunk lives. It is writable only if nobody else has it, and then
        // this type forms no reference into it.
        unsafe { fill_view(slf, (chunk.buffer().start(), chunk.len()), !is_writable, view, flags) }
    }

    fn __repr__(&self) -> String {
        let Self { chunk, .. } = self;
        format!(
            "<Chunk {} of {:?}: {} bytes at {}>",
            chunk.index(),
            chunk.name().to_string_lossy(),
            chunk.len(),
            chunk.offset()
        )
    }
}

/// Seconds, as every time is in Python.
pub(crate) fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}
