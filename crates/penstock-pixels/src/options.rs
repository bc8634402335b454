//! What a conversion is asked for.

use std::borrow::Cow;
use std::fmt;

use super::format::PixelFormat;

/// The coefficients that luma and chroma are made with.
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

/// Which code values black and white have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Range {
    /// Luma from 16 to 235, chroma from 16 to 240, of 8 bits (ITU-R BT.709, item 5.4).
    #[default]
    Limited,
    /// All code values.
    Full,
}

/// What becomes of a last column or row that the chroma of the output has no partner for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OddSize {
    /// It stays, and has a chroma sample for itself.
    #[default]
    Keep,
    /// It is repeated once.
    Pad,
    /// It is left out.
    Crop,
}

/// What a [`Conversion`](crate::Conversion) is to do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConversionOptions {
    /// Of the frames that are handed in.
    pub input: PixelFormat,
    /// Of what is made of them.
    pub output: PixelFormat,
    /// Columns of the input.
    pub width: usize,
    /// Rows of the input.
    pub height: usize,
    /// How YUV stands for RGB.
    pub matrix: Matrix,
    /// Of the YUV; RGB and gray always have the full range.
    pub range: Range,
    /// The first row in memory is the picture's lowest, as OpenGL has it.
    pub vertical_flip: bool,
    /// What to do with an odd size.
    pub odd_size: OddSize,
}

impl ConversionOptions {
    /// Options for frames of so many columns and rows, with the default matrix and range, and the size kept.
    #[must_use]
    pub fn new(input: PixelFormat, output: PixelFormat, width: usize, height: usize) -> Self {
        let (matrix, range, odd_size) = (Matrix::default(), Range::default(), OddSize::default());
        Self { input, output, width, height, matrix, range, vertical_flip: false, odd_size }
    }
}

/// There is no such conversion, or no frame of such a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub(super) Cow<'static, str>);

impl Unsupported {
    pub(super) fn pair(input: PixelFormat, output: PixelFormat) -> Self {
        Self(format!("there is no conversion from {} to {}", input.name(), output.name()).into())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}
