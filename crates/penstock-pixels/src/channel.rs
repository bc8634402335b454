//! The samples of the output: how much each sample of the input adds, and in which arithmetic.

#[cfg(target_arch = "x86_64")]
use super::avx2_pixels::Rows;
use super::format::PixelFormat;
use super::levels::TO_INTEGER;
use super::options::{ConversionOptions, Matrix, Range as ColorRange};
#[cfg(target_arch = "x86_64")]
use super::{avx2_deep, avx2_pixels};

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
    pub(super) own: [C::Factor; 2],
    /// The factors of both chromas in green.
    pub(super) green: [C::Factor; 2],
}

/// The exact values of the output for a level of the input, where white is 1.
pub(super) struct Shares {
    bits: u32,
    range: ColorRange,
    matrix: Matrix,
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
        let shares = Shares { bits, range, matrix: options.matrix, luma, middle, own, green };
        Self { narrow: u8::factors_of(&shares), deep: u16::factors_of(&shares) }
    }
}

/// A sample of the output, and its arithmetic.
pub(super) trait Channel: Copy + Default {
    type Luma;
    type Factor: Copy;
    /// What luma and chroma add to the output. Zero is its middle.
    type Part: Copy + Default;

    fn factors_of(shares: &Shares) -> Factors<Self>;
    fn factors(scales: &Scales) -> &Factors<Self>;
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

/// Luma as `scale` / 2^16 of samples of 16 bits, less `middle`. A sum times `back` / 2^15 is in levels.
pub(super) struct Units {
    pub(super) scale: u16,
    pub(super) middle: i16,
    pub(super) back: i16,
}

/// The factor of luma, and what luma has in the middle of its code values.
pub(super) struct FloatUnits {
    pub(super) factor: f32,
    pub(super) middle: f32,
}

/// In parts of a level so small that luma and green's chroma just fit in 16 bits. Red's and blue's chroma does not: it is its sample, of
/// 16 bits, and a product of the same sign. Both are added to luma in turn, and a sum that doesn't fit is beyond black or white anyway.
/// Products are rounded, as processors do it with 16 bits at once.
impl Channel for u8 {
    type Luma = Units;
    type Factor = i16;
    type Part = i16;

    fn factors_of(shares: &Shares) -> Factors<u8> {
        // Chosen, because scale and factors are close to integers: of all colors, none is more than 0.5095 of a level off.
        let back = match (shares.range, shares.matrix) {
            (ColorRange::Full, _) => 160,
            (ColorRange::Limited, Matrix::Bt601) => 161,
            (ColorRange::Limited, _) => 166,
        };
        let white = 255.0 * f64::from(1 << 15) / f64::from(back);
        let codes = f64::from(1 << shares.bits);
        let scale = (shares.luma * white * codes).round();
        // Less what truncation takes on average.
        let middle = scale / 2.0 + (128.0 / 255.0 - shares.middle) * white - 0.5;
        let factor = |share: f64| share * white * codes / 2.0;
        Factors {
            luma: Units { scale: scale as u16, middle: middle.round() as i16, back },
            own: shares.own.map(|share| (factor(share) - f64::from(1 << 15)).round() as i16),
            green: shares.green.map(|share| factor(share).round() as i16),
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
        avx2_pixels::rows::<BYTES, COLUMNS, STEP, CHANNELS, BLOCK>(
            rows,
            blocks,
            Self::factors(scales),
            output,
        );
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
        avx2_deep::rows::<BYTES, COLUMNS, STEP, CHANNELS, BLOCK>(rows, blocks, Self::factors(scales), output);
    }
}

#[inline(always)]
fn product(sample: i16, factor: f32) -> f32 {
    f32::from(sample >> 6) * factor
}
