//! Pixel conversions in Python.

use std::sync::Arc;

use penstock_core::Transform;
use penstock_pixels::{ConversionOptions, Matrix, OddSize, PixelFormat, Range};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arguments;

/// A conversion of frames from one pixel format to another, which a worker does while it copies them.
///
/// Args:
///     input, output: FFmpeg's names of pixel formats.
///     width, height: columns and rows of the input.
///     matrix: ``"bt601"``, ``"bt709"`` or ``"bt2020"``.
///     range: ``"limited"`` or ``"full"``.
///     vflip: whether the first row in memory is the bottom row of the picture.
///     odd_size: ``"keep"`` or ``"pad"``.
///
/// Raises:
///     ValueError: this conversion, or this size of a frame, is not supported.
#[pyclass(frozen, name = "_Conversion", module = "penstock._native")]
pub(crate) struct Conversion(pub(crate) Arc<penstock_pixels::Conversion>);

impl Conversion {
    pub(crate) fn transform(&self) -> Arc<dyn Transform> {
        self.0.clone()
    }
}

#[pymethods]
impl Conversion {
    #[new]
    #[pyo3(signature = (input, output, width, height, *, matrix, range, vflip, odd_size))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn new(
        input: &str,
        output: &str,
        #[pyo3(from_py_with = arguments::width)] width: usize,
        #[pyo3(from_py_with = arguments::height)] height: usize,
        matrix: &str,
        range: &str,
        vflip: bool,
        odd_size: &str,
    ) -> PyResult<Self> {
        let mut options = ConversionOptions::new(pixel_format(input)?, pixel_format(output)?, width, height);
        let matrices = [("bt601", Matrix::Bt601), ("bt709", Matrix::Bt709), ("bt2020", Matrix::Bt2020)];
        options.matrix = one_of(matrix, matrices)?;
        options.range = one_of(range, [("limited", Range::Limited), ("full", Range::Full)])?;
        options.vertical_flip = vflip;
        let odd_sizes = [("keep", OddSize::Keep), ("pad", OddSize::Pad)];
        options.odd_size = one_of(odd_size, odd_sizes)?;
        let conversion = penstock_pixels::Conversion::new(&options);
        conversion.map(|conversion| Self(Arc::new(conversion))).map_err(|error| {
            PyValueError::new_err(format!("{input} of {width}x{height} can't become {output}: {error}"))
        })
    }

    /// Columns and rows of the output.
    #[getter]
    fn output_size(&self) -> (usize, usize) {
        (self.0.output_width(), self.0.output_height())
    }
}

fn pixel_format(name: &str) -> PyResult<PixelFormat> {
    PixelFormat::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("there is no native conversion from or to {name}")))
}

fn one_of<T, const N: usize>(name: &str, choices: [(&str, T); N]) -> PyResult<T> {
    let found = choices.into_iter().find_map(|(choice, value)| (choice == name).then_some(value));
    found.ok_or_else(|| PyValueError::new_err(format!("{name:?} is none of the choices")))
}
