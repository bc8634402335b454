//! How one format is converted to another, and the conversion of a strip of rows.

use std::ops::Range;

use super::format::PixelFormat;
use super::planes::Planes;
use super::strip::{Band, Frames, Target};
use super::to_rgb::ToRgb;
use super::to_yuv::ToYuv;

/// How one format is converted to another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    /// They are equal: rows are copied.
    Copy,
    /// RGB or gray to YUV.
    ToYuv(ToYuv),
    /// YUV or gray to RGB, YUV to gray.
    ToRgb(ToRgb),
}

impl Method {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        if input == output {
            return Some(Self::Copy);
        }
        ToYuv::between(input, output)
            .map(Self::ToYuv)
            .or_else(|| ToRgb::between(input, output).map(Self::ToRgb))
    }

    /// Input bytes of a strip at most, two rows aside, so that it takes 20 to 60 µs. Measured: see
    /// `benches/convert.rs`.
    pub(super) fn strip_bytes(self) -> usize {
        match self {
            Self::Copy | Self::ToYuv(_) => 256 << 10,
            Self::ToRgb(_) => 128 << 10,
        }
    }

    /// Converts these rows of the output.
    pub(super) fn make_rows(
        self,
        frames: &Frames,
        rows: Range<usize>,
        input: &Planes<'_>,
        band: &mut Band<'_>,
    ) {
        if let Self::Copy = self {
            return copy(frames, &rows, input, band);
        }
        let in_input = rows.start..rows.end.min(frames.options.height);
        let sample_bytes = frames.options.output.planes()[0].bytes;
        let mut target = Target::of(frames, &rows, band);
        match self {
            Self::Copy => unreachable!("it is above"),
            Self::ToYuv(to_yuv) => to_yuv.make(frames, &in_input, input, &mut target),
            Self::ToRgb(to_rgb) => to_rgb.make(frames, &in_input, input, &mut target),
        }
        target.pad_luma(frames.shared_width(), in_input.len(), sample_bytes);
    }
}

/// Copies the rows of each plane.
fn copy(frames: &Frames, rows: &Range<usize>, input: &Planes<'_>, band: &mut Band<'_>) {
    let mut target = Target::of(frames, rows, band);
    for (index, plane) in frames.options.input.planes().iter().enumerate() {
        let row_bytes = target.row_bytes[index];
        let last_row = plane.rows_of(frames.options.height) - 1;
        for (row, made) in (rows.start / plane.rows..).zip(target.planes[index].chunks_exact_mut(row_bytes)) {
            let given = frames.input_row(index, row.min(last_row), input);
            let shared_bytes = given.len().min(row_bytes);
            made[..shared_bytes].copy_from_slice(&given[..shared_bytes]);
            if shared_bytes < row_bytes {
                made.copy_within(shared_bytes - plane.bytes..shared_bytes, shared_bytes);
            }
        }
    }
}
