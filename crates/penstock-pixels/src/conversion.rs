//! Conversions of whole frames, in strips.

use std::ops::Range;

use super::method::Method;
use super::options::{ConversionOptions, OddSize, Unsupported};
use super::strip::Frames;

/// Converts frames from one pixel format to another, a strip at a time.
///
/// A chroma sample is the mean of its pixels, and so lies in their middle (H.273's chroma sample location type 1). To
/// RGB, each of its pixels gets the sample, as FFmpeg does with `-sws_flags neighbor+accurate_rnd+full_chroma_int`.
#[derive(Clone, Debug)]
pub struct Conversion {
    frames: Frames,
    method: Method,
    input_bytes: usize,
    output_bytes: usize,
    strip_rows: usize,
}

impl Conversion {
    /// Prepares a conversion.
    ///
    /// # Errors
    ///
    /// The pair of formats is not supported, or the size is impossible.
    pub fn new(options: &ConversionOptions) -> Result<Self, Unsupported> {
        let &ConversionOptions { input, output, width, height, odd_size, .. } = options;
        let Some(method) = Method::between(input, output) else {
            let (input, output) = (input.name(), output.name());
            return Err(Unsupported(format!("there is no conversion from {input} to {output}").into()));
        };
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
        let frames = Frames { options: *options, output_width, output_height };
        Ok(Self { frames, method, input_bytes, output_bytes, strip_rows })
    }

    /// Columns of the output.
    #[must_use]
    pub fn output_width(&self) -> usize {
        self.frames.output_width
    }

    /// Rows of the output.
    #[must_use]
    pub fn output_height(&self) -> usize {
        self.frames.output_height
    }

    /// Size of an input frame in bytes.
    #[must_use]
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Size of an output frame in bytes.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Number of strips of a frame: of similar height, each some 20 to 60 µs of work.
    #[must_use]
    pub fn strips(&self) -> usize {
        self.frames.output_height.div_ceil(self.strip_rows)
    }

    /// The rows of the input, in their order in memory, that a strip is made of.
    #[must_use]
    pub fn input_rows(&self, strip: usize) -> Range<usize> {
        let (first, height) = (strip * self.strip_rows, self.frames.options.height);
        let last = (first + self.strip_rows).min(height);
        if self.frames.options.vertical_flip { height - last..height - first } else { first..last }
    }

    /// Converts one strip.
    ///
    /// # Panics
    ///
    /// If the frames do not have the sizes above.
    pub fn convert_strip(&self, strip: usize, input: &[u8], output: &mut [u8]) {
        let first = strip * self.strip_rows;
        self.method.make_rows(
            &self.frames,
            first..(first + self.strip_rows).min(self.frames.output_height),
            input,
            output,
        );
    }

    /// Converts a whole frame.
    ///
    /// # Panics
    ///
    /// As for [`convert_strip`](Self::convert_strip).
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
