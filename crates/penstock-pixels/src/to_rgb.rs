//! YUV and gray to RGB, and YUV to gray.
//!
//! These are plain loops over blocks, which compilers vectorize. AVX2 has code of its own, which makes the same.

use std::ops::Range;

use super::channel::Channel;
use super::factors::Scales;
use super::format::PixelFormat;
use super::planes::Planes;
use super::rows::{BLOCK, Rows};
use super::strip::{Frames, Target};

/// Converts the whole blocks of rows, and the last columns if [`overlaps`] says so.
type Kernel = fn(&Rows<'_>, &Scales, &mut [u8]);

/// The conversion from YUV or gray.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToRgb {
    kernel: Kernel,
    has_chroma: bool,
}

impl ToRgb {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        use PixelFormat::{Gray, Nv12, Yuv420p, Yuv420p10, Yuv422p, Yuv422p10, Yuv444p, Yuv444p10};
        let to_gray = output == Gray;
        let kernel = match input {
            Yuv420p | Yuv422p | Yuv444p | Nv12 if to_gray => run::<1, 0, 1, u8, 1> as Kernel,
            Yuv420p10 | Yuv422p10 | Yuv444p10 if to_gray => run::<2, 0, 1, u8, 1>,
            Gray => kernel_to::<1, 0, 1>(output)?,
            Yuv444p => kernel_to::<1, 1, 1>(output)?,
            Yuv420p | Yuv422p => kernel_to::<1, 2, 1>(output)?,
            Nv12 => kernel_to::<1, 2, 2>(output)?,
            Yuv444p10 => kernel_to::<2, 1, 1>(output)?,
            Yuv420p10 | Yuv422p10 => kernel_to::<2, 2, 1>(output)?,
            _ => return None,
        };
        Some(Self { kernel, has_chroma: !to_gray && input != Gray })
    }

    /// Converts these rows of the output, which begin at an even row.
    pub(super) fn make(
        self,
        frames: &Frames,
        rows: &Range<usize>,
        input: &Planes<'_>,
        target: &mut Target<'_>,
    ) {
        let scales = Scales::new(&frames.options);
        let planes = frames.options.input.planes();
        let (columns, shared_by) = if self.has_chroma { (planes[1].columns, planes[1].rows) } else { (0, 1) };
        let width = frames.options.width;
        let made = target.planes[0].chunks_mut(shared_by * target.row_bytes[0]);
        for (first, made) in rows.clone().step_by(shared_by).zip(made) {
            let luma = [first, (first + 1).min(rows.end - 1)].map(|row| frames.input_row(0, row, input));
            let luma = &luma[..shared_by.min(rows.end - first)];
            let (chroma, places) = self.chroma(frames, first / shared_by, input);
            let shared = Rows { width, luma, chroma, places };
            (self.kernel)(&shared, &scales, made);
            if !width.is_multiple_of(BLOCK) && !overlaps(width, columns) {
                self.make_rest(&shared, &scales, made);
            }
        }
    }

    /// Converts the last columns, which are less than a block, padded to one.
    fn make_rest(self, shared: &Rows<'_>, scales: &Scales, made: &mut [u8]) {
        let width = shared.width;
        let (rest, whole) = (width % BLOCK, width / BLOCK * BLOCK);
        let padded = |row: &[u8]| {
            let mut padded = [0; 2 * BLOCK];
            let row = &row[row.len() * whole / width..];
            padded[..row.len()].copy_from_slice(row);
            padded
        };
        let block_bytes = BLOCK * shared.luma[0].len() / width;
        let chroma = shared.chroma.map(padded);
        let chroma = chroma.each_ref().map(|row| &row[..]);
        let row_bytes = made.len() / shared.luma.len();
        let pixel_bytes = row_bytes / width;
        for (luma, row) in shared.luma.iter().zip(made.chunks_exact_mut(row_bytes)) {
            let mut pixels = [0; 8 * BLOCK];
            let luma = &padded(luma)[..block_bytes];
            let shared = Rows { width: BLOCK, luma: &[luma], chroma, places: shared.places };
            (self.kernel)(&shared, scales, &mut pixels[..BLOCK * pixel_bytes]);
            row[whole * pixel_bytes..].copy_from_slice(&pixels[..rest * pixel_bytes]);
        }
    }

    /// A row of chroma: that of the first channel, and that of the last.
    fn chroma<'a>(self, frames: &Frames, row: usize, input: &Planes<'a>) -> ([&'a [u8]; 2], [usize; 2]) {
        if !self.has_chroma {
            return ([&[], &[]], [0, 0]);
        }
        let u = frames.input_row(1, row, input);
        let is_interleaved = frames.options.input.planes().len() == 2;
        let v = if is_interleaved { u } else { frames.input_row(2, row, input) };
        // Red is made with V, blue with U.
        if frames.options.output.is_blue_first() { ([u, v], [0, 1]) } else { ([v, u], [1, 0]) }
    }
}

