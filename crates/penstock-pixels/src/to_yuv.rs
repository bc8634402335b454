//! RGB and gray to YUV.
//!
//! Integers from 8 bits, and 32-bit floats from 16 bits, whose products are added in a fixed order: every processor makes the same
//! bytes. These are plain loops over blocks, which compilers vectorize. What they can't vectorize is written by hand for AVX2.

use std::ops::Range;

use super::format::PixelFormat::{
    self, Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p,
    Yuv422p10, Yuv444p, Yuv444p10,
};
use super::levels::{
    Arithmetic, BEYOND, BLOCK, Floats, Input, Integers, Levels, Output, PART, Samples, Weights, Words,
};
use super::planes::Planes;
use super::scale::ByteScale;
use super::strip::{Frames, Target};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx2_bytes};

/// Converts rows of the input, which begin at an even row.
type Kernel = fn(&Frames, &Range<usize>, &Planes<'_>, &mut Target<'_>);

/// The conversion to YUV.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToYuv {
    /// RGB to luma and chroma.
    Rgb(Kernel),
    /// Gray to luma, with neutral chroma.
    Gray,
}

impl ToYuv {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        let is_yuv = output.planes().len() > 1;
        let kernel = match (input, output) {
            (Gray, _) if is_yuv => return Some(Self::Gray),
            (Rgb24 | Bgr24, Yuv420p | Yuv422p | Yuv444p | Nv12) => kernel_to::<Words, u8, 3>(output),
            (Rgba | Bgra | Rgb0 | Bgr0, Yuv420p | Yuv422p | Yuv444p | Nv12) => {
                kernel_to::<Words, u8, 4>(output)
            }
            (Rgb24 | Bgr24, Yuv420p10 | Yuv422p10 | Yuv444p10) => kernel_to::<Integers, u8, 3>(output),
            (Rgba | Bgra | Rgb0 | Bgr0, Yuv420p10 | Yuv422p10 | Yuv444p10) => {
                kernel_to::<Integers, u8, 4>(output)
            }
            (Rgb48, Yuv420p | Yuv422p | Yuv444p | Nv12) => kernel_to::<Floats<u8>, u16, 3>(output),
            (Rgba64, Yuv420p | Yuv422p | Yuv444p | Nv12) => kernel_to::<Floats<u8>, u16, 4>(output),
            (Rgb48, Yuv420p10 | Yuv422p10 | Yuv444p10) => kernel_to::<Floats<u16>, u16, 3>(output),
            (Rgba64, Yuv420p10 | Yuv422p10 | Yuv444p10) => kernel_to::<Floats<u16>, u16, 4>(output),
            _ => return None,
        };
        Some(Self::Rgb(kernel))
    }

    /// Converts these rows of the input, which begin at an even row.
    pub(super) fn make(
        self,
        frames: &Frames,
        rows: &Range<usize>,
        input: &Planes<'_>,
        target: &mut Target<'_>,
    ) {
        match self {
            Self::Rgb(kernel) => kernel(frames, rows, input, target),
            Self::Gray => gray(frames, rows, input, target),
        }
    }
}

fn kernel_to<A: Blocks, I: Input, const CHANNELS: usize>(output: PixelFormat) -> Kernel {
    match (output.subsampling(), output == Nv12) {
        ((2, 2), false) => run::<A, I, CHANNELS, 2, 2, false>,
        ((2, 2), true) => run::<A, I, CHANNELS, 2, 2, true>,
        ((2, 1), _) => run::<A, I, CHANNELS, 2, 1, false>,
        _ => run::<A, I, CHANNELS, 1, 1, false>,
    }
}

/// A [`Kernel`], where a sample of chroma stands for so many columns and rows.
fn run<
    A: Blocks,
    I: Input,
    const CHANNELS: usize,
    const COLUMNS: usize,
    const ROWS: usize,
    const INTERLEAVED: bool,
>(
    frames: &Frames,
    rows: &Range<usize>,
    input: &Planes<'_>,
    target: &mut Target<'_>,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe {
            run_avx2::<A, I, CHANNELS, COLUMNS, ROWS, INTERLEAVED>(frames, rows, input, target)
        };
    }
    run_inline::<A, I, CHANNELS, COLUMNS, ROWS, INTERLEAVED, false>(frames, rows, input, target);
}

/// The same code, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<
    A: Blocks,
    I: Input,
    const CHANNELS: usize,
    const COLUMNS: usize,
    const ROWS: usize,
    const INTERLEAVED: bool,
>(
    frames: &Frames,
    rows: &Range<usize>,
    input: &Planes<'_>,
    target: &mut Target<'_>,
) {
    run_inline::<A, I, CHANNELS, COLUMNS, ROWS, INTERLEAVED, true>(frames, rows, input, target);
}

