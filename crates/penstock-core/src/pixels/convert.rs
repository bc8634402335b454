//! The conversions, each of a strip of rows.

use std::cell::RefCell;
use std::ops::Range;

use yuv::{
    BufferStoreMut, YuvBiPlanarImageMut, YuvConversionMode, YuvError, YuvPlanarImageMut, YuvRange,
    YuvStandardMatrix,
};

use super::format::PixelFormat;
use super::strip::Target;
use super::{Conversion, Matrix, Range as ColorRange};

/// Rows that are gathered at once, so that they are still in the first-level cache when they are converted: 46 KB of 1080p
/// rgb24. Measured: see `benches/convert.rs`.
const GATHERED_ROWS: usize = 8;

/// What conversions from or to more than 8 bits go by way of.
const DEEP_BITS: u32 = 14;
const DEEP_WHITE: u32 = (1 << DEEP_BITS) - 1;

type Planar8 = fn(
    &mut YuvPlanarImageMut<'_, u8>,
    &[u8],
    u32,
    YuvRange,
    YuvStandardMatrix,
    YuvConversionMode,
) -> Result<(), YuvError>;
type BiPlanar8 = fn(
    &mut YuvBiPlanarImageMut<'_, u8>,
    &[u8],
    u32,
    YuvRange,
    YuvStandardMatrix,
    YuvConversionMode,
) -> Result<(), YuvError>;
type Planar16 =
    fn(&mut YuvPlanarImageMut<'_, u16>, &[u16], u32, YuvRange, YuvStandardMatrix) -> Result<(), YuvError>;

/// How one format is made of another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    /// They are the same: rows are copied.
    Copy,
    /// 8 bits to 8 bits in three planes.
    Planar(Planar8),
    /// 8 bits to 8 bits in two planes.
    BiPlanar(BiPlanar8),
    /// From or to more bits, by way of 14.
    Deep { convert: Planar16, input: DeepInput, output: DeepOutput },
    /// Gray to luma, with chroma that is neutral.
    Gray { output_bits: u32 },
}

/// What becomes 14 bits a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeepInput {
    channels: usize,
    has_16_bits: bool,
    blue_first: bool,
}

/// What is made of 14 bits a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeepOutput {
    bits: u32,
    is_interleaved: bool,
}

