//! Leased memory: the pool's, writable by the buffer protocol.

use std::ffi::c_int;

use penstock_core::{Buffer, Pool};
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;

/// _SlotPool(slot_bytes, keep_slots)
/// --
///
/// Page-aligned memory in slots of one size, backed by huge pages where the system has them. A slot that nobody has any more
/// is handed out again; at most ``keep_slots`` that nobody has are kept.
#[pyclass(frozen, module = "penstock._native")]
pub(crate) struct SlotPool {
    pool: Pool,
    slot_bytes: usize,
}

#[pymethods]
impl SlotPool {
    #[new]
    fn new(slot_bytes: usize, keep_slots: usize) -> Self {
        Self { pool: Pool::of_slots(slot_bytes, keep_slots), slot_bytes }
    }

    /// A slot that nobody else has. What is in it is what its last user left.
    fn take(&self) -> PyResult<Slot> {
        let buffer = self.pool.take(self.slot_bytes);
        buffer.map(|buffer| Slot { buffer }).map_err(|errno| PyMemoryError::new_err(errno.to_string()))
    }
}

/// A slot: a writable buffer. Its memory goes back to its pool when the last view of it is gone, a writer's included.
#[pyclass(frozen, module = "penstock._native")]
pub(crate) struct Slot {
    buffer: Buffer,
}

#[pymethods]
impl Slot {
    /// Fills a view of the bytes.
    ///
    /// # Safety
    ///
    /// The view is one that the interpreter wants to have filled.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let buffer = &slf.get().buffer;
        let (start, bytes) = (buffer.start().cast(), buffer.len() as ffi::Py_ssize_t);
        // SAFETY: the memory stays where it is while the slot lives, which the view keeps alive; Rust never looks into it.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
