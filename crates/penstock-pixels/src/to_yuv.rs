//! RGB and gray to YUV.

use std::cell::RefCell;
use std::ops::Range;

use yuv::{
    BufferStoreMut, YuvBiPlanarImageMut, YuvConversionMode, YuvError, YuvPlanarImageMut, YuvRange,
    YuvStandardMatrix,
};

use super::format::PixelFormat::{
    self, Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p,
    Yuv422p10, Yuv444p, Yuv444p10,
};
use super::options::{Matrix, Range as ColorRange};
use super::planes::Planes;
use super::scale::{ByteScale, DEEP_BITS, DEEP_WHITE, Round};
use super::strip::{Frames, Target};

/// Rows that go through scratch memory, or change places, at once, so that they are still in a near cache when they are
/// read again: 23 KB of 1080p yuv420p. Even, because two rows may share their chroma. Measured: see `benches/convert.rs`.
const BAND_ROWS: usize = 8;

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

/// The conversion to YUV.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToYuv {
    /// 8 bits to 8 bits in three planes.
    Planar(Planar8),
    /// 8 bits to 8 bits in two planes.
    BiPlanar(BiPlanar8),
    /// From or to more bits, through 14 bits.
    Deep { convert: Planar16, input: DeepInput },
    /// Gray to luma, with neutral chroma.
    Gray,
}

/// Input that is widened to 14 bits a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeepInput {
    channels: usize,
    has_16_bits: bool,
}

/// Whether `yuv` has SIMD code for this processor.
fn yuv_has_simd() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sse4.1");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

impl ToYuv {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        match (input, output) {
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
            (Gray, Yuv420p | Yuv422p | Yuv444p | Nv12 | Yuv420p10 | Yuv422p10 | Yuv444p10) => {
                Some(Self::Gray)
            }
            _ => Self::deep(input, output),
        }
    }

    fn deep(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        let (channels, has_16_bits) = match input {
            Rgb24 | Bgr24 => (3, false),
            Rgba | Rgb0 | Bgra | Bgr0 => (4, false),
            Rgb48 => (3, true),
            Rgba64 => (4, true),
            _ => return None,
        };
        // The portable code of `yuv` 0.8.20 for 4:2:0 of more than 8 bits reads a pixel of the first row instead of one
        // of the second.
        if output.subsampling().1 == 2 && !yuv_has_simd() {
            return None;
        }
        let (with_three, with_four): (Planar16, Planar16) = match output {
            Yuv420p | Nv12 | Yuv420p10 => (yuv::rgb14_to_i014, yuv::rgba14_to_i014),
            Yuv422p | Yuv422p10 => (yuv::rgb14_to_i214, yuv::rgba14_to_i214),
            Yuv444p | Yuv444p10 => (yuv::rgb14_to_i414, yuv::rgba14_to_i414),
            _ => return None,
        };
        let convert = if channels == 3 { with_three } else { with_four };
        Some(Self::Deep { convert, input: DeepInput { channels, has_16_bits } })
    }

    /// How many of these rows are converted in one call of `make`.
    pub(super) fn rows_at_once(self, frames: &Frames, rows: usize, input: &Planes<'_>) -> usize {
        match (self, frames.is_upside_down(0, input)) {
            (Self::Planar(_) | Self::BiPlanar(_), false) => rows,
            // A row without a partner for its chroma goes alone: flipped with others, it would come first and take a
            // partner of theirs.
            _ if rows < BAND_ROWS && rows > 1 => rows / 2 * 2,
            _ => rows.min(BAND_ROWS),
        }
    }

    /// As for `Method`.
    pub(super) fn strip_bytes(self) -> usize {
        match self {
            Self::Deep { input: DeepInput { has_16_bits: false, .. }, .. } => 64 << 10,
            Self::Deep { .. } => 128 << 10,
            _ => 256 << 10,
        }
    }

    /// Converts these rows of the input.
    pub(super) fn make(
        self,
        frames: &Frames,
        rows: &Range<usize>,
        input: &Planes<'_>,
        target: &mut Target<'_>,
    ) {
        let (width, height) = (frames.shared_width() as u32, rows.len() as u32);
        let (matrix, range) = (matrix(frames.options.matrix), range(frames.options.range));
        match self {
            Self::Planar(convert) => with_rows(frames, rows, input, target, |rgb, stride, target| {
                let mut image = target.planar(width, height);
                convert(&mut image, rgb, stride, range, matrix, YuvConversionMode::Balanced)
            }),
            Self::BiPlanar(convert) => with_rows(frames, rows, input, target, |rgb, stride, target| {
                let mut image = target.bi_planar(width, height);
                convert(&mut image, rgb, stride, range, matrix, YuvConversionMode::Balanced)
            }),
            Self::Deep { convert, input: from } => deep(frames, rows, input, (convert, from), target),
            Self::Gray => gray(frames, rows, input, target),
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

/// Three planes for `yuv`, with rows of so many samples of luma and of each chroma.
fn planar<'a, T: Copy + std::fmt::Debug>(
    [luma, u, v]: [&'a mut [T]; 3],
    (y_stride, chroma_stride): (usize, usize),
    (width, height): (u32, u32),
) -> YuvPlanarImageMut<'a, T> {
    YuvPlanarImageMut {
        // Not more rows than there are to convert: `yuv` looks for a last one without a partner at the end.
        y_plane: BufferStoreMut::Borrowed(&mut luma[..height as usize * y_stride]),
        y_stride: y_stride as u32,
        u_plane: BufferStoreMut::Borrowed(u),
        u_stride: chroma_stride as u32,
        v_plane: BufferStoreMut::Borrowed(v),
        v_stride: chroma_stride as u32,
        width,
        height,
    }
}

impl Target<'_> {
    fn planar(&mut self, width: u32, height: u32) -> YuvPlanarImageMut<'_, u8> {
        let [luma, u, v] = &mut self.planes[..] else { unreachable!("planar formats have three planes") };
        planar([luma, u, v], (self.row_bytes[0], self.row_bytes[1]), (width, height))
    }

    fn bi_planar(&mut self, width: u32, height: u32) -> YuvBiPlanarImageMut<'_, u8> {
        let [y_plane, uv_plane] = &mut self.planes[..] else { unreachable!("nv12 has two planes") };
        YuvBiPlanarImageMut {
            // Not more rows than there are to convert: `yuv` looks for a last one without a partner at the end.
            y_plane: BufferStoreMut::Borrowed(&mut y_plane[..height as usize * self.row_bytes[0]]),
            y_stride: self.row_bytes[0] as u32,
            uv_plane: BufferStoreMut::Borrowed(uv_plane),
            uv_stride: self.row_bytes[1] as u32,
            width,
            height,
        }
    }
}

