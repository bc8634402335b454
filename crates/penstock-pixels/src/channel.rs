//! The samples of the output: how much each sample of the input adds, and in which arithmetic.

use std::ops::Add;

use super::format::PixelFormat;
#[cfg(target_arch = "x86_64")]
use super::interleave;
use super::levels::TO_INTEGER;
use super::options::{ConversionOptions, Range as ColorRange};

/// Pixels that are converted at once. Measured: with 32, it takes 1.1 times as long.
pub(super) const BLOCK: usize = 64;

/// [`Factors`], for each depth of the output.
pub(super) struct Scales {
    narrow: Factors<u8>,
    deep: Factors<u16>,
}

/// The factors of the input's samples in the output, for an arithmetic.
pub(super) struct Factors<C: Channel> {
    pub(super) luma: C::Luma,
    /// The factors of the first channel's chroma in that channel, and of the last's.
    pub(super) own: [C::Wide; 2],
    /// The factors of both chromas in green.
    pub(super) green: [C::Wide; 2],
}

/// The exact values of the output for a level of the input, where white is 1.
pub(super) struct Shares {
    bits: u32,
    range: ColorRange,
    luma: f64,
    /// The value of luma at half of the code values.
    middle: f64,
    own: [f64; 2],
    green: [f64; 2],
}

impl Scales {
    /// ITU-T H.273, 8.3, solved for RGB.
    pub(super) fn new(options: &ConversionOptions) -> Self {
        let (bits, blue_first) = (options.input.bits(), options.output.is_blue_first());
        let is_gray = options.input == PixelFormat::Gray;
        let range = if is_gray { ColorRange::Full } else { options.range };
        let (black, luma, chroma) = range.levels(bits);
        let (luma, chroma) = (1.0 / f64::from(luma), 1.0 / f64::from(chroma));
        let (kr, kb) = options.matrix.red_and_blue();
        let (red, blue) = (2.0 * (1.0 - kr) * chroma, 2.0 * (1.0 - kb) * chroma);
        let kg = 1.0 - kr - kb;
        let in_order = |red: f64, blue: f64| if blue_first { [blue, red] } else { [red, blue] };
        let middle = f64::from((1 << (bits - 1)) - i32::from(black)) * luma;
        let (own, green) = (in_order(red, blue), in_order(-red * kr / kg, -blue * kb / kg));
        let shares = Shares { bits, range, luma, middle, own, green };
        Self { narrow: u8::factors_of(&shares), deep: u16::factors_of(&shares) }
    }
}

/// A sample of the output, and its arithmetic.
pub(super) trait Channel: Copy + Default {
    type Luma;
    /// The type of the sums of chroma.
    type Wide: Copy + Default + Add<Output = Self::Wide>;
    /// What luma and chroma add to the output. Zero is its middle.
    type Part: Copy + Default;

    fn factors_of(shares: &Shares) -> Factors<Self>;
    fn factors(scales: &Scales) -> &Factors<Self>;
    fn luma(sample: i16, luma: &Self::Luma) -> Self::Part;
    fn product(sample: i16, factor: Self::Wide) -> Self::Wide;
    fn chroma(sum: Self::Wide, luma: &Self::Luma) -> Self::Part;
    /// The nearest sample, within the range of samples.
    fn cut(luma: Self::Part, chroma: Self::Part, units: &Self::Luma) -> Self;
    #[inline(always)]
    fn cut_all<const AVX2: bool>(
        luma: &[Self::Part; BLOCK],
        chroma: &[Self::Part; BLOCK],
        units: &Self::Luma,
        channel: &mut [Self; BLOCK],
    ) {
        for index in 0..BLOCK {
            channel[index] = Self::cut(luma[index], chroma[index], units);
        }
    }
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[Self; BLOCK]; 3], pixels: &mut [u8]);
}

/// Luma as `scale` / 2^16 of samples of 16 bits, less `middle`. A sum times `back` / 2^15 is in levels.
pub(super) struct Units {
    pub(super) scale: u16,
    pub(super) middle: i16,
    pub(super) back: i16,
}

/// The factor of luma, and what luma has in the middle of its code values.
pub(super) struct FloatUnits {
    factor: f32,
    middle: f32,
}

/// Fraction bits of the sums of chroma.
pub(super) const CHROMA_BITS: u32 = 15;

/// In parts of a level so small that colors outside RGB, up to 2.2 times white (BT.2020's blue), just fit in 16 bits. Luma and chroma
/// are truncated, each to a part.
impl Channel for u8 {
    type Luma = Units;
    type Wide = i32;
    type Part = i16;