impl Method {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        use PixelFormat::{
            Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgba, Yuv420p, Yuv420p10, Yuv422p, Yuv422p10,
            Yuv444p, Yuv444p10,
        };
        if input == output {
            return Some(Self::Copy);
        }
        let same_depth = match (input, output) {
            (Rgb24, Yuv420p) => Some(Self::Planar(yuv::rgb_to_yuv420)),
            (Rgb24, Yuv422p) => Some(Self::Planar(yuv::rgb_to_yuv422)),
            (Rgb24, Yuv444p) => Some(Self::Planar(yuv::rgb_to_yuv444)),
            (Rgb24, Nv12) => Some(Self::BiPlanar(yuv::rgb_to_yuv_nv12)),
            (Bgr24, Yuv420p) => Some(Self::Planar(yuv::bgr_to_yuv420)),
            (Bgr24, Yuv422p) => Some(Self::Planar(yuv::bgr_to_yuv422)),
            (Bgr24, Yuv444p) => Some(Self::Planar(yuv::bgr_to_yuv444)),
            (Bgr24, Nv12) => Some(Self::BiPlanar(yuv::bgr_to_yuv_nv12)),
            (Rgba | Rgb0, Yuv420p) => Some(Self::Planar(yuv::rgba_to_yuv420)),
            (Rgba | Rgb0, Yuv422p) => Some(Self::Planar(yuv::rgba_to_yuv422)),
            (Rgba | Rgb0, Yuv444p) => Some(Self::Planar(yuv::rgba_to_yuv444)),
            (Rgba | Rgb0, Nv12) => Some(Self::BiPlanar(yuv::rgba_to_yuv_nv12)),
            (Bgra | Bgr0, Yuv420p) => Some(Self::Planar(yuv::bgra_to_yuv420)),
            (Bgra | Bgr0, Yuv422p) => Some(Self::Planar(yuv::bgra_to_yuv422)),
            (Bgra | Bgr0, Yuv444p) => Some(Self::Planar(yuv::bgra_to_yuv444)),
            (Bgra | Bgr0, Nv12) => Some(Self::BiPlanar(yuv::bgra_to_yuv_nv12)),
            (Gray, Yuv420p | Yuv422p | Yuv444p | Nv12) => Some(Self::Gray { output_bits: 8 }),
            (Gray, Yuv420p10 | Yuv422p10 | Yuv444p10) => Some(Self::Gray { output_bits: 10 }),
            _ => None,
        };
        same_depth.or_else(|| Self::deep(input, output))
    }

    fn deep(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        use PixelFormat::{
            Bgr0, Bgr24, Bgra, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p,
            Yuv422p10, Yuv444p, Yuv444p10,
        };
        let (channels, has_16_bits, blue_first) = match input {
            Rgb24 => (3, false, false),
            Bgr24 => (3, false, true),
            Rgba | Rgb0 => (4, false, false),
            Bgra | Bgr0 => (4, false, true),
            Rgb48 => (3, true, false),
            Rgba64 => (4, true, false),
            _ => return None,
        };
        let (bits, with_three, with_four): (_, Planar16, Planar16) = match output {
            Yuv420p | Nv12 => (8, yuv::rgb14_to_i014, yuv::rgba14_to_i014),
            Yuv422p => (8, yuv::rgb14_to_i214, yuv::rgba14_to_i214),
            Yuv444p => (8, yuv::rgb14_to_i414, yuv::rgba14_to_i414),
            Yuv420p10 => (10, yuv::rgb14_to_i014, yuv::rgba14_to_i014),
            Yuv422p10 => (10, yuv::rgb14_to_i214, yuv::rgba14_to_i214),
            Yuv444p10 => (10, yuv::rgb14_to_i414, yuv::rgba14_to_i414),
            _ => return None,
        };
        Some(Self::Deep {
            convert: if channels == 3 { with_three } else { with_four },
            input: DeepInput { channels, has_16_bits, blue_first },
            output: DeepOutput { bits, is_interleaved: output == Nv12 },
        })
    }

    /// Makes these rows of the output.
    pub(super) fn make_rows(
        self,
        conversion: &Conversion,
        rows: Range<usize>,
        input: &[u8],
        output: &mut [u8],
    ) {
        if let Self::Copy = self {
            return copy(conversion, &rows, input, output);
        }
        let in_input = conversion.rows_in_input(&rows);
        let sample_bytes = conversion.options.output.planes()[0].bytes;
        let strips = match (self, conversion.options.vertical_flip) {
            (Self::Planar(_) | Self::BiPlanar(_), false) => in_input.len(),
            _ => GATHERED_ROWS,
        };
        for start in in_input.clone().step_by(strips.max(1)) {
            let part = start..(start + strips).min(in_input.end);
            // The last part has the rows that the input lacks, too.
            let target = part.start..if part.end == in_input.end { rows.end } else { part.end };
            let mut target = Target::of(conversion, &target, output);
            self.make_part(conversion, &part, input, &mut target);
            target.pad_luma(conversion.shared_width(), part.len(), sample_bytes);
        }
    }

    fn make_part(self, conversion: &Conversion, rows: &Range<usize>, input: &[u8], target: &mut Target<'_>) {
        let (width, height) = (conversion.shared_width() as u32, rows.len() as u32);
        let (matrix, range) = (matrix(conversion.options.matrix), range(conversion.options.range));
        match self {
            Self::Copy => unreachable!("copies are made of whole strips"),
            Self::Planar(convert) => with_rows(conversion, rows, input, |rgb, stride| {
                let mut image = target.planar(width, height);
                convert(&mut image, rgb, stride, range, matrix, YuvConversionMode::Balanced)
            }),
            Self::BiPlanar(convert) => with_rows(conversion, rows, input, |rgb, stride| {
                let mut image = target.bi_planar(width, height);
                convert(&mut image, rgb, stride, range, matrix, YuvConversionMode::Balanced)
            }),
            Self::Deep { convert, input: from, output: to } => {
                deep(conversion, rows, input, (convert, from, to), target);
            }
            Self::Gray { output_bits } => gray(conversion, rows, input, output_bits, target),
        }
    }
}