#[inline(always)]
fn run_inline<
    A: Blocks,
    I: Input,
    const CHANNELS: usize,
    const COLUMNS: usize,
    const ROWS: usize,
    const INTERLEAVED: bool,
    const AVX2: bool,
>(
    frames: &Frames,
    rows: &Range<usize>,
    input: &Planes<'_>,
    target: &mut Target<'_>,
) {
    let levels = A::levels(&Weights::new(&frames.options), COLUMNS * ROWS);
    let width = frames.shared_width();
    let pixel_bytes = CHANNELS * size_of::<I>();
    let sample_bytes = size_of::<A::Made>();
    let row_bytes = &target.row_bytes;
    let mut planes =
        target.planes.iter_mut().zip(row_bytes).map(|(plane, bytes)| plane.chunks_exact_mut(*bytes));
    let mut rows_of_plane = || planes.next().unwrap_or_else(|| [].chunks_exact_mut(1));
    let (mut lumas, mut us, mut vs) = (rows_of_plane(), rows_of_plane(), rows_of_plane());
    let mut samples = Samples::default();
    let mut padded = [[0; BLOCK * 8 + BEYOND]; 2];
    for row in rows.clone().step_by(ROWS) {
        // A row without a partner is its own, which leaves the mean as it is.
        let shared = [row, (row + ROWS).min(rows.end) - 1];
        let pixels = shared.map(|row| frames.input_row(0, row, input));
        let luma = [Some(()), (shared[1] > row).then_some(())];
        let mut luma = luma.map(|is_there| is_there.and_then(|()| lumas.next()).unwrap_or_default());
        let mut chroma = [&mut us, &mut vs].map(|rows| rows.next().unwrap_or_default());
        #[cfg(not(target_arch = "x86_64"))]
        let whole = 0;
        #[cfg(target_arch = "x86_64")]
        let whole = if AVX2 {
            A::rows_by_avx2::<CHANNELS, COLUMNS, ROWS, INTERLEAVED>(
                pixels,
                width,
                &levels,
                &mut luma,
                &mut chroma,
            )
        } else {
            0
        };
        for first in (whole..width).step_by(BLOCK) {
            let count = BLOCK.min(width - first);
            let bytes = first * pixel_bytes..(first + BLOCK) * pixel_bytes + BEYOND;
            let block = if bytes.end <= pixels[0].len() {
                pixels.map(|row| &row[bytes.clone()])
            } else {
                for (row, padded) in pixels.iter().zip(&mut padded) {
                    pad(&row[bytes.start..][..count * pixel_bytes], pixel_bytes, padded);
                }
                padded.each_ref().map(|row| &row[..(bytes.end - bytes.start)])
            };
            A::block::<I, CHANNELS, COLUMNS, ROWS, AVX2>(block, &levels, &mut samples);
            for (samples, row) in samples.luma.iter().zip(&mut luma) {
                if !row.is_empty() {
                    let row = &mut row[first * sample_bytes..][..count * sample_bytes];
                    A::Made::lay_out(&samples[..count], row);
                }
            }
            let (first, count) = (first / COLUMNS * sample_bytes, count.div_ceil(COLUMNS));
            let [u, v] = &samples.chroma;
            if INTERLEAVED {
                let pairs = &mut chroma[0][2 * first..][..2 * count * sample_bytes];
                A::Made::interleave(&u[..count], &v[..count], pairs);
            } else {
                for (samples, row) in [u, v].into_iter().zip(&mut chroma) {
                    A::Made::lay_out(&samples[..count], &mut row[first..][..count * sample_bytes]);
                }
            }
        }
    }
}

/// The last pixels of a row, and the very last once more, as the partner of its own where it has none.
#[inline(always)]
fn pad(pixels: &[u8], pixel_bytes: usize, padded: &mut [u8]) {
    padded[..pixels.len()].copy_from_slice(pixels);
    padded[pixels.len()..][..pixel_bytes].copy_from_slice(&pixels[pixels.len() - pixel_bytes..]);
}

/// A block in an arithmetic.
trait Blocks: Arithmetic + Sized {
    /// Converts columns from the left of a row, or two, and returns how many.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn rows_by_avx2<
        const CHANNELS: usize,
        const COLUMNS: usize,
        const ROWS: usize,
        const INTERLEAVED: bool,
    >(
        _pixels: [&[u8]; 2],
        _width: usize,
        _levels: &Levels<Self>,
        _luma: &mut [&mut [u8]; 2],
        _chroma: &mut [&mut [u8]; 2],
    ) -> usize {
        0
    }
    fn block<I: Input, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize, const AVX2: bool>(
        rows: [&[u8]; 2],
        levels: &Levels<Self>,
        samples: &mut Samples<Self::Made>,
    );
}