/// A thread's memory for rows on their way. It is kept, because fresh memory of that size would fault in each strip.
#[derive(Default)]
struct Scratch {
    rgb: Vec<u16>,
    luma: Vec<u16>,
    chroma: [Vec<u16>; 2],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `convert` with the rows of a packed format, their stride in bytes, and the target.
///
/// `yuv` supports no negative strides. A picture that lies upside down is converted in the order of its rows, and then the rows
/// of the output change places, while they are in a near cache.
fn with_rows(
    frames: &Frames,
    rows: &Range<usize>,
    input: &Planes<'_>,
    target: &mut Target<'_>,
    convert: impl FnOnce(&[u8], u32, &mut Target<'_>) -> Result<(), YuvError>,
) {
    let height = frames.options.height;
    let in_plane =
        if frames.options.vertical_flip { height - rows.end..height - rows.start } else { rows.clone() };
    match (input.memory(0, in_plane), u32::try_from(input.stride(0))) {
        (Some(rgb), Ok(stride)) => convert(rgb, stride, target).expect(SIZES_WERE_CHECKED),
        // `yuv` wants the padding of the last row too, and strides of 32 bits.
        _ => {
            let rgb: Vec<u8> =
                rows.clone().flat_map(|row| frames.input_row(0, row, input)).copied().collect();
            let stride = rgb.len() / rows.len();
            return convert(&rgb, stride as u32, target).expect(SIZES_WERE_CHECKED);
        }
    }
    if !frames.is_upside_down(0, input) {
        return;
    }
    for (index, plane) in frames.options.output.planes().iter().enumerate() {
        let row_bytes = target.row_bytes[index];
        let made = plane.rows_of(rows.len()) * row_bytes;
        let (above, below) = target.planes[index][..made].split_at_mut(made / row_bytes / 2 * row_bytes);
        for (row, other) in above.chunks_exact_mut(row_bytes).zip(below.chunks_exact_mut(row_bytes).rev()) {
            row.swap_with_slice(other);
        }
    }
}

impl Scratch {
    /// Widens the rows to 14 bits a channel.
    fn gather(&mut self, frames: &Frames, rows: &Range<usize>, input: &Planes<'_>, from: DeepInput) {
        let row_samples = frames.shared_width() * from.channels;
        self.rgb.resize(rows.len() * row_samples, 0);
        for (row, wide) in rows.clone().zip(self.rgb.chunks_exact_mut(row_samples)) {
            let row = frames.input_row(0, row, input);
            if from.has_16_bits {
                let samples = row.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair));
                // Subtracting 3 / 65,535 and dividing by 4 equals dividing by 4.0002: a 64th of a code value of 10 bits
                // away, and no division.
                wide.iter_mut().zip(samples).for_each(|(wide, of)| *wide = (of - (of >> 14) + 2) >> 2);
            } else {
                let scale = ByteScale::new(0, DEEP_WHITE);
                wide.iter_mut().zip(row).for_each(|(wide, of)| *wide = scale.of(*of));
            }
        }
    }
}

