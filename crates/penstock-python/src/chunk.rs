//! Chunks in Python: their memory by the buffer protocol.

use std::ffi::{OsStr, c_int};
use std::sync::Arc;

use penstock_pipeline::{self as pipeline, Checksum};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A piece of data that came through a pipeline. It is a buffer: ``memoryview(chunk)`` and ``numpy.asarray(chunk)`` look at its
/// bytes where they lie, page-aligned, without a copy.
///
/// The memory goes back to the pipeline, to be used again, when the last view of it is dropped. A chunk from iteration can be
/// written to; one that a callable in the pipeline gets cannot, for others have it as well.
#[pyclass(frozen, module = "penstock.pipeline")]
pub(crate) struct Chunk {
    chunk: pipeline::Chunk,
    is_writable: bool,
}

impl Chunk {
    /// One that nobody else has.
    pub(crate) fn own(chunk: pipeline::Chunk) -> Self {
        let is_writable = Arc::strong_count(chunk.buffer()) == 1;
        Self { chunk, is_writable }
    }

    /// One that is on its way still.
    pub(crate) fn shared(chunk: pipeline::Chunk) -> Self {
        Self { chunk, is_writable: false }
    }

    pub(crate) fn get(&self) -> &pipeline::Chunk {
        &self.chunk
    }
}

#[pymethods]
impl Chunk {
    /// What it is called: the path of its file as it was given, or what its source says.
    #[getter]
    fn name(&self) -> &OsStr {
        self.chunk.name()
    }

    /// Where its first byte lies in the file or stream; that of a decompressed stream, in what came out of it.
    #[getter]
    fn offset(&self) -> u64 {
        self.chunk.offset()
    }

    /// Its number in its source, from 0; that of a decompressed stream, among the pieces that came out.
    #[getter]
    fn index(&self) -> u64 {
        self.chunk.index()
    }

    /// Its size in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.chunk.len()
    }

    /// What the last ``checksum`` stage found, as an unsigned number; None without one, or after the bytes were replaced.
    #[getter]
    fn checksum(&self) -> Option<u64> {
        self.chunk.checksum().map(|checksum| match checksum {
            Checksum::Crc32(sum) => u64::from(sum),
            Checksum::Xxh3(sum) => sum,
        })
    }

    /// Each part that had it, in order: ``(stage, queued_ns, started_ns, ended_ns)``, in nanoseconds since the pipeline began.
    /// Queued is when the part before was done with it.
    #[getter]
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let timings = self.chunk.timings().into_iter();
        PyTuple::new(
            py,
            timings
                .map(|timing| (timing.stage, timing.queued_ns, timing.started_ns, timing.ended_ns))
                .collect::<Vec<_>>(),
        )
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
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let own = slf.get();
        let start = own.chunk.as_ptr().cast_mut().cast();
        let (bytes, is_read_only) = (own.chunk.len() as ffi::Py_ssize_t, c_int::from(!own.is_writable));
        // SAFETY: the memory stays where it is while the chunk lives, which the view keeps alive. It is written to only where
        // nobody else has it.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, is_read_only, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
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