impl Blocks for Words {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn rows_by_avx2<
        const CHANNELS: usize,
        const COLUMNS: usize,
        const ROWS: usize,
        const INTERLEAVED: bool,
    >(
        pixels: [&[u8]; 2],
        width: usize,
        levels: &Levels<Self>,
        luma: &mut [&mut [u8]; 2],
        chroma: &mut [&mut [u8]; 2],
    ) -> usize {
        // SAFETY: only code for processors that have AVX2 calls it.
        unsafe {
            avx2_bytes::rows::<CHANNELS, COLUMNS, ROWS, INTERLEAVED>(pixels, width, levels, luma, chroma)
        }
    }
    #[inline(always)]
    fn block<I: Input, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize, const AVX2: bool>(
        rows: [&[u8]; 2],
        levels: &Levels<Self>,
        samples: &mut Samples<u8>,
    ) {
        plain::<Self, I, CHANNELS, COLUMNS, ROWS>(rows, levels, samples);
    }
}

impl Blocks for Integers {
    #[inline(always)]
    fn block<I: Input, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize, const AVX2: bool>(
        rows: [&[u8]; 2],
        levels: &Levels<Self>,
        samples: &mut Samples<u16>,
    ) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe { avx2::integers::<CHANNELS, COLUMNS, ROWS>(rows, levels, samples) };
        }
        plain::<Self, I, CHANNELS, COLUMNS, ROWS>(rows, levels, samples);
    }
}

/// A block, by plain loops.
#[inline(always)]
fn plain<A: Arithmetic, I: Input, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize>(
    rows: [&[u8]; 2],
    levels: &Levels<A>,
    samples: &mut Samples<A::Made>,
) {
    for first in (0..BLOCK).step_by(PART) {
        let channels = rows.map(|row| split::<A::Wide, I, CHANNELS>(&row[first * CHANNELS..]));
        part::<A, COLUMNS, ROWS>(&channels, levels, first, samples);
    }
}

impl<O: Output> Blocks for Floats<O> {
    #[inline(always)]
    fn block<I: Input, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize, const AVX2: bool>(
        rows: [&[u8]; 2],
        levels: &Levels<Self>,
        samples: &mut Samples<O>,
    ) {
        let mut channels = [[[0.0; PART]; 3]; 2];
        for first in (0..BLOCK).step_by(PART) {
            for (channels, row) in channels.iter_mut().zip(rows).take(ROWS) {
                let row = &row[first * CHANNELS * size_of::<I>()..];
                #[cfg(target_arch = "x86_64")]
                if AVX2 {
                    // SAFETY: as above.
                    unsafe { avx2::split_words::<CHANNELS>(row, channels) };
                    continue;
                }
                *channels = split::<Self::Wide, I, CHANNELS>(row);
            }
            part::<Self, COLUMNS, ROWS>(&channels, levels, first, samples);
        }
    }
}

/// The first three channels of a part of pixels that have so many.
#[inline(always)]
fn split<W: From<u16> + Copy + Default, I: Input, const CHANNELS: usize>(pixels: &[u8]) -> [[W; PART]; 3] {
    let mut channels = [[W::default(); PART]; 3];
    let pixel_bytes = CHANNELS * size_of::<I>();
    let pixels = &pixels[..PART * pixel_bytes];
    for (channel, samples) in channels.iter_mut().enumerate() {
        for (sample, pixel) in samples.iter_mut().zip(pixels.chunks_exact(pixel_bytes)) {
            *sample = W::from(I::of(&pixel[channel * size_of::<I>()..]));
        }
    }
    channels
}

#[inline(always)]
fn part<A: Arithmetic, const COLUMNS: usize, const ROWS: usize>(
    rows: &[[[A::Wide; PART]; 3]; 2],
    levels: &Levels<A>,
    first: usize,
    samples: &mut Samples<A::Made>,
) {
    for (channels, samples) in rows.iter().zip(&mut samples.luma).take(ROWS) {
        for (index, sample) in samples[first..first + PART].iter_mut().enumerate() {
            let sum = weigh::<A>(channels, index, 1, &levels.luma, levels.black);
            *sample = A::level(sum, 1, levels.peak);
        }
    }
    let mut sums = [[A::Wide::default(); PART]; 3];
    for (channel, sums) in sums.iter_mut().enumerate() {
        for index in 0..PART / COLUMNS {
            for row in &rows[..ROWS] {
                for column in 0..COLUMNS {
                    sums[index] = sums[index] + row[channel][index * COLUMNS + column];
                }
            }
        }
    }
    for (factors, samples) in levels.chroma.iter().zip(&mut samples.chroma) {
        let samples = &mut samples[first / COLUMNS..][..PART / COLUMNS];
        for (index, sample) in samples.iter_mut().enumerate() {
            let sum = weigh::<A>(&sums, index, COLUMNS * ROWS, factors, levels.neutral);
            *sample = A::level(sum, COLUMNS * ROWS, levels.peak);
        }
    }
}