const SIZES_WERE_CHECKED: &str = "the sizes were checked when the conversion was made";

fn matrix(matrix: Matrix) -> YuvStandardMatrix {
    match matrix {
        Matrix::Bt601 => YuvStandardMatrix::Bt601,
        Matrix::Bt709 => YuvStandardMatrix::Bt709,
        Matrix::Bt2020 => YuvStandardMatrix::Bt2020,
    }
}

fn range(range: ColorRange) -> YuvRange {
    match range {
        ColorRange::Limited => YuvRange::Limited,
        ColorRange::Full => YuvRange::Full,
    }
}

impl Target<'_> {
    fn planar(&mut self, width: u32, height: u32) -> YuvPlanarImageMut<'_, u8> {
        let [y_plane, u_plane, v_plane] = &mut self.planes[..] else {
            unreachable!("planar formats have three planes")
        };
        YuvPlanarImageMut {
            // Not more rows than there are to make: a last one without a partner is looked for at the end.
            y_plane: BufferStoreMut::Borrowed(&mut y_plane[..height as usize * self.row_bytes[0]]),
            y_stride: self.row_bytes[0] as u32,
            u_plane: BufferStoreMut::Borrowed(u_plane),
            u_stride: self.row_bytes[1] as u32,
            v_plane: BufferStoreMut::Borrowed(v_plane),
            v_stride: self.row_bytes[2] as u32,
            width,
            height,
        }
    }

    fn bi_planar(&mut self, width: u32, height: u32) -> YuvBiPlanarImageMut<'_, u8> {
        let [y_plane, uv_plane] = &mut self.planes[..] else { unreachable!("nv12 has two planes") };
        YuvBiPlanarImageMut {
            // Not more rows than there are to make: a last one without a partner is looked for at the end.
            y_plane: BufferStoreMut::Borrowed(&mut y_plane[..height as usize * self.row_bytes[0]]),
            y_stride: self.row_bytes[0] as u32,
            uv_plane: BufferStoreMut::Borrowed(uv_plane),
            uv_stride: self.row_bytes[1] as u32,
            width,
            height,
        }
    }
}

/// What a thread gathers rows in; kept, because fresh memory of that size would fault at each strip.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    rgb: Vec<u16>,
    luma: Vec<u16>,
    chroma: [Vec<u16>; 2],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Hands on the rows of a packed format as they lie in the picture, with their stride in bytes.
fn with_rows(
    conversion: &Conversion,
    rows: &Range<usize>,
    input: &[u8],
    convert: impl FnOnce(&[u8], u32) -> Result<(), YuvError>,
) {
    let plane = &conversion.options.input.planes()[0];
    let stride = plane.row_bytes(conversion.options.width);
    let done = if conversion.options.vertical_flip {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.bytes.clear();
            for row in rows.clone() {
                scratch.bytes.extend_from_slice(conversion.input_row(plane, 0, row, input));
            }
            convert(&scratch.bytes, stride as u32)
        })
    } else {
        convert(&input[rows.start * stride..rows.end * stride], stride as u32)
    };
    done.expect(SIZES_WERE_CHECKED);
}