/// Whether the last columns of a row, if they are less than a block, are made in a block that begins before them, where a
/// sample of chroma stands for so many columns. Otherwise they are padded, which takes longer.
fn overlaps(width: usize, columns: usize) -> bool {
    width >= BLOCK && (columns < 2 || width.is_multiple_of(columns))
}

fn kernel_to<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(
    output: PixelFormat,
) -> Option<Kernel> {
    use PixelFormat::{Bgr0, Bgr24, Bgra, Rgb0, Rgb24, Rgb48, Rgba, Rgba64};
    match output {
        Rgb24 | Bgr24 => Some(run::<BYTES, COLUMNS, STEP, u8, 3>),
        Rgba | Bgra | Rgb0 | Bgr0 => Some(run::<BYTES, COLUMNS, STEP, u8, 4>),
        Rgb48 => Some(run::<BYTES, COLUMNS, STEP, u16, 3>),
        Rgba64 => Some(run::<BYTES, COLUMNS, STEP, u16, 4>),
        _ => None,
    }
}

/// A [`Kernel`] for samples of `BYTES`, where one of chroma stands for `COLUMNS` pixels of a row (0: there is none), and the next of
/// its kind is `STEP` further.
fn run<const BYTES: usize, const COLUMNS: usize, const STEP: usize, C: Channel, const CHANNELS: usize>(
    rows: &Rows<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    let blocks = if overlaps(rows.width, COLUMNS) { rows.width.div_ceil(BLOCK) } else { rows.width / BLOCK };
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { C::rows_by_avx2::<BYTES, COLUMNS, STEP, CHANNELS>(rows, blocks, scales, output) };
    }
    run_plain::<BYTES, COLUMNS, STEP, C, CHANNELS>(rows, blocks, scales, output);
}

/// The same, of so many blocks, without code for a kind of processor.
fn run_plain<
    const BYTES: usize,
    const COLUMNS: usize,
    const STEP: usize,
    C: Channel,
    const CHANNELS: usize,
>(
    rows: &Rows<'_>,
    blocks: usize,
    scales: &Scales,
    output: &mut [u8],
) {
    let luma_bytes = BLOCK * BYTES;
    let chroma_bytes = (BLOCK * BYTES * STEP).checked_div(COLUMNS).unwrap_or(0);
    let pixel_bytes = BLOCK * CHANNELS * size_of::<C>();
    let row_bytes = output.len() / rows.luma.len();
    for block in 0..blocks {
        let first = (block * BLOCK).min(rows.width - BLOCK);
        let first_chroma = (first * BYTES * STEP).checked_div(COLUMNS).unwrap_or(0);
        let chroma = rows.chroma.map(|row| &row[first_chroma..][..chroma_bytes]);
        let chroma = Chroma::new::<BYTES, COLUMNS, STEP>(chroma, rows.places, scales);
        for (luma, row) in rows.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            let luma = &luma[first * BYTES..][..luma_bytes];
            let pixels = &mut row[first * CHANNELS * size_of::<C>()..][..pixel_bytes];
            make_pixels::<BYTES, C, CHANNELS>(luma, &chroma, scales, pixels);
        }
    }
}