    fn factors_of(shares: &Shares) -> Factors<u8> {
        // Chosen: with these, luma's scale and its middle are so close to integers that samples are at most 1.16 parts off, 0.01 of a
        // level. In the full range of 8 bits, both are integers.
        let back = if shares.range == ColorRange::Full { 256 } else { 281 };
        let white = 255.0 * f64::from(1 << 15) / f64::from(back);
        let scale = (shares.luma * white * f64::from(1 << shares.bits)).round();
        let middle = scale / 2.0 + (128.0 / 255.0 - shares.middle) * white;
        // What truncation takes on average.
        let lost = if scale % 1024.0 == 0.0 { 0.0 } else { 1.0 };
        let ten_bits = f64::from(1 << shares.bits) / 1024.0;
        let factor = |share: f64| (share * white * ten_bits * f64::from(1 << CHROMA_BITS)).round() as i32;
        Factors {
            luma: Units { scale: scale as u16, middle: (middle - lost).round() as i16, back },
            own: shares.own.map(factor),
            green: shares.green.map(factor),
        }
    }
    fn factors(scales: &Scales) -> &Factors<u8> {
        &scales.narrow
    }
    #[inline(always)]
    fn luma(sample: i16, units: &Units) -> i16 {
        let sample = sample as u16 ^ 0x8000;
        (((u32::from(sample) * u32::from(units.scale)) >> 16) as u16 as i16).wrapping_sub(units.middle)
    }
    #[inline(always)]
    fn product(sample: i16, factor: i32) -> i32 {
        i32::from(sample >> 6) * factor
    }
    #[inline(always)]
    fn chroma(sum: i32, _units: &Units) -> i16 {
        (sum >> CHROMA_BITS) as i16
    }
    #[inline(always)]
    fn cut(luma: i16, chroma: i16, units: &Units) -> u8 {
        let sum = i32::from(luma.saturating_add(chroma));
        let level = (sum * i32::from(units.back) + (1 << 14)) >> 15;
        (level.clamp(-128, 127) as u8) ^ 0x80
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u8; BLOCK]; 3], pixels: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 && CHANNELS == 3 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe {
                interleave::lay_out::<_, 32, BLOCK>(channels, pixels, &interleave::BYTE_SOURCES)
            };
        }
        for (index, pixel) in pixels.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, byte) in pixel.iter_mut().enumerate() {
                *byte = channels.get(channel).map_or(255, |samples| samples[index]);
            }
        }
    }
}

/// In floats, whose products are added in one order. They are less than 0.01 of a level off.
impl Channel for u16 {
    type Luma = FloatUnits;
    type Wide = f32;
    type Part = f32;

    fn factors_of(shares: &Shares) -> Factors<u16> {
        let factor = |share: f64| (share * 65535.0 * f64::from(1 << shares.bits) / 1024.0) as f32;
        Factors {
            luma: FloatUnits {
                factor: factor(shares.luma),
                middle: (shares.middle * 65535.0 - 32768.0) as f32,
            },
            own: shares.own.map(factor),
            green: shares.green.map(factor),
        }
    }
    fn factors(scales: &Scales) -> &Factors<u16> {
        &scales.deep
    }
    #[inline(always)]
    fn luma(sample: i16, units: &FloatUnits) -> f32 {
        Self::product(sample, units.factor)
    }
    #[inline(always)]
    fn product(sample: i16, factor: f32) -> f32 {
        f32::from(sample >> 6) * factor
    }
    #[inline(always)]
    fn chroma(sum: f32, units: &FloatUnits) -> f32 {
        sum + units.middle
    }
    #[inline(always)]
    fn cut(luma: f32, chroma: f32, _units: &FloatUnits) -> u16 {
        let sum = luma + chroma;
        let above = if sum > -32768.0 { sum } else { -32768.0 };
        let within = if above < 32767.0 { above } else { 32767.0 };
        (within + TO_INTEGER).to_bits() as u16 ^ 0x8000
    }
    #[inline(always)]
    fn cut_all<const AVX2: bool>(
        luma: &[f32; BLOCK],
        chroma: &[f32; BLOCK],
        units: &FloatUnits,
        channel: &mut [u16; BLOCK],
    ) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe { interleave::cut_floats(luma, chroma, channel) };
        }
        for index in 0..BLOCK {
            channel[index] = Self::cut(luma[index], chroma[index], units);
        }
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u16; BLOCK]; 3], pixels: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 && CHANNELS == 3 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe {
                interleave::lay_out::<_, 16, BLOCK>(channels, pixels, &interleave::WORD_SOURCES)
            };
        }
        let samples = pixels.as_chunks_mut::<2>().0;
        for (index, pixel) in samples.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, sample) in pixel.iter_mut().enumerate() {
                *sample = channels.get(channel).map_or(65535, |samples| samples[index]).to_le_bytes();
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{BLOCK, Channel};

    /// Tests of the crate's interface see only one of the two, by processor.
    #[test]
    fn pixels_are_laid_out_the_same_with_and_without_avx2() {
        if !std::arch::is_x86_feature_detected!("avx2") {
            eprintln!("skipped: the processor has no AVX2");
            return;
        }
        let channels = [0, 1, 2].map(|channel| std::array::from_fn(|index| (index * 3 + channel) as u8));
        let (mut with, mut without) = ([0; 3 * BLOCK], [0; 3 * BLOCK]);
        u8::lay_out::<3, true>(&channels, &mut with);
        u8::lay_out::<3, false>(&channels, &mut without);
        assert_eq!(with, without);
        assert!(with.iter().enumerate().all(|(index, byte)| *byte == index as u8));
        let channels =
            [0, 1, 2].map(|channel| std::array::from_fn(|index| (1000 + index * 3 + channel) as u16));
        let (mut with, mut without) = ([0; 6 * BLOCK], [0; 6 * BLOCK]);
        u16::lay_out::<3, true>(&channels, &mut with);
        u16::lay_out::<3, false>(&channels, &mut without);
        assert_eq!(with, without);
    }
}
