//! Leased memory: the pool's, writable by the buffer protocol.

use std::ffi::c_int;
use std::ptr;
use std::time::Instant;

use penstock_core::engine::Stopwatch;
use penstock_core::{Buffer, Pool};
use penstock_frames::FloatFrame;
use penstock_pixels::Outside;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::{BorrowedBuffer, fill_view};
use crate::conversion::Conversion;
use crate::errors::no_memory;
use crate::value_range::{ValueRange, clipped};

/// Alignment of a frame after a prefix, for the conversions: any vector register's width.
const ALIGNMENT: usize = 64;

/// Page-aligned memory in slots of one size, in huge pages where the system has them. Dropped slots are recycled; at
/// most ``keep_slots`` of them are kept.
#[pyclass(frozen, name = "_SlotPool", module = "penstock._native")]
pub(crate) struct SlotPool {
    pool: Pool,
    /// For arrays that must become contiguous before their conversion.
    scratch: Pool,
    slot_bytes: usize,
    filling: Stopwatch,
}

#[pymethods]
impl SlotPool {
    #[new]
    fn new(slot_bytes: usize, keep_slots: usize) -> Self {
        // The scratch pool keeps one piece for each thread that needed one at the same time.
        let scratch = Pool::new(usize::MAX);
        let pool = Pool::of_slots(slot_bytes, keep_slots);
        Self { pool, scratch, slot_bytes, filling: Stopwatch::default() }
    }

    /// A free slot. It holds what its last user left.
    fn take(&self) -> PyResult<Slot> {
        self.slot(0)
    }

    /// A slot with the elements of ``data`` in C order, strided or not, or with their conversion. ``data`` is not
    /// needed afterwards. The bytes of ``prefix`` come before them.
    ///
    /// With ``value_range``, ``data`` is rows × columns × channels, or rows × columns, of float16, float32 or float64.
    /// They become whole samples, of which all of the above holds.
    ///
    /// Raises:
    ///     ValueError: the size of ``data`` is not that of the slot, or of the conversion's input; or samples are NaN.
    ///     TypeError: ``data`` has no buffer, or not of floats where ``value_range`` is given.
    #[pyo3(signature = (data, conversion=None, prefix=None, value_range=None))]
    fn filled(
        &self,
        data: &Bound<'_, PyAny>,
        conversion: Option<&Conversion>,
        prefix: Option<&[u8]>,
        value_range: Option<&ValueRange>,
    ) -> PyResult<Slot> {
        let (py, borrowed) = (data.py(), BorrowedBuffer::of(data)?);
        let conversion = conversion.map(|conversion| &*conversion.0);
        let floats = value_range.map(|range| range.frame(&borrowed)).transpose()?;
        let wanted = conversion.map_or(self.slot_bytes, penstock_pixels::Conversion::input_bytes);
        let got = floats.as_ref().map_or(borrowed.bytes(), FloatFrame::made_bytes);
        if got != wanted {
            let message = format!("the buffer must have {wanted} bytes, not {got}");
            return Err(PyValueError::new_err(message));
        }
        let start = Instant::now();
        let prefix = prefix.unwrap_or_default();
        let mut slot = self.slot(prefix.len())?;
        let (before, frame) = slot.buffer.split_at_mut(prefix.len().next_multiple_of(ALIGNMENT));
        before[slot.start..].copy_from_slice(prefix);
        slot.clipped = match floats {
            Some(floats) => clipped(self.quantize(py, &floats, conversion, frame)?)?,
            None => self.copy(py, &borrowed, conversion, frame).map(|()| 0)?,
        };
        self.filling.add(start.elapsed());
        Ok(slot)
    }

    /// Seconds that all calls of ``filled`` took.
    #[getter]
    fn filling_s(&self) -> f64 {
        self.filling.sum().as_secs_f64()
    }
}

impl SlotPool {
    /// A slot with room for a prefix before the frame, which stays aligned.
    fn slot(&self, prefix_bytes: usize) -> PyResult<Slot> {
        let before = prefix_bytes.next_multiple_of(ALIGNMENT);
        let buffer = self.pool.take(before + self.slot_bytes).map_err(no_memory)?;
        Ok(Slot { buffer, start: before - prefix_bytes, clipped: 0 })
    }

    fn copy(
        &self,
        py: Python<'_>,
        borrowed: &BorrowedBuffer<'_>,
        conversion: Option<&penstock_pixels::Conversion>,
        frame: &mut [u8],
    ) -> PyResult<()> {
        match (borrowed.contiguous(), conversion) {
            (Some(bytes), None) => py.detach(|| frame.copy_from_slice(bytes)),
            (Some(bytes), Some(conversion)) => py.detach(|| conversion.convert(bytes, frame)),
            (None, None) => gather(py, borrowed, frame),
            (None, Some(conversion)) => {
                let mut looks = self.scratch.take(conversion.input_bytes()).map_err(no_memory)?;
                gather(py, borrowed, &mut looks);
                py.detach(|| conversion.convert(&looks, frame));
            }
        }
        Ok(())
    }

    fn quantize(
        &self,
        py: Python<'_>,
        floats: &FloatFrame<'_>,
        conversion: Option<&penstock_pixels::Conversion>,
        frame: &mut [u8],
    ) -> PyResult<Outside> {
        let Some(conversion) = conversion else { return Ok(py.detach(|| floats.make(frame))) };
        let mut whole = self.scratch.take(conversion.input_bytes()).map_err(no_memory)?;
        Ok(py.detach(|| floats.convert(conversion, &mut whole, frame)))
    }
}

fn gather(py: Python<'_>, borrowed: &BorrowedBuffer<'_>, output: &mut [u8]) {
    let array = borrowed.strided();
    // SAFETY: the borrowed keeps the memory in place; see `BorrowedBuffer::contiguous` on who else writes there.
    py.detach(|| unsafe { array.gather(output) });
}

/// A writable buffer from a pool. Its memory is recycled once the last view of it is gone, including a writer's.
#[pyclass(frozen, name = "_Slot", module = "penstock._native")]
pub(crate) struct Slot {
    buffer: Buffer,
    /// Where its bytes begin.
    start: usize,
    clipped: usize,
}

impl Slot {
    /// All of a buffer.
    pub(crate) fn of(buffer: Buffer) -> Self {
        Self { buffer, start: 0, clipped: 0 }
    }

    /// Writes the first bytes.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes them meanwhile.
    pub(crate) unsafe fn write_prefix(&self, prefix: &[u8]) {
        assert!(self.start + prefix.len() <= self.buffer.len(), "the slot has room for its prefix");
        // SAFETY: the bytes lie inside, by the assertion, and are ours, by the contract.
        unsafe {
            ptr::copy_nonoverlapping(prefix.as_ptr(), self.buffer.start().add(self.start), prefix.len())
        };
    }
}

#[pymethods]
impl Slot {
    /// Samples that were outside of the range of values when it was filled.
    #[getter]
    fn clipped_samples(&self) -> usize {
        self.clipped
    }

    /// Fills a view of the bytes.
    ///
    /// # Safety
    ///
    /// The view is one that the interpreter wants to have filled.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let Slot { buffer, start, .. } = slf.get();
        // SAFETY: the memory stays where it is while the slot lives, and this type forms no reference into it. The start
        // lies inside.
        unsafe { fill_view(slf, (buffer.start().add(*start), buffer.len() - start), false, view, flags) }
    }
}