impl Scratch {
    /// The rows in 14 bits a channel, red first.
    fn gather(&mut self, conversion: &Conversion, rows: &Range<usize>, input: &[u8], from: DeepInput) {
        let plane = &conversion.options.input.planes()[0];
        let used_bytes = plane.row_bytes(conversion.shared_width());
        self.rgb.clear();
        for row in rows.clone() {
            let row = &conversion.input_row(plane, 0, row, input)[..used_bytes];
            if from.has_16_bits {
                self.rgb.extend(
                    row.as_chunks().0.iter().map(|pair| scaled(u16::from_le_bytes(*pair).into(), 65_535)),
                );
            } else {
                self.rgb.extend(row.iter().map(|byte| scaled(u32::from(*byte), 255)));
            }
        }
        if from.blue_first {
            self.rgb.chunks_exact_mut(from.channels).for_each(|pixel| pixel.swap(0, 2));
        }
    }
}

/// From a white of that much to one of 14 bits, rounded to the nearest.
fn scaled(sample: u32, white: u32) -> u16 {
    ((sample * DEEP_WHITE + white / 2) / white) as u16
}

/// Converts by way of 14 bits a sample: finer than either side. `yuv` 0.8.20 has 16 bits as well, but there its white of the full
/// range runs over to 0.
fn deep(
    conversion: &Conversion,
    rows: &Range<usize>,
    input: &[u8],
    (convert, from, to): (Planar16, DeepInput, DeepOutput),
    target: &mut Target<'_>,
) {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.gather(conversion, rows, input, from);
        let Scratch { rgb, luma, chroma: [u, v], .. } = scratch;
        let (width, height) = (conversion.shared_width(), rows.len());
        let (columns, lines) = conversion.options.output.subsampling();
        let (chroma_width, chroma_height) = (width.div_ceil(columns), height.div_ceil(lines));
        luma.resize(width * height, 0);
        u.resize(chroma_width * chroma_height, 0);
        v.resize(chroma_width * chroma_height, 0);
        let mut image = YuvPlanarImageMut {
            y_plane: BufferStoreMut::Borrowed(luma),
            y_stride: width as u32,
            u_plane: BufferStoreMut::Borrowed(u),
            u_stride: chroma_width as u32,
            v_plane: BufferStoreMut::Borrowed(v),
            v_stride: chroma_width as u32,
            width: width as u32,
            height: height as u32,
        };
        let (range, matrix) = (range(conversion.options.range), matrix(conversion.options.matrix));
        convert(&mut image, rgb, (width * from.channels) as u32, range, matrix).expect(SIZES_WERE_CHECKED);
        let (luma_round, chroma_round) = to.rounds(conversion.options.range);
        let luma_bytes = target.row_bytes[0];
        for (made, row) in luma.chunks_exact(width).zip(target.planes[0].chunks_exact_mut(luma_bytes)) {
            to.narrow(made, luma_round, row);
        }
        if to.is_interleaved {
            let pairs = target.planes[1].as_chunks_mut::<2>().0;
            for ((u, v), pair) in u.iter().zip(&*v).zip(pairs) {
                *pair = [chroma_round.of(*u) as u8, chroma_round.of(*v) as u8];
            }
        } else {
            to.narrow(u, chroma_round, target.planes[1]);
            to.narrow(v, chroma_round, target.planes[2]);
        }
    });
}

/// A linear map in units of 2^-16, rounded to the nearest by half a unit in its bias.
#[derive(Clone, Copy)]
struct Round {
    peak: i64,
    factor: i64,
    bias: i64,
}

impl Round {
    fn of(self, sample: u16) -> u16 {
        ((i64::from(sample) * self.factor + self.bias) >> 16).clamp(0, self.peak) as u16
    }
}