/// A sample as signed 16 bits: half of its code values is 0.
#[inline(always)]
fn sample<const BYTES: usize>(bytes: &[u8], index: usize) -> i16 {
    let aligned = if BYTES == 1 {
        u16::from(bytes[index]) << 8
    } else {
        u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]) << 6
    };
    (aligned ^ 0x8000) as i16
}

/// Two neighbouring samples of 8 bits, by one load: compilers do not vectorize loads of every second byte.
#[inline(always)]
fn pair_of_samples(bytes: &[u8], index: usize) -> (i16, i16) {
    let pair = u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]);
    (((pair << 8) ^ 0x8000) as i16, ((pair & 0xFF00) ^ 0x8000) as i16)
}

/// The chroma of each pixel of a block.
struct Chroma<C: Channel> {
    /// The samples that belong to the first channel and to the last.
    samples: [[i16; BLOCK]; 2],
    /// What it adds to each channel.
    parts: [[C::Part; BLOCK]; 3],
}

impl<C: Channel> Chroma<C> {
    /// Separate loops, because compilers do not vectorize a single one.
    #[inline(always)]
    fn new<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(
        chroma: [&[u8]; 2],
        places: [usize; 2],
        scales: &Scales,
    ) -> Self {
        let factors = C::factors(scales);
        let neutral = C::green([0; 2], factors.green, &factors.luma);
        let mut made = Self { samples: [[0; BLOCK]; 2], parts: [[neutral; BLOCK]; 3] };
        if COLUMNS == 0 {
            return made;
        }
        let count = BLOCK / COLUMNS;
        let mut samples = [[0; BLOCK]; 2];
        let mut products = [[C::Part::default(); BLOCK]; 3];
        let [ones, others] = &mut samples;
        for (index, (one, other)) in ones.iter_mut().zip(others).enumerate().take(count) {
            (*one, *other) = if STEP == 1 {
                (sample::<BYTES>(chroma[0], index), sample::<BYTES>(chroma[1], index))
            } else {
                pair_of_samples(chroma[0], index)
            };
        }
        let [firsts, lasts] = if STEP == 1 { [0, 1] } else { places }.map(|place| &samples[place]);
        for index in 0..count {
            let (first, last) = (firsts[index], lasts[index]);
            products[0][index] = C::own(first, factors.own[0], &factors.luma);
            products[1][index] = C::green([first, last], factors.green, &factors.luma);
            products[2][index] = C::own(last, factors.own[1], &factors.luma);
        }
        spread::<_, COLUMNS>(firsts, &mut made.samples[0]);
        spread::<_, COLUMNS>(lasts, &mut made.samples[1]);
        for (products, parts) in products.iter().zip(&mut made.parts) {
            spread::<_, COLUMNS>(products, parts);
        }
        made
    }
}

/// Each for so many columns.
#[inline(always)]
fn spread<T: Copy, const COLUMNS: usize>(few: &[T; BLOCK], all: &mut [T; BLOCK]) {
    for index in 0..BLOCK / COLUMNS {
        for column in 0..COLUMNS {
            all[index * COLUMNS + column] = few[index];
        }
    }
}

