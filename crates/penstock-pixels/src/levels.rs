//! The samples of YUV: how much each channel of RGB adds, and in which arithmetic.

use std::marker::PhantomData;
use std::num::Wrapping;
use std::ops::Add;

use super::options::ConversionOptions;

/// Pixels that are converted at once. Measured: with 64, the set-up of each takes a tenth of the time.
pub(super) const BLOCK: usize = 128;

/// Pixels of a block whose channels plain loops split from each other at once.
pub(super) const PART: usize = 64;

/// Bytes that may be read after a block, and are ignored.
pub(super) const BEYOND: usize = 16;

/// The exact share of each channel of the input in luma and in both chromas, in levels of the output a level of the input.
pub(super) struct Weights {
    luma: [f64; 3],
    chroma: [[f64; 3]; 2],
    black: f64,
    neutral: f64,
    peak: u16,
}

impl Weights {
    /// ITU-T H.273, 8.3. Channels are in the order of the input's bytes.
    pub(super) fn new(options: &ConversionOptions) -> Self {
        let bits = options.output.bits();
        let (black, luma, chroma) = options.range.levels(bits);
        let (kr, kb) = options.matrix.red_and_blue();
        let kg = 1.0 - kr - kb;
        let white = f64::from(options.input.channel_peak());
        let in_order = |[red, green, blue]: [f64; 3], scale: u16| {
            let factors = if options.input.is_blue_first() { [blue, green, red] } else { [red, green, blue] };
            factors.map(|factor| factor * f64::from(scale) / white)
        };
        let (u, v) = (2.0 * (1.0 - kb), 2.0 * (1.0 - kr));
        Self {
            luma: in_order([kr, kg, kb], luma),
            chroma: [in_order([-kr / u, -kg / u, 0.5], chroma), in_order([0.5, -kg / v, -kb / v], chroma)],
            black: f64::from(black),
            neutral: f64::from(1_u16 << (bits - 1)),
            peak: (1 << bits) - 1,
        }
    }
}

/// [`Weights`] in an arithmetic.
pub(super) struct Levels<A: Arithmetic + ?Sized> {
    pub(super) luma: [A::Factor; 3],
    /// Those of sums of pixels.
    pub(super) chroma: [[A::Factor; 3]; 2],
    /// What is added to the products, in luma and in chroma.
    pub(super) black: A::Sum,
    pub(super) neutral: A::Sum,
    pub(super) peak: i32,
}

/// How samples are made of channels.
pub(super) trait Arithmetic {
    /// A channel of a pixel, or the sum of some.
    type Wide: Copy + Default + From<u16> + Add<Output = Self::Wide>;
    type Factor: Copy;
    type Sum: Copy + Add<Output = Self::Sum>;
    /// The sample that is made.
    type Made: Output;

    /// The weights, where chroma is made of the sum of so many pixels.
    fn levels(weights: &Weights, pixels: usize) -> Levels<Self>;
    /// A share of a sum of so many pixels.
    fn product(channel: Self::Wide, factor: Self::Factor, pixels: usize) -> Self::Sum;
    /// The nearest level to a sum of so many pixels.
    fn level(sum: Self::Sum, pixels: usize, peak: i32) -> Self::Made;
}

/// From 8 bits to 8 bits, in 256ths of a level. Each of three products is truncated, and its factor rounded: together, they are less
/// than 2.5 units off, 0.01 of a level. The upper half of a product is what processors make of 16 bits at once.
pub(super) struct Words;

impl Arithmetic for Words {
    type Wide = u16;
    type Factor = i32;
    /// It wraps around on its way.
    type Sum = Wrapping<u16>;
    type Made = u8;

