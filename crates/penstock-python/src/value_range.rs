//! Ranges of floating-point samples in Python.

use penstock_frames::FloatFrame;
use penstock_pixels::{Float, Outside, Quantizer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::buffer::BorrowedBuffer;

/// The range of floating-point samples that become whole ones.
///
/// Args:
///     low: what becomes 0.
///     high: what becomes the most that the bits hold.
///     bits: those of a whole sample, 1 to 16: it has one byte up to 8, and two above.
///
/// Raises:
///     ValueError: there is no scale from `low` to `high`.
#[pyclass(frozen, name = "_ValueRange", module = "penstock._native")]
pub(crate) struct ValueRange {
    range: (f64, f64),
    bits: u32,
}

#[pymethods]
impl ValueRange {
    #[new]
    fn new(low: f64, high: f64, bits: u32) -> PyResult<Self> {
        let range = Self { range: (low, high), bits };
        range.quantizer(Float::F64).map(|_| range)
    }
}

impl ValueRange {
    fn quantizer(&self, float: Float) -> PyResult<Quantizer> {
        let made = Quantizer::new(float, self.range, self.bits);
        made.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The frame in a buffer of rows × columns × channels, or rows × columns.
    pub(crate) fn frame<'a>(&self, borrowed: &'a BorrowedBuffer<'_>) -> PyResult<FloatFrame<'a>> {
        let array = borrowed.strided();
        let float = Float::ALL.into_iter().find(|float| float.bytes() == array.item_bytes);
        let Some(float) = float.filter(|_| !array.shape.is_empty()) else {
            return Err(PyTypeError::new_err(
                "a frame of floats must have samples of float16, float32 or float64",
            ));
        };
        // SAFETY: the borrowed keeps the memory in place; see `BorrowedBuffer::contiguous` on who else writes there.
        Ok(unsafe { FloatFrame::new(array, self.quantizer(float)?) })
    }
}

/// Checks that all samples were numbers, and returns how many were clipped.
pub(crate) fn clipped(outside: Outside) -> PyResult<usize> {
    match outside.nan {
        0 => Ok(outside.clipped),
        nan => Err(PyValueError::new_err(format!("NaN in {nan} of its samples"))),
    }
}