/// Converts through 14 bits a sample: more precise than either side. `yuv` 0.8.20 has 16 bits as well, but there white
/// of the full range overflows to 0.
fn deep(
    frames: &Frames,
    rows: &Range<usize>,
    input: &Planes<'_>,
    (convert, from): (Planar16, DeepInput),
    target: &mut Target<'_>,
) {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.gather(frames, rows, input, from);
        let Scratch { rgb, luma, chroma: [u, v], .. } = scratch;
        let (width, height) = (frames.shared_width(), rows.len());
        let (columns, lines) = frames.options.output.subsampling();
        let (chroma_width, chroma_height) = (width.div_ceil(columns), height.div_ceil(lines));
        luma.resize(width * height, 0);
        u.resize(chroma_width * chroma_height, 0);
        v.resize(chroma_width * chroma_height, 0);
        let mut image = planar([luma, u, v], (width, chroma_width), (width as u32, height as u32));
        let range = range(frames.options.range);
        let blue_first = frames.options.input.is_blue_first();
        let matrix = deep_matrix(frames.options.matrix, blue_first);
        convert(&mut image, rgb, (width * from.channels) as u32, range, matrix).expect(SIZES_WERE_CHECKED);
        let (u, v) = if blue_first { (v, u) } else { (u, v) };
        let (luma_round, chroma_round) = rounds(frames.options.range, frames.options.output.bits());
        let luma_bytes = target.row_bytes[0];
        for (made, row) in luma.chunks_exact(width).zip(target.planes[0].chunks_exact_mut(luma_bytes)) {
            narrow(made, luma_round, row);
        }
        if frames.options.output == Nv12 {
            let pairs = target.planes[1].as_chunks_mut::<2>().0;
            for ((u, v), pair) in u.iter().zip(&*v).zip(pairs) {
                *pair = [chroma_round.of(*u) as u8, chroma_round.of(*v) as u8];
            }
        } else {
            narrow(u, chroma_round, target.planes[1]);
            narrow(v, chroma_round, target.planes[2]);
        }
    });
}

/// With 14 bits, `yuv` expects red first. For blue first, the weights of the two colors in luma are exchanged, and
/// so are the two planes of chroma.
fn deep_matrix(of: Matrix, blue_first: bool) -> YuvStandardMatrix {
    let matrix = matrix(of);
    let parts = matrix.get_kr_kb();
    if blue_first { YuvStandardMatrix::Custom(parts.kb, parts.kr) } else { matrix }
}

/// How luma and chroma of 14 bits are rounded to the output's. In the limited range, code values of n bits are those of
/// 8 bits times 2^(n-8). In the full range, white is 2^n - 1, and neutral chroma still 2^(n-1) (ITU-T H.273, 8.3).
fn rounds(range: ColorRange, bits: u32) -> (Round, Round) {
    let shrinks = if range == ColorRange::Full { -1 } else { 0 };
    let luma = Round { bits, zero: 0, shrinks };
    (luma, Round { zero: 1 << (DEEP_BITS - 1), ..luma })
}

fn narrow(samples: &[u16], round: Round, output: &mut [u8]) {
    lay_out(samples.iter().map(|sample| round.of(*sample)), round.bits, output);
}

/// Writes samples as bytes, or as pairs of bytes where they have more than 8 bits.
fn lay_out(samples: impl Iterator<Item = u16>, bits: u32, output: &mut [u8]) {
    if bits == 8 {
        output.iter_mut().zip(samples).for_each(|(byte, sample)| *byte = sample as u8);
    } else {
        let pairs = output.as_chunks_mut::<2>().0;
        pairs.iter_mut().zip(samples).for_each(|(pair, sample)| *pair = sample.to_le_bytes());
    }
}

/// Converts gray to luma of the range, with neutral chroma.
fn gray(frames: &Frames, rows: &Range<usize>, input: &Planes<'_>, target: &mut Target<'_>) {
    let output_bits = frames.options.output.bits();
    let scale = match frames.options.range {
        ColorRange::Limited => ByteScale::new(16 << (output_bits - 8), 235 << (output_bits - 8)),
        ColorRange::Full => ByteScale::new(0, (1 << output_bits) - 1),
    };
    let luma_bytes = target.row_bytes[0];
    for (row, made) in rows.clone().zip(target.planes[0].chunks_exact_mut(luma_bytes)) {
        let grays = &frames.input_row(0, row, input)[..frames.shared_width()];
        lay_out(grays.iter().map(|gray| scale.of(*gray)), output_bits, made);
    }
    for chroma in &mut target.planes[1..] {
        if output_bits == 8 {
            chroma.fill(128);
        } else {
            chroma.as_chunks_mut::<2>().0.fill((1_u16 << (output_bits - 1)).to_le_bytes());
        }
    }
}
