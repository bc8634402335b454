//! Frames from one pixel format to another, while they are copied.
//!
//! To YUV, the arithmetic is the crate `yuv`'s; to RGB, it is here. Around it: whole frames in strips, planes one after another as
//! FFmpeg's `rawvideo` has them, pictures upside down, and sizes that the chroma cannot share out.
//!
//! [`Conversion`] does it.
#![doc = include_str!("../README.md")]

mod convert;
mod format;
mod strip;
mod to_rgb;

use std::borrow::Cow;
use std::fmt;

pub use format::PixelFormat;

/// The coefficients that luma and chroma are made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
pub enum OddSize {
    /// It stays, and has a chroma sample for itself.
    #[default]
    Keep,
    /// It is repeated once.
    Pad,
    /// It is left out.
    Crop,
}

/// What a [`Conversion`] is to do.
#[derive(Clone, Copy, Debug)]
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

/// There is no such conversion, or no frame of such a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(Cow<'static, str>);

impl Unsupported {
    fn pair(input: PixelFormat, output: PixelFormat) -> Self {
        Self(format!("there is no conversion from {} to {}", input.name(), output.name()).into())
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Makes frames of one pixel format from those of another, a strip at a time.
///
/// A chroma sample is the mean of its pixels, and so lies in their middle (H.273's chroma sample location type 1). To RGB, it stands
/// for each of them, as FFmpeg has it with `-sws_flags neighbor+accurate_rnd+full_chroma_int`.
#[derive(Clone, Debug)]
pub struct Conversion {
    options: ConversionOptions,
    method: convert::Method,
    output_width: usize,
    output_height: usize,
    input_bytes: usize,
    output_bytes: usize,
    strip_rows: usize,
}

impl Conversion {
    /// Prepares a conversion.
    ///
    /// # Errors
    ///
    /// The pair of formats is not supported, or the size is not possible.
    pub fn new(options: &ConversionOptions) -> Result<Self, Unsupported> {
        let &ConversionOptions { input, output, width, height, odd_size, .. } = options;
        let method =
            convert::Method::between(input, output).ok_or_else(|| Unsupported::pair(input, output))?;
        let (columns, rows) = output.subsampling();
        let output_width = fitted(width, columns, odd_size);
        let output_height = fitted(height, rows, odd_size);
        if output_width == 0 || output_height == 0 {
            return Err(Unsupported("a frame has at least one column and one row".into()));
        }
        if options.vertical_flip && input.subsampling().1 > 1 && !height.is_multiple_of(2) {
            return Err(Unsupported("chroma of an odd number of rows cannot be turned over".into()));
        }
        // 2^31: the arithmetic below, and that of `yuv`, counts columns in 32 bits.
        let too_large = Unsupported("the frame is too large".into());
        if width > 1 << 24 || height > 1 << 24 {
            return Err(too_large);
        }
        let input_bytes = input.frame_bytes(width, height).ok_or_else(|| too_large.clone())?;
        let output_bytes = output.frame_bytes(output_width, output_height).ok_or(too_large)?;
        let row_bytes = input_bytes.div_ceil(height);
        let strip_rows = (method.strip_bytes() / row_bytes / 2 * 2).max(2);
        let options = *options;
        Ok(Self { options, method, output_width, output_height, input_bytes, output_bytes, strip_rows })
    }

    /// Columns of the output.
    #[must_use]
    pub fn output_width(&self) -> usize {
        self.output_width
    }

    /// Rows of the output.
    #[must_use]
    pub fn output_height(&self) -> usize {
        self.output_height
    }

    /// The size of a frame that is handed in.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// The size of what is made of it.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Into how many strips the frame is divided: of similar height, each some 20 to 60 µs of work.
    #[must_use]
    pub fn strips(&self) -> usize {
        self.output_height.div_ceil(self.strip_rows)
    }

    /// Makes one strip of the output.
    ///
    /// # Panics
    ///
    /// The frames have not the sizes above.
    pub fn convert_strip(&self, strip: usize, input: &[u8], output: &mut [u8]) {
        let first = strip * self.strip_rows;
        self.method.make_rows(self, first..(first + self.strip_rows).min(self.output_height), input, output);
    }

    /// Makes a whole frame.
    ///
    /// # Panics
    ///
    /// As for `convert_strip`.
    pub fn convert(&self, input: &[u8], output: &mut [u8]) {
        (0..self.strips()).for_each(|strip| self.convert_strip(strip, input, output));
    }
}

fn fitted(length: usize, shared_by: usize, odd_size: OddSize) -> usize {
    match odd_size {
        OddSize::Keep => length,
        OddSize::Pad => length.next_multiple_of(shared_by),
        OddSize::Crop => length / shared_by * shared_by,
    }
}
