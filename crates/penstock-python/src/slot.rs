//! Leased memory: the pool's, writable by the buffer protocol.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_core::{Buffer, Errno, Pool, Transform};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::Glimpse;
use crate::conversion::Conversion;

/// _SlotPool(slot_bytes, keep_slots)
/// --
///
/// Page-aligned memory in slots of one size, backed by huge pages where the system has them. A slot that nobody has any more
/// is handed out again; at most ``keep_slots`` that nobody has are kept.
#[pyclass(frozen, module = "penstock._native")]
pub(crate) struct SlotPool {
    pool: Pool,
    /// For arrays that have to be made contiguous before they are converted.
    scratch: Pool,
    slot_bytes: usize,
    filling_ns: AtomicU64,
}

#[pymethods]
impl SlotPool {
    #[new]
    fn new(slot_bytes: usize, keep_slots: usize) -> Self {
        // Of the scratch memory as many pieces are kept as there were threads at once that needed one.
        let scratch = Pool::new(usize::MAX);
        let pool = Pool::of_slots(slot_bytes, keep_slots);
        Self { pool, scratch, slot_bytes, filling_ns: AtomicU64::new(0) }
    }

    /// A slot that nobody else has. What is in it is what its last user left.
    fn take(&self) -> PyResult<Slot> {
        self.pool.take(self.slot_bytes).map(|buffer| Slot { buffer }).map_err(no_memory)
    }

    /// A slot with the bytes of ``data`` as they look, strided or not, or with what the conversion makes of them. ``data`` is the
    /// caller's again afterwards.
    ///
    /// Raises:
    ///     ValueError: ``data`` has not the size of the slot, or of the conversion's input.
    ///     TypeError: ``data`` has no buffer.
    #[pyo3(signature = (data, conversion=None))]
    fn filled(&self, data: &Bound<'_, PyAny>, conversion: Option<&Conversion>) -> PyResult<Slot> {
        let glimpse = Glimpse::of(data)?;
        let recipe = conversion.map(Conversion::recipe);
        let wanted = recipe.as_ref().map_or(self.slot_bytes, |recipe| recipe.input_bytes());
        let got = glimpse.bytes();
        if got != wanted {
            let message = format!("the buffer has {got} bytes, and {wanted} were to be taken");
            return Err(PyValueError::new_err(message));
        }
        let start = Instant::now();
        let mut slot = self.take()?;
        match (glimpse.contiguous(), recipe) {
            (Some(bytes), recipe) => data.py().detach(|| make(recipe.as_deref(), bytes, &mut slot.buffer)),
            (None, None) => gather(data.py(), &glimpse, &mut slot.buffer),
            (None, recipe) => {
                let mut looks = self.scratch.take(wanted).map_err(no_memory)?;
                gather(data.py(), &glimpse, &mut looks);
                data.py().detach(|| make(recipe.as_deref(), &looks, &mut slot.buffer));
            }
        }
        // Relaxed: a sum for statistics.
        self.filling_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(slot)
    }

    /// Seconds that ``filled`` took, over all calls.
    #[getter]
    fn filling_s(&self) -> f64 {
        Duration::from_nanos(self.filling_ns.load(Ordering::Relaxed)).as_secs_f64()
    }
}

fn make(recipe: Option<&dyn Transform>, input: &[u8], output: &mut [u8]) {
    match recipe {
        Some(recipe) => (0..recipe.steps()).for_each(|step| recipe.apply(step, input, output)),
        None => output.copy_from_slice(input),
    }
}

fn gather(py: Python<'_>, glimpse: &Glimpse<'_>, output: &mut [u8]) {
    let array = glimpse.strided();
    // SAFETY: the glimpse keeps the memory in place; see `Glimpse::contiguous` on who else writes there.
    py.detach(|| unsafe { array.gather(output) });
}

fn no_memory(errno: Errno) -> PyErr {
    PyMemoryError::new_err(errno.to_string())
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