/// The sum of a pixel's channels, each times its factor, always in this order.
#[inline(always)]
fn weigh<A: Arithmetic>(
    channels: &[[A::Wide; PART]; 3],
    index: usize,
    pixels: usize,
    factors: &[A::Factor; 3],
    zero: A::Sum,
) -> A::Sum {
    let [first, green, last] = channels;
    A::product(first[index], factors[0], pixels)
        + A::product(green[index], factors[1], pixels)
        + A::product(last[index], factors[2], pixels)
        + zero
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
    let (black, levels, _) = frames.options.range.levels(output_bits);
    let scale = ByteScale::new(black, black + levels);
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

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::options::{ConversionOptions, Matrix, OddSize, Range};
    use super::super::strip::Band;
    use super::*;

    /// What is made of bytes with AVX2, or without.
    fn made<
        A: Blocks,
        I: Input,
        const CHANNELS: usize,
        const COLUMNS: usize,
        const ROWS: usize,
        const INTERLEAVED: bool,
        const AVX2: bool,
    >(
        frames: &Frames,
        bytes: &[u8],
    ) -> Vec<u8> {
        let ConversionOptions { output, width, height, .. } = frames.options;
        let mut made = vec![0; output.frame_bytes(width, height).unwrap()];
        let mut band = Band::whole(frames, &mut made);
        let mut target = Target::of(frames, &(0..height), &mut band);
        let input = Planes::contiguous(frames.input_sizes(), bytes);
        run_inline::<A, I, CHANNELS, COLUMNS, ROWS, INTERLEAVED, AVX2>(
            frames,
            &(0..height),
            &input,
            &mut target,
        );
        made
    }

    fn is_same<A: Blocks, I: Input, const CHANNELS: usize>(input: PixelFormat, outputs: &[PixelFormat]) {
        let mut seed = 1_u32;
        for (output, width) in
            outputs.iter().flat_map(|output| [(*output, 258), (*output, 301), (*output, 5)])
        {
            for (range, matrix) in [(Range::Limited, Matrix::Bt2020), (Range::Full, Matrix::Bt601)] {
                let options = ConversionOptions::new(input, output, width, 31).range(range).matrix(matrix);
                let options = options.odd_size(OddSize::Keep);
                let frames = Frames { options, output_width: width, output_height: 31 };
                let bytes: Vec<u8> = (0..input.frame_bytes(width, 31).unwrap())
                    .map(|_| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        // Extremes overflow first.
                        if seed >> 30 == 0 { 255 } else { (seed >> 16) as u8 }
                    })
                    .collect();
                let (with, without) = match (output.subsampling(), output == Nv12) {
                    ((2, 2), false) => (
                        made::<A, I, CHANNELS, 2, 2, false, true>(&frames, &bytes),
                        made::<A, I, CHANNELS, 2, 2, false, false>(&frames, &bytes),
                    ),
                    ((2, 2), true) => (
                        made::<A, I, CHANNELS, 2, 2, true, true>(&frames, &bytes),
                        made::<A, I, CHANNELS, 2, 2, true, false>(&frames, &bytes),
                    ),
                    ((2, 1), _) => (
                        made::<A, I, CHANNELS, 2, 1, false, true>(&frames, &bytes),
                        made::<A, I, CHANNELS, 2, 1, false, false>(&frames, &bytes),
                    ),
                    _ => (
                        made::<A, I, CHANNELS, 1, 1, false, true>(&frames, &bytes),
                        made::<A, I, CHANNELS, 1, 1, false, false>(&frames, &bytes),
                    ),
                };
                assert!(with == without, "{input:?} to {output:?}, {width} columns, {range:?}");
            }
        }
    }

    /// Tests of the crate's interface see only one of the two, by processor.
    #[test]
    fn samples_are_the_same_with_and_without_avx2() {
        if !std::arch::is_x86_feature_detected!("avx2") {
            eprintln!("skipped: the processor has no AVX2");
            return;
        }
        let narrow = [Yuv420p, Yuv422p, Yuv444p, Nv12];
        let deep = [Yuv420p10, Yuv422p10, Yuv444p10];
        for (three, four) in [(Rgb24, Rgba), (Bgr24, Bgra)] {
            is_same::<Words, u8, 3>(three, &narrow);
            is_same::<Words, u8, 4>(four, &narrow);
            is_same::<Integers, u8, 3>(three, &deep);
            is_same::<Integers, u8, 4>(four, &deep);
        }
        is_same::<Floats<u8>, u16, 3>(Rgb48, &narrow);
        is_same::<Floats<u8>, u16, 4>(Rgba64, &narrow);
        is_same::<Floats<u16>, u16, 3>(Rgb48, &deep);
        is_same::<Floats<u16>, u16, 4>(Rgba64, &deep);
    }
}
