//! Floating-point samples to whole ones.

use super::options::Unsupported;

/// The type of a floating-point sample, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// IEEE 754 binary16.
    F16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl Float {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F16, Self::F32, Self::F64];

    /// Size of a sample.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Half of the distance between two neighbors, relative to them.
    fn precision(self) -> f64 {
        match self {
            Self::F16 => 1.0 / f64::from(1 << 11),
            Self::F32 => 1.0 / f64::from(1 << 24),
            Self::F64 => 0.0, // as precise as the bounds
        }
    }
}

/// How many samples had no place among the whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Samples outside the range of values, which got the nearest bound. Infinities are among them.
    pub clipped: usize,
    /// Samples that are not a number. What they became has no meaning.
    pub nan: usize,
}

impl std::ops::AddAssign for Outside {
    fn add_assign(&mut self, other: Self) {
        self.clipped += other.clipped;
        self.nan += other.nan;
    }
}

/// Scales floating-point samples linearly to whole ones, from 0 to the most that so many bits hold. It rounds to the nearest, and a
/// half to even.
#[derive(Clone, Copy, Debug)]
pub struct Quantizer {
    float: Float,
    low: f64,
    scale: f64,
    most: f64,
    /// The bounds, but no further in than their nearest values of the type.
    bounds: [f64; 2],
}

impl Quantizer {
    /// For samples of that type. Those of `low` become 0, and those of `high` all ones in `bits` bits.
    ///
    /// Whole samples have one byte up to 8 bits, and two above, little-endian.
    ///
    /// # Errors
    ///
    /// `low` is not less than `high`, their distance is not finite, or the bits are not 1 to 16.
    pub fn new(float: Float, (low, high): (f64, f64), bits: u32) -> Result<Self, Unsupported> {
        if !(1..=16).contains(&bits) {
            return Err(Unsupported(format!("bits must be from 1 to 16, not {bits}").into()));
        }
        let most = f64::from((1_u32 << bits) - 1);
        let scale = most / (high - low);
        if !(low < high && scale.is_normal()) {
            return Err(Unsupported(
                format!("the range must go from a low to a high number, not from {low:?} to {high:?}").into(),
            ));
        }
        let slack = |bound: f64| bound.abs() * float.precision();
        Ok(Self { float, low, scale, most, bounds: [low - slack(low), high + slack(high)] })
    }

    /// The type of the floating-point samples.
    #[must_use]
    pub fn float(&self) -> Float {
        self.float
    }

    /// Bytes of a whole sample.
    #[must_use]
    pub fn sample_bytes(&self) -> usize {
        if self.most > 255.0 { 2 } else { 1 }
    }

    /// Converts samples that follow one another.
    ///
    /// # Panics
    ///
    /// If `output` does not have a place for each sample of `floats`.
    #[must_use]
    pub fn convert(&self, floats: &[u8], output: &mut [u8]) -> Outside {
        let count = floats.len() / self.float.bytes();
        assert_eq!(output.len(), count * self.sample_bytes());
        let all = self.run(floats, output);
        if all == 0 {
            return Outside::default();
        }
        // Rare, and so a pass of its own, over what is still in the cache.
        let nan = match self.float {
            Float::F16 => count_nan::<2, Half>(floats),
            Float::F32 => count_nan::<4, f32>(floats),
            Float::F64 => count_nan::<8, f64>(floats),
        };
        Outside { clipped: all - nan, nan }
    }

    /// Converts samples whose channels lie apart, and puts those of a pixel together.
    ///
    /// # Panics
    ///
    /// If there are more than 4 channels, their lengths differ, or `output` does not have a place for each sample.
    #[must_use]
    pub fn interleave(&self, channels: &[&[u8]], output: &mut [u8]) -> Outside {
        let (sample_bytes, float_bytes) = (self.sample_bytes(), self.float.bytes());
        let pixels = channels[0].len() / float_bytes;
        assert_eq!(output.len(), pixels * channels.len() * sample_bytes);
        let mut outside = Outside::default();
        let mut block: Block = [[0; 2 * BLOCK]; 4];
        for (number, made) in output.chunks_mut(BLOCK * channels.len() * sample_bytes).enumerate() {
            let length = made.len() / channels.len();
            for (floats, samples) in channels.iter().zip(&mut block) {
                let floats = &floats[number * BLOCK * float_bytes..][..length / sample_bytes * float_bytes];
                outside += self.convert(floats, &mut samples[..length]);
            }
            interleave(&block, channels.len(), sample_bytes, made);
        }
        outside
    }

