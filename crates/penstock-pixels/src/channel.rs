//! The samples of RGB, in the arithmetic of their depth.

use super::factors::{Factors, FloatUnits, Scales, Units};
use super::levels::TO_INTEGER;
use super::rows::BLOCK;
#[cfg(target_arch = "x86_64")]
use super::rows::Rows;
#[cfg(target_arch = "x86_64")]
use super::{avx2_deep, avx2_pixels};

/// A sample of the output, and its arithmetic.
pub(super) trait Channel: Copy + Default {
    type Luma;
    type Factor: Copy;
    /// What luma and chroma add to the output. Zero is its middle.
    type Part: Copy + Default;

    fn factors(scales: &Scales) -> &Factors<Self::Luma, Self::Factor>;
    fn luma(sample: i16, luma: &Self::Luma) -> Self::Part;
    /// What a sample of chroma adds to its own channel, but for what [`Channel::cut`] does.
    fn own(sample: i16, factor: Self::Factor, luma: &Self::Luma) -> Self::Part;
    fn green(samples: [i16; 2], factors: [Self::Factor; 2], luma: &Self::Luma) -> Self::Part;
    /// The nearest sample, within the range of samples. The sample is that of the channel's own chroma.
    fn cut(luma: Self::Part, sample: i16, chroma: Self::Part, units: &Self::Luma) -> Self;
    fn lay_out<const CHANNELS: usize>(channels: &[[Self; BLOCK]; 3], pixels: &mut [u8]);
    /// Converts so many blocks of columns; the last one ends with the row.
    ///
    /// # Safety
    ///
    /// The processor has AVX2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn rows_by_avx2<
        const BYTES: usize,
        const COLUMNS: usize,
        const STEP: usize,
        const CHANNELS: usize,
    >(
        rows: &Rows<'_>,
        blocks: usize,
        scales: &Scales,
        output: &mut [u8],
    );
}

/// In parts of a level so small that luma and green's chroma just fit in 16 bits. Red's and blue's chroma does not: it is its sample, of
/// 16 bits, and a product of the same sign. Both are added to luma in turn, and a sum that doesn't fit is beyond black or white anyway.
/// Products are rounded, as processors do it with 16 bits at once.
impl Channel for u8 {
    type Luma = Units;
    type Factor = i16;
    type Part = i16;

    fn factors(scales: &Scales) -> &Factors<Units, i16> {
        &scales.narrow
    }
    #[inline(always)]
    fn luma(sample: i16, units: &Units) -> i16 {
        let sample = sample as u16 ^ 0x8000;
        (((u32::from(sample) * u32::from(units.scale)) >> 16) as u16 as i16).wrapping_sub(units.middle)
    }
    #[inline(always)]
    fn own(sample: i16, factor: i16, _units: &Units) -> i16 {
        rounded(sample, factor)
    }
    #[inline(always)]
    fn green([first, last]: [i16; 2], factors: [i16; 2], _units: &Units) -> i16 {
        rounded(first, factors[0]) + rounded(last, factors[1])
    }
    #[inline(always)]
    fn cut(luma: i16, sample: i16, chroma: i16, units: &Units) -> u8 {
        let sum = luma.saturating_add(sample).saturating_add(chroma);
        (rounded(sum, units.back).clamp(-128, 127) as u8) ^ 0x80
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize>(channels: &[[u8; BLOCK]; 3], pixels: &mut [u8]) {
        for (index, pixel) in pixels.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, byte) in pixel.iter_mut().enumerate() {
                *byte = channels.get(channel).map_or(255, |samples| samples[index]);
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn rows_by_avx2<
        const BYTES: usize,
        const COLUMNS: usize,
        const STEP: usize,
        const CHANNELS: usize,
    >(
        rows: &Rows<'_>,
        blocks: usize,
        scales: &Scales,
        output: &mut [u8],
    ) {
        avx2_pixels::rows::<BYTES, COLUMNS, STEP, CHANNELS>(rows, blocks, Self::factors(scales), output);
    }
}

/// A product of 16 bits times 2^-15.
#[inline(always)]
fn rounded(sample: i16, factor: i16) -> i16 {
    ((i32::from(sample) * i32::from(factor) + (1 << 14)) >> 15) as i16
}

/// In floats, whose products are added in one order. They are less than 0.01 of a level off.
impl Channel for u16 {
    type Luma = FloatUnits;
    type Factor = f32;
    type Part = f32;

    fn factors(scales: &Scales) -> &Factors<FloatUnits, f32> {
        &scales.deep
    }
    #[inline(always)]
    fn luma(sample: i16, units: &FloatUnits) -> f32 {
        product(sample, units.factor)
    }
    #[inline(always)]
    fn own(sample: i16, factor: f32, units: &FloatUnits) -> f32 {
        product(sample, factor) + units.middle
    }
    #[inline(always)]
    fn green([first, last]: [i16; 2], factors: [f32; 2], units: &FloatUnits) -> f32 {
        product(first, factors[0]) + product(last, factors[1]) + units.middle
    }
    #[inline(always)]
    fn cut(luma: f32, _sample: i16, chroma: f32, _units: &FloatUnits) -> u16 {
        let sum = luma + chroma;
        let above = if sum > -32768.0 { sum } else { -32768.0 };
        let within = if above < 32767.0 { above } else { 32767.0 };
        (within + TO_INTEGER).to_bits() as u16 ^ 0x8000
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize>(channels: &[[u16; BLOCK]; 3], pixels: &mut [u8]) {
        let samples = pixels.as_chunks_mut::<2>().0;
        for (index, pixel) in samples.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, sample) in pixel.iter_mut().enumerate() {
                *sample = channels.get(channel).map_or(65535, |samples| samples[index]).to_le_bytes();
            }
        }
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn rows_by_avx2<
        const BYTES: usize,
        const COLUMNS: usize,
        const STEP: usize,
        const CHANNELS: usize,
    >(
        rows: &Rows<'_>,
        blocks: usize,
        scales: &Scales,
        output: &mut [u8],
    ) {
        avx2_deep::rows::<BYTES, COLUMNS, STEP, CHANNELS>(rows, blocks, Self::factors(scales), output);
    }
}

#[inline(always)]
fn product(sample: i16, factor: f32) -> f32 {
    f32::from(sample >> 6) * factor
}
