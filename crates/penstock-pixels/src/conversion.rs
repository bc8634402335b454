//! Conversions of whole frames, in strips.

use std::ops::Range;

use super::method::Method;
use super::options::{ConversionOptions, OddSize, Unsupported};
use super::planes::{PlaneSize, Planes};
use super::strip::{Band, Frames};

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
            return Err(Unsupported("width and height must be at least 1".into()));
        }
        if options.vertical_flip && input.subsampling().1 > 1 && !height.is_multiple_of(2) {
            return Err(Unsupported("the height must be even to flip chroma".into()));
        }
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

    /// The size of the only plane of an output frame; none if it has several.
    #[must_use]
    pub fn packed_size(&self) -> Option<PlaneSize> {
        let [plane] = self.frames.options.output.planes() else { return None };
        let &Frames { output_width, output_height, .. } = &self.frames;
        Some(PlaneSize { rows: output_height, row_bytes: plane.row_bytes(output_width) })
    }

    /// The sizes of the planes of an input frame.
    pub fn input_sizes(&self) -> impl ExactSizeIterator<Item = PlaneSize> {
        self.frames.input_sizes()
    }

    /// Converts one strip of a frame whose planes follow each other without padding.
    ///
    /// # Panics
    ///
    /// If the frames do not have the sizes above.
    pub fn convert_strip(&self, strip: usize, input: &[u8], output: &mut [u8]) {
        let first = strip * self.strip_rows;
        let rows = first..(first + self.strip_rows).min(self.frames.output_height);
        self.convert_rows(rows, &self.contiguous(input), &mut self.whole(output));
    }

    /// Converts a whole frame whose planes follow each other without padding.
    ///
    /// # Panics
    ///
    /// As for [`convert_strip`](Self::convert_strip).
    pub fn convert(&self, input: &[u8], output: &mut [u8]) {
        self.convert_band(&self.contiguous(input), &mut self.whole(output));
    }

    /// Splits an output frame into bands of similar height: so many, or fewer if it has fewer strips.
    ///
    /// # Panics
    ///
    /// If `output` does not have the size above.
    #[must_use]
    pub fn bands<'a>(&self, count: usize, output: &'a mut [u8]) -> Vec<Band<'a>> {
        let mut rest = self.whole(output);
        let (strips, count) = (self.strips(), count.clamp(1, self.strips()));
        let mut bands = Vec::with_capacity(count);
        for band in 1..count {
            bands.push(rest.split_off(&self.frames, strips * band / count * self.strip_rows));
        }
        bands.push(rest);
        bands
    }

    /// Converts the rows of a band, a strip at a time.
    ///
    /// # Panics
    ///
    /// If the band is one of another conversion's, or the planes do not have the sizes above.
    pub fn convert_band(&self, input: &Planes<'_>, band: &mut Band<'_>) {
        let all = band.rows();
        for first in all.clone().step_by(self.strip_rows) {
            self.convert_rows(first..(first + self.strip_rows).min(all.end), input, band);
        }
    }

    /// Converts one strip to packed pixels, whose rows have so many bytes, and returns which rows it has.
    pub(super) fn convert_packed_strip(
        &self,
        strip: usize,
        row_bytes: usize,
        input: &Planes<'_>,
        output: &mut Vec<u8>,
    ) -> Range<usize> {
        let first = strip * self.strip_rows;
        let rows = first..(first + self.strip_rows).min(self.frames.output_height);
        output.resize(rows.len() * row_bytes, 0);
        self.convert_rows(rows.clone(), input, &mut Band::packed(rows.clone(), output));
        rows
    }

    fn convert_rows(&self, rows: Range<usize>, input: &Planes<'_>, band: &mut Band<'_>) {
        self.method.make_rows(&self.frames, rows, input, band);
    }

    fn contiguous<'a>(&self, input: &'a [u8]) -> Planes<'a> {
        Planes::contiguous(self.frames.input_sizes(), input)
    }

    fn whole<'a>(&self, output: &'a mut [u8]) -> Band<'a> {
        assert_eq!(output.len(), self.output_bytes);
        Band::whole(&self.frames, output)
    }
}

fn fitted(length: usize, shared_by: usize, odd_size: OddSize) -> usize {
    match odd_size {
        OddSize::Keep => length,
        OddSize::Pad => length.next_multiple_of(shared_by),
        OddSize::Crop => length / shared_by * shared_by,
    }
}