    /// Returns how many samples are outside the bounds or not a number.
    fn run(&self, floats: &[u8], output: &mut [u8]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has it.
            return unsafe { self.run_avx2(floats, output) };
        }
        self.run_inline(floats, output)
    }

    /// The same code, compiled for AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn run_avx2(&self, floats: &[u8], output: &mut [u8]) -> usize {
        self.run_inline(floats, output)
    }

    #[inline(always)]
    fn run_inline(&self, floats: &[u8], output: &mut [u8]) -> usize {
        match (self.float, self.sample_bytes()) {
            (Float::F16, 1) => self.make::<2, Half, 1>(floats, output),
            (Float::F32, 1) => self.make::<4, f32, 1>(floats, output),
            (Float::F64, 1) => self.make::<8, f64, 1>(floats, output),
            (Float::F16, _) => self.make::<2, Half, 2>(floats, output),
            (Float::F32, _) => self.make::<4, f32, 2>(floats, output),
            (Float::F64, _) => self.make::<8, f64, 2>(floats, output),
        }
    }

    #[inline(always)]
    fn make<const BYTES: usize, F: Wide<BYTES>, const MADE: usize>(
        &self,
        floats: &[u8],
        output: &mut [u8],
    ) -> usize {
        let &Self { low, scale, most, bounds: [least, highest], .. } = self;
        let mut outside = 0_u64;
        for (float, made) in
            floats.as_chunks::<BYTES>().0.iter().zip(output.as_chunks_mut::<MADE>().0.iter_mut())
        {
            let value = F::wide(*float);
            outside += u64::from(!(value >= least && value <= highest));
            let scaled = (value - low) * scale;
            // Not `clamp`: NaN becomes 0, and each is one instruction.
            let scaled = if scaled > 0.0 { scaled } else { 0.0 };
            let scaled = if scaled < most { scaled } else { most };
            // The last bits of the sum are the nearest whole number. Vectors have no other way that every processor knows.
            let rounded = (scaled + WHOLE).to_bits() as u16;
            made.copy_from_slice(&rounded.to_le_bytes()[..MADE]);
        }
        outside as usize
    }
}

/// From here on, neighbors of 64 bits are 1 apart: 2^52.
const WHOLE: f64 = 4_503_599_627_370_496.0;

/// Pixels whose channels are put together at once.
const BLOCK: usize = 256;

/// Samples of each channel of as many pixels.
type Block = [[u8; 2 * BLOCK]; 4];

/// A float of so many bytes, to be computed with in 64 bits: the sum rounds once, at the end.
trait Wide<const BYTES: usize> {
    fn wide(bytes: [u8; BYTES]) -> f64;
}

struct Half;

impl Wide<2> for Half {
    /// Without branches, so that compilers vectorize it.
    #[inline(always)]
    fn wide(bytes: [u8; 2]) -> f64 {
        const ONE: u32 = 1 << 23; // of the exponent
        let half = u32::from(u16::from_le_bytes(bytes));
        let (sign, magnitude) = ((half & 0x8000) << 16, (half & 0x7FFF) << 13);
        let normal = magnitude + (127 - 15) * ONE;
        let below = f32::from_bits(normal + ONE) - f32::from_bits((127 - 14) * ONE);
        let bits = match magnitude >> 23 {
            0 => below.to_bits(),
            31 => normal + (127 - 15) * ONE, // infinite, or not a number
            _ => normal,
        };
        f64::from(f32::from_bits(sign | bits))
    }
}

impl Wide<4> for f32 {
    #[inline(always)]
    fn wide(bytes: [u8; 4]) -> f64 {
        f64::from(Self::from_le_bytes(bytes))
    }
}

impl Wide<8> for f64 {
    #[inline(always)]
    fn wide(bytes: [u8; 8]) -> f64 {
        Self::from_le_bytes(bytes)
    }
}

fn count_nan<const BYTES: usize, F: Wide<BYTES>>(floats: &[u8]) -> usize {
    floats.as_chunks::<BYTES>().0.iter().filter(|float| F::wide(**float).is_nan()).count()
}

fn interleave(block: &Block, channels: usize, sample_bytes: usize, made: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { interleave_avx2(block, channels, sample_bytes, made) };
    }
    interleave_inline(block, channels, sample_bytes, made);
}

/// The same code, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn interleave_avx2(block: &Block, channels: usize, sample_bytes: usize, made: &mut [u8]) {
    interleave_inline(block, channels, sample_bytes, made);
}

#[inline(always)]
fn interleave_inline(block: &Block, channels: usize, sample_bytes: usize, made: &mut [u8]) {
    match (sample_bytes, channels) {
        (1, 1) => put_together::<1, 1>(block, made),
        (1, 2) => put_together::<1, 2>(block, made),
        (1, 3) => put_together::<1, 3>(block, made),
        (1, 4) => put_together::<1, 4>(block, made),
        (_, 1) => put_together::<2, 1>(block, made),
        (_, 2) => put_together::<2, 2>(block, made),
        (_, 3) => put_together::<2, 3>(block, made),
        _ => put_together::<2, 4>(block, made),
    }
}

#[inline(always)]
fn put_together<const BYTES: usize, const CHANNELS: usize>(block: &Block, made: &mut [u8]) {
    let samples = made.as_chunks_mut::<BYTES>().0;
    for (index, pixel) in samples.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
        for (sample, channel) in pixel.iter_mut().zip(block) {
            sample.copy_from_slice(&channel[index * BYTES..][..BYTES]);
        }
    }
}