impl DeepOutput {
    /// How luma and chroma of 14 bits become the output's. Of the limited range, code values of n bits are those of 8 times
    /// 2^(n-8); of the full range, white is 2^n - 1, and neutral chroma 2^(n-1) all the same (ITU-T H.273, 8.3).
    fn rounds(self, range: ColorRange) -> (Round, Round) {
        let peak = (1 << self.bits) - 1;
        let half = 1 << 15;
        match range {
            ColorRange::Limited => {
                let round = Round { peak, factor: 1 << (16 + self.bits - DEEP_BITS), bias: half };
                (round, round)
            }
            ColorRange::Full => {
                // Some peak / white: less than 2^-17 away, and so less than a hundredth of a code value.
                let white = i64::from(DEEP_WHITE);
                let factor = ((peak << 16) + white / 2) / white;
                let neutral = (1 << (self.bits - 1)) << 16;
                (
                    Round { peak, factor, bias: half },
                    Round { peak, factor, bias: half + neutral - (factor << (DEEP_BITS - 1)) },
                )
            }
        }
    }

    fn narrow(self, samples: &[u16], round: Round, output: &mut [u8]) {
        if self.bits == 8 {
            output.iter_mut().zip(samples).for_each(|(byte, sample)| *byte = round.of(*sample) as u8);
        } else {
            let pairs = output.as_chunks_mut::<2>().0;
            pairs.iter_mut().zip(samples).for_each(|(pair, sample)| *pair = round.of(*sample).to_le_bytes());
        }
    }
}

/// Gray to luma of the range, with neutral chroma.
fn gray(
    conversion: &Conversion,
    rows: &Range<usize>,
    input: &[u8],
    output_bits: u32,
    target: &mut Target<'_>,
) {
    let luma = luma_of_gray(conversion.options.range, output_bits);
    let neutral = (1_u16 << (output_bits - 1)).to_le_bytes();
    let sample_bytes = if output_bits == 8 { 1 } else { 2 };
    let plane = &conversion.options.input.planes()[0];
    let luma_bytes = target.row_bytes[0];
    for (row, made) in rows.clone().zip(target.planes[0].chunks_exact_mut(luma_bytes)) {
        let grays = &conversion.input_row(plane, 0, row, input)[..conversion.shared_width()];
        for (gray, sample) in grays.iter().zip(made.chunks_exact_mut(sample_bytes)) {
            sample.copy_from_slice(&luma[usize::from(*gray)].to_le_bytes()[..sample_bytes]);
        }
    }
    for chroma in &mut target.planes[1..] {
        chroma
            .chunks_exact_mut(sample_bytes)
            .for_each(|sample| sample.copy_from_slice(&neutral[..sample_bytes]));
    }
}

/// The luma of each gray, rounded to the nearest.
fn luma_of_gray(range: ColorRange, bits: u32) -> [u16; 256] {
    let (black, white) = match range {
        ColorRange::Limited => (16 << (bits - 8), 235 << (bits - 8)),
        ColorRange::Full => (0, (1 << bits) - 1),
    };
    std::array::from_fn(|gray| (black + (gray as u32 * (white - black) + 127) / 255) as u16)
}

/// The same format: rows are copied, in each plane.
fn copy(conversion: &Conversion, rows: &Range<usize>, input: &[u8], output: &mut [u8]) {
    let (width, height) = (conversion.options.width, conversion.options.height);
    let mut target = Target::of(conversion, rows, output);
    let mut start = 0;
    for (index, plane) in conversion.options.input.planes().iter().enumerate() {
        let row_bytes = target.row_bytes[index];
        let last_row = plane.rows_of(height) - 1;
        for (row, made) in (rows.start / plane.rows..).zip(target.planes[index].chunks_exact_mut(row_bytes)) {
            let given = conversion.input_row(plane, start, row.min(last_row), input);
            let shared_bytes = given.len().min(row_bytes);
            made[..shared_bytes].copy_from_slice(&given[..shared_bytes]);
            if shared_bytes < row_bytes {
                made.copy_within(shared_bytes - plane.bytes..shared_bytes, shared_bytes);
            }
        }
        start += plane.row_bytes(width) * (last_row + 1);
    }
}
