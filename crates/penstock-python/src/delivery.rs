//! The last step of delivered arrays, in Python.

use penstock_pixels::DeliveryOptions;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Makes arrays of packed pixels: other samples, channels first, and a border.
///
/// Args:
///     picture: columns and rows of the picture.
///     channels: samples of a pixel.
///     size: columns and rows of the array.
///     border: columns left of the picture, and rows above it.
///     fill: the sample of each channel around the picture.
///     channels_first: whether the array is channels × rows × columns, not rows × columns × channels.
///     values: what each sample becomes, from 0 on, 256 or 65,536 one after another, of 1, 2 or 4 bytes.
///     sample_bytes: bytes of a sample of the picture, 1 or 2.
///
/// Raises:
///     ValueError: they do not fit to each other.
#[pyclass(frozen, name = "_Delivery", module = "penstock._native")]
pub(crate) struct Delivery(pub(crate) penstock_pixels::Delivery);

#[pymethods]
impl Delivery {
    #[new]
    #[pyo3(signature = (*, picture, channels, size, border, fill, channels_first, values, sample_bytes))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn new(
        picture: (usize, usize),
        channels: usize,
        size: (usize, usize),
        border: (usize, usize),
        fill: Vec<u16>,
        channels_first: bool,
        values: &[u8],
        sample_bytes: usize,
    ) -> PyResult<Self> {
        let values = values.to_vec();
        let options =
            DeliveryOptions { picture, channels, size, border, fill, channels_first, values, sample_bytes };
        let made = penstock_pixels::Delivery::new(options);
        made.map(Self).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}