    fn levels(weights: &Weights, _pixels: usize) -> Levels<Self> {
        let factor = |share: f64| (share * f64::from(1 << 16)).round() as i32;
        let [first, _, last] = weights.luma.map(factor);
        // White is exact.
        let green = factor(weights.luma.iter().sum()) - first - last;
        let chroma = weights.chroma.map(|channels| channels.map(factor));
        let own = Self::product(255, chroma[0][0].max(chroma[0][2]), 1);
        let half = 1 << 7;
        // With what truncation takes from three products on average.
        let black = Wrapping(((weights.black as u16) << 8) + half + 1);
        // What truncation takes from one product, it adds by the others. Blue and red of the full range end half a level above
        // the last level.
        let neutral = Wrapping((((weights.neutral as u16) << 8) + half).min(u16::MAX - own.0));
        Levels { luma: [first, green, last], chroma, black, neutral, peak: i32::from(weights.peak) }
    }
    #[inline(always)]
    fn product(channel: u16, factor: i32, pixels: usize) -> Wrapping<u16> {
        let aligned = channel << (8 - pixels.ilog2());
        let product = (u32::from(aligned) * u32::from(factor.unsigned_abs() as u16)) >> 16;
        let product = Wrapping(product as u16);
        if factor < 0 { -product } else { product }
    }
    #[inline(always)]
    fn level(sum: Wrapping<u16>, _pixels: usize, _peak: i32) -> u8 {
        (sum.0 >> 8) as u8
    }
}

/// From 8 bits to 10 bits, in integers. With 18 bits of a level, three factors are less than 0.01 of a level off for white, and the
/// sum of four pixels is less than 2^31.
pub(super) struct Integers;

impl Integers {
    pub(super) const FRACTION_BITS: u32 = 18;
}

impl Arithmetic for Integers {
    type Wide = i32;
    type Factor = i32;
    type Sum = i32;
    type Made = u16;

    fn levels(weights: &Weights, pixels: usize) -> Levels<Self> {
        let one = f64::from(1 << Self::FRACTION_BITS);
        let factor = |share: f64| (share * one).round() as i32;
        // With a half, so that truncation rounds.
        let zero = |level: f64, pixels: usize| ((level + 0.5) * pixels as f64 * one) as i32;
        Levels {
            luma: weights.luma.map(factor),
            chroma: weights.chroma.map(|channels| channels.map(factor)),
            black: zero(weights.black, 1),
            neutral: zero(weights.neutral, pixels),
            peak: i32::from(weights.peak),
        }
    }
    #[inline(always)]
    fn product(channel: i32, factor: i32, _pixels: usize) -> i32 {
        channel * factor
    }
    /// Blue and red of the full range end half a level above the last one.
    #[inline(always)]
    fn level(sum: i32, pixels: usize, peak: i32) -> u16 {
        (sum >> (Self::FRACTION_BITS + pixels.ilog2())).min(peak) as u16
    }
}

/// From 16 bits, for which integers of 32 bits are too coarse: 0.06 of a level. Floats are within 0.001, and no compiler may add
/// their products in another order or without rounding, so all processors make the same.
pub(super) struct Floats<O>(PhantomData<O>);

/// Added to a number from -2^22 to 2^22, it leaves the nearest integer in the lowest bits of a float.
pub(super) const TO_INTEGER: f32 = (3 << 22) as f32;

impl<O: Output> Arithmetic for Floats<O> {
    /// The sum of four pixels is exact.
    type Wide = f32;
    type Factor = f32;
    type Sum = f32;
    type Made = O;

    fn levels(weights: &Weights, pixels: usize) -> Levels<Self> {
        Levels {
            luma: weights.luma.map(|share| share as f32),
            chroma: weights.chroma.map(|channels| channels.map(|share| (share / pixels as f64) as f32)),
            black: weights.black as f32,
            neutral: weights.neutral as f32,
            peak: i32::from(weights.peak),
        }
    }
    #[inline(always)]
    fn product(channel: f32, factor: f32, _pixels: usize) -> f32 {
        channel * factor
    }
    #[inline(always)]
    fn level(sum: f32, _pixels: usize, peak: i32) -> O {
        let level = (sum + TO_INTEGER).to_bits() - TO_INTEGER.to_bits();
        O::of((level as i32).min(peak) as u16)
    }
}

/// A sample of the input.
pub(super) trait Input {
    fn of(sample: &[u8]) -> u16;
}

impl Input for u8 {
    #[inline(always)]
    fn of(sample: &[u8]) -> u16 {
        u16::from(sample[0])
    }
}

impl Input for u16 {
    #[inline(always)]
    fn of(sample: &[u8]) -> u16 {
        u16::from_le_bytes([sample[0], sample[1]])
    }
}

/// A sample of the output.
pub(super) trait Output: Copy + Default {
    fn of(level: u16) -> Self;
    fn lay_out(samples: &[Self], row: &mut [u8]);
    fn interleave(ones: &[Self], others: &[Self], row: &mut [u8]);
}

