//! Where the rows of a strip lie, in the input and in the planes of the output.

use std::ops::Range;

use super::format::Plane;
use super::options::ConversionOptions;

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

    /// The bytes of a row of an input plane. Row 0 is the top of the picture.
    pub(super) fn input_row<'a>(&self, plane: &Plane, start: usize, row: usize, input: &'a [u8]) -> &'a [u8] {
        let (bytes, count) = (plane.row_bytes(self.options.width), plane.rows_of(self.options.height));
        let row = if self.options.vertical_flip { count - 1 - row } else { row };
        &input[start + row * bytes..][..bytes]
    }
}

/// The rows of a strip in the planes of the output.
pub(super) struct Target<'a> {
    pub(super) planes: Vec<&'a mut [u8]>,
    pub(super) row_bytes: Vec<usize>,
}

impl<'a> Target<'a> {
    /// `rows` begin at an even row, and end at an even one or with the frame.
    pub(super) fn of(frames: &Frames, rows: &Range<usize>, mut output: &'a mut [u8]) -> Self {
        let (width, height) = (frames.output_width, frames.output_height);
        let (mut planes, mut all_row_bytes) = (Vec::with_capacity(3), Vec::with_capacity(3));
        for plane in frames.options.output.planes() {
            let row_bytes = plane.row_bytes(width);
            let (own, others) = output.split_at_mut(row_bytes * plane.rows_of(height));
            let (first, last) = (rows.start / plane.rows, rows.end.div_ceil(plane.rows));
            planes.push(&mut own[first * row_bytes..last * row_bytes]);
            all_row_bytes.push(row_bytes);
            output = others;
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
