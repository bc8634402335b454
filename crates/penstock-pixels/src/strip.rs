//! Where the rows of a strip lie, in the input and in the planes of the output.

use std::ops::Range;

use super::options::ConversionOptions;
use super::planes::{PlaneSize, Planes};

/// The sizes of the input and the output frame.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    pub(super) options: ConversionOptions,
    pub(super) output_width: usize,
    pub(super) output_height: usize,
}

impl Frames {
    /// Columns in both frames.
    pub(super) fn shared_width(&self) -> usize {
        self.options.width.min(self.output_width)
    }

    /// The planes of the input.
    pub(super) fn input_sizes(&self) -> impl ExactSizeIterator<Item = PlaneSize> {
        let &ConversionOptions { input, width, height, .. } = &self.options;
        let planes = input.planes().iter();
        planes.map(move |plane| PlaneSize { rows: plane.rows_of(height), row_bytes: plane.row_bytes(width) })
    }

    /// The bytes of a row of an input plane. Row 0 is the top of the picture.
    pub(super) fn input_row<'a>(&self, plane: usize, row: usize, input: &Planes<'a>) -> &'a [u8] {
        let count = self.options.input.planes()[plane].rows_of(self.options.height);
        input.row(plane, if self.options.vertical_flip { count - 1 - row } else { row })
    }
}

/// Some rows of an output frame, in each of its planes. Bands share no byte, so that threads can make them at the same time.
#[derive(Debug)]
pub struct Band<'a> {
    rows: Range<usize>,
    planes: Vec<&'a mut [u8]>,
}

impl<'a> Band<'a> {
    /// The whole frame.
    pub(super) fn whole(frames: &Frames, mut output: &'a mut [u8]) -> Self {
        let (width, height) = (frames.output_width, frames.output_height);
        let mut planes = Vec::with_capacity(3);
        for plane in frames.options.output.planes() {
            let (own, others) = output.split_at_mut(plane.row_bytes(width) * plane.rows_of(height));
            planes.push(own);
            output = others;
        }
        Self { rows: 0..height, planes }
    }

    /// Rows of packed pixels.
    pub(super) fn packed(rows: Range<usize>, output: &'a mut [u8]) -> Self {
        Self { rows, planes: vec![output] }
    }

    /// Takes the rows before `end` off, which is even.
    pub(super) fn split_off(&mut self, frames: &Frames, end: usize) -> Self {
        let formats = frames.options.output.planes().iter();
        let planes = self.planes.iter_mut().zip(formats).map(|(plane, format)| {
            let rows = end / format.rows - self.rows.start / format.rows;
            plane
                .split_off_mut(..rows * format.row_bytes(frames.output_width))
                .expect("the frame has these rows")
        });
        let planes = planes.collect();
        let rows = self.rows.start..end;
        self.rows.start = end;
        Self { rows, planes }
    }

    /// Which rows of the output they are.
    pub(super) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }
}

/// The rows of a strip in the planes of the output.
pub(super) struct Target<'a> {
    pub(super) planes: Vec<&'a mut [u8]>,
    pub(super) row_bytes: Vec<usize>,
}

impl<'a> Target<'a> {
    /// `rows` are some of the band's. They begin at an even row, and end at an even one or with the frame.
    pub(super) fn of(frames: &Frames, rows: &Range<usize>, band: &'a mut Band<'_>) -> Self {
        let (mut planes, mut all_row_bytes) = (Vec::with_capacity(3), Vec::with_capacity(3));
        for (plane, own) in frames.options.output.planes().iter().zip(&mut band.planes) {
            let row_bytes = plane.row_bytes(frames.output_width);
            let before = band.rows.start / plane.rows;
            let (first, last) = (rows.start / plane.rows - before, rows.end.div_ceil(plane.rows) - before);
            planes.push(&mut own[first * row_bytes..last * row_bytes]);
            all_row_bytes.push(row_bytes);
        }
        Self { planes, row_bytes: all_row_bytes }
    }

    /// Repeats the last column and the last row of luma where the input has none. Chroma is complete already.
    pub(super) fn pad_luma(&mut self, shared_width: usize, made_rows: usize, sample_bytes: usize) {
        let (luma, row_bytes) = (&mut *self.planes[0], self.row_bytes[0]);
        let shared_bytes = shared_width * sample_bytes;
        if shared_bytes < row_bytes {
            for row in luma.chunks_exact_mut(row_bytes).take(made_rows) {
                row.copy_within(shared_bytes - sample_bytes..shared_bytes, shared_bytes);
            }
        }
        if made_rows * row_bytes < luma.len() {
            luma.copy_within((made_rows - 1) * row_bytes..made_rows * row_bytes, made_rows * row_bytes);
        }
    }
}
