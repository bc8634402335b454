//! Options of a conversion.

use std::borrow::Cow;
use std::fmt;

use super::format::PixelFormat;

/// The coefficients of luma and chroma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Matrix {
    /// ITU-R BT.601: standard definition.
    Bt601,
    /// ITU-R BT.709: high definition.
    #[default]
    Bt709,
    /// ITU-R BT.2020, non-constant luminance: ultra high definition with wide gamut.
    Bt2020,
}

impl Matrix {
    /// The shares of red and blue in luma (ITU-T H.273, 8.3, table 4).
    pub(super) fn red_and_blue(self) -> (f64, f64) {
        match self {
            Self::Bt601 => (0.299, 0.114),
            Self::Bt709 => (0.2126, 0.0722),
            Self::Bt2020 => (0.2627, 0.0593),
        }
    }
}

/// The code values of black and white.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// Luma from 16 to 235, chroma from 16 to 240, of 8 bits (ITU-R BT.709, item 5.4).
    #[default]
    Limited,
    /// All code values.
    Full,
}

impl Range {
    /// Black, and how many levels luma and chroma have above their lowest one (ITU-T H.273, 8.3).
    pub(super) fn levels(self, bits: u32) -> (u16, u16, u16) {
        let peak = (1 << bits) - 1;
        match self {
            Self::Limited => (16 << (bits - 8), 219 << (bits - 8), 224 << (bits - 8)),
            Self::Full => (0, peak, peak),
        }
    }
}

/// What happens to a last column or row without a partner for its chroma.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OddSize {
    /// It is kept, with a chroma sample of its own.
    #[default]
    Keep,
    /// It is repeated once.
    Pad,
    /// It is dropped.
    Crop,
}

/// Options of a [`Conversion`](crate::Conversion).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConversionOptions {
    /// Format of the input.
    pub input: PixelFormat,
    /// Format of the output.
    pub output: PixelFormat,
    /// Columns of the input.
    pub width: usize,
    /// Rows of the input.
    pub height: usize,
    /// The coefficients of the YUV.
    pub matrix: Matrix,
    /// The range of the YUV. RGB and gray always have the full range.
    pub range: Range,
    /// Whether the first row in memory is the bottom of the picture, as in OpenGL.
    pub vertical_flip: bool,
    /// How to handle an odd size.
    pub odd_size: OddSize,
}

impl ConversionOptions {
    /// Options for frames of so many columns and rows, with the default matrix and range, and the size kept.
    #[must_use]
    pub fn new(input: PixelFormat, output: PixelFormat, width: usize, height: usize) -> Self {
        let (matrix, range, odd_size) = (Matrix::default(), Range::default(), OddSize::default());
        Self { input, output, width, height, matrix, range, vertical_flip: false, odd_size }
    }

    /// Sets the coefficients of the YUV.
    #[must_use]
    pub fn matrix(self, matrix: Matrix) -> Self {
        Self { matrix, ..self }
    }

    /// Sets the range of the YUV.
    #[must_use]
    pub fn range(self, range: Range) -> Self {
        Self { range, ..self }
    }

    /// Sets whether the first row in memory is the bottom of the picture.
    #[must_use]
    pub fn vertical_flip(self, vertical_flip: bool) -> Self {
        Self { vertical_flip, ..self }
    }

    /// Sets how to handle an odd size.
    #[must_use]
    pub fn odd_size(self, odd_size: OddSize) -> Self {
        Self { odd_size, ..self }
    }
}

/// The conversion or the frame size is not supported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub(super) Cow<'static, str>);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}