#[inline(always)]
fn make_pixels<const BYTES: usize, C: Channel, const CHANNELS: usize>(
    luma: &[u8],
    chroma: &Chroma<C>,
    scales: &Scales,
    pixels: &mut [u8],
) {
    let factors = C::factors(scales);
    let mut sums = [C::Part::default(); BLOCK];
    for (index, sum) in sums.iter_mut().enumerate() {
        *sum = C::luma(sample::<BYTES>(luma, index), &factors.luma);
    }
    let mut channels = [[C::default(); BLOCK]; 3];
    let [first, green, last] = &mut channels;
    let cut = |samples: &[i16; BLOCK], parts: &[C::Part; BLOCK], channel: &mut [C; BLOCK]| {
        for index in 0..BLOCK {
            channel[index] = C::cut(sums[index], samples[index], parts[index], &factors.luma);
        }
    };
    cut(&chroma.samples[0], &chroma.parts[0], first);
    if CHANNELS > 1 {
        cut(&chroma.samples[1], &chroma.parts[2], last);
        cut(&[0; BLOCK], &chroma.parts[1], green);
    }
    C::lay_out::<CHANNELS>(&channels, pixels);
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::options::{ConversionOptions, Matrix, Range};
    use super::*;
    use crate::PixelFormat;

    fn is_same<
        const BYTES: usize,
        const COLUMNS: usize,
        const STEP: usize,
        C: Channel,
        const CHANNELS: usize,
    >(
        input: PixelFormat,
        output: PixelFormat,
    ) {
        let mut seed = 1_u32;
        let mut row = |bytes: usize| -> Vec<u8> {
            (0..bytes)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Extremes overflow first.
                    [0, 255, (seed >> 16) as u8, (seed >> 16) as u8][(seed >> 30) as usize]
                })
                .collect()
        };
        for (width, matrix, range) in
            [(BLOCK * 3, Matrix::Bt2020, Range::Limited), (282, Matrix::Bt601, Range::Full)]
        {
            let options = ConversionOptions::new(input, output, width, 2).matrix(matrix).range(range);
            let scales = Scales::new(&options);
            let (above, below) = (row(width * BYTES), row(width * BYTES));
            let chroma_bytes = (width * BYTES * STEP).checked_div(COLUMNS).unwrap_or(0);
            let chroma = [row(chroma_bytes), row(chroma_bytes)];
            let luma = [&above[..], &below[..]];
            let luma = &luma[..if COLUMNS == 2 { 2 } else { 1 }];
            let rows = Rows { width, luma, chroma: chroma.each_ref().map(|row| &row[..]), places: [1, 0] };
            let mut with = vec![0; luma.len() * width * CHANNELS * size_of::<C>()];
            let mut without = with.clone();
            let blocks = width.div_ceil(BLOCK);
            // SAFETY: the only caller of all has seen to it that the processor has AVX2.
            unsafe {
                C::rows_by_avx2::<BYTES, COLUMNS, STEP, CHANNELS>(&rows, blocks, &scales, &mut with);
            }
            run_plain::<BYTES, COLUMNS, STEP, C, CHANNELS>(&rows, blocks, &scales, &mut without);
            assert!(with == without, "{input:?} to {output:?}, {width} columns");
        }
    }

    fn all_are_same<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(input: PixelFormat) {
        is_same::<BYTES, COLUMNS, STEP, u8, 1>(input, PixelFormat::Gray);
        is_same::<BYTES, COLUMNS, STEP, u8, 3>(input, PixelFormat::Rgb24);
        is_same::<BYTES, COLUMNS, STEP, u8, 4>(input, PixelFormat::Bgra);
        is_same::<BYTES, COLUMNS, STEP, u16, 3>(input, PixelFormat::Rgb48);
        is_same::<BYTES, COLUMNS, STEP, u16, 4>(input, PixelFormat::Rgba64);
    }

    /// Tests of the crate's interface see only one of the two, by processor.
    #[test]
    fn pixels_are_the_same_with_and_without_avx2() {
        if !std::arch::is_x86_feature_detected!("avx2") {
            eprintln!("skipped: the processor has no AVX2");
            return;
        }
        all_are_same::<1, 0, 1>(PixelFormat::Gray);
        all_are_same::<1, 1, 1>(PixelFormat::Yuv444p);
        all_are_same::<1, 2, 1>(PixelFormat::Yuv420p);
        all_are_same::<1, 2, 2>(PixelFormat::Nv12);
        all_are_same::<2, 1, 1>(PixelFormat::Yuv444p10);
        all_are_same::<2, 2, 1>(PixelFormat::Yuv420p10);
    }
}