impl Output for u8 {
    #[inline(always)]
    fn of(level: u16) -> Self {
        level as u8
    }
    #[inline(always)]
    fn lay_out(samples: &[u8], row: &mut [u8]) {
        // Not a call of memcpy, which takes longer for so few.
        let (wholes, rest) = samples.as_chunks::<16>();
        let (made, made_rest) = row.as_chunks_mut::<16>();
        for (whole, made) in wholes.iter().zip(made) {
            *made = *whole;
        }
        for (sample, made) in rest.iter().zip(made_rest) {
            *made = *sample;
        }
    }
    #[inline(always)]
    fn interleave(ones: &[u8], others: &[u8], row: &mut [u8]) {
        for ((one, other), pair) in ones.iter().zip(others).zip(row.as_chunks_mut::<2>().0) {
            *pair = [*one, *other];
        }
    }
}

impl Output for u16 {
    #[inline(always)]
    fn of(level: u16) -> Self {
        level
    }
    #[inline(always)]
    fn lay_out(samples: &[u16], row: &mut [u8]) {
        for (sample, pair) in samples.iter().zip(row.as_chunks_mut::<2>().0) {
            *pair = sample.to_le_bytes();
        }
    }
    #[inline(always)]
    fn interleave(ones: &[u16], others: &[u16], row: &mut [u8]) {
        for ((one, other), pair) in ones.iter().zip(others).zip(row.as_chunks_mut::<4>().0) {
            let ([a, b], [c, d]) = (one.to_le_bytes(), other.to_le_bytes());
            *pair = [a, b, c, d];
        }
    }
}

/// What is made of a block of pixels.
pub(super) struct Samples<S> {
    pub(super) luma: [[S; BLOCK]; 2],
    pub(super) chroma: [[S; BLOCK]; 2],
}

impl<S: Output> Default for Samples<S> {
    fn default() -> Self {
        Self { luma: [[S::default(); BLOCK]; 2], chroma: [[S::default(); BLOCK]; 2] }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::{ConversionOptions, Matrix, Range};
    use super::{Arithmetic, Weights, Words};
    use crate::PixelFormat::{Rgb24, Yuv444p};

    /// How far below and above the exact sums of so many pixels those of [`Words`] are at most, in levels, with what is added.
    fn error(shares: [f64; 3], factors: [i32; 3], pixels: usize, added: f64) -> (f64, f64) {
        let channels = shares.iter().zip(factors).map(|(share, factor)| {
            let errors = (0..=255 * pixels as u16).map(|sum| {
                let product = Words::product(sum, factor, pixels).0;
                let made = if factor < 0 { -f64::from(product.wrapping_neg()) } else { f64::from(product) };
                made / 256.0 - share * f64::from(sum) / pixels as f64
            });
            errors.fold((0.0, 0.0), |(low, high): (f64, f64), error| (low.min(error), high.max(error)))
        });
        channels.fold((added, added), |(low, high), channel| (low + channel.0, high + channel.1))
    }

    #[test]
    fn sums_of_words_are_at_most_a_hundredth_of_a_level_off() {
        for (matrix, range) in [Matrix::Bt601, Matrix::Bt709, Matrix::Bt2020]
            .into_iter()
            .flat_map(|matrix| [(matrix, Range::Limited), (matrix, Range::Full)])
        {
            let options = ConversionOptions::new(Rgb24, Yuv444p, 1, 1).matrix(matrix).range(range);
            let weights = Weights::new(&options);
            let levels = Words::levels(&weights, 1);
            let black = f64::from(levels.black.0) / 256.0 - weights.black - 0.5;
            let neutral = f64::from(levels.neutral.0) / 256.0 - weights.neutral - 0.5;
            let mut errors = vec![error(weights.luma, levels.luma, 1, black)];
            for (shares, factors) in weights.chroma.into_iter().zip(levels.chroma) {
                errors.extend([1, 2, 4].map(|pixels| error(shares, factors, pixels, neutral)));
            }
            for (low, high) in errors {
                assert!(low >= -0.01 && high <= 0.01, "{matrix:?} {range:?}: {low} to {high}");
            }
        }
    }
}
