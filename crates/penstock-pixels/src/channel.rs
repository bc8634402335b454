//! The samples of the output: how much each sample of the input adds, and in which arithmetic.

use std::ops::Add;

use super::format::PixelFormat;
use super::options::{ConversionOptions, Range as ColorRange};

/// Pixels that are converted at once. Measured: with 32, it takes 1.1 times as long.
pub(super) const BLOCK: usize = 64;

/// [`Factors`], for each depth of the output.
pub(super) struct Scales {
    narrow: Factors<i16>,
    deep: Factors<i32>,
}

/// The factors of the input's samples in the output.
pub(super) struct Factors<T> {
    pub(super) luma: T,
    /// The value of luma at half of the code values.
    pub(super) middle: T,
    /// The factors of the first channel's chroma in that channel, and of the last's.
    pub(super) own: [T; 2],
    /// The factors of both chromas in green.
    pub(super) green: [T; 2],
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
        let factors = Factors { luma, middle, own, green };
        Self { narrow: factors.rounded::<u8>(bits), deep: factors.rounded::<u16>(bits) }
    }
}

impl Factors<f64> {
    fn rounded<C: Channel>(&self, bits: u32) -> Factors<C::Sum> {
        let of = |factor: f64| C::factor(factor, bits);
        let middle = C::middle(self.middle);
        Factors { luma: of(self.luma), middle, own: self.own.map(of), green: self.green.map(of) }
    }
}

/// A sample of the output, and its arithmetic.
pub(super) trait Channel: Copy + Default {
    /// The type of the sums.
    type Sum: Copy + Default + Add<Output = Self::Sum>;

    /// The factor of a code value of the input, where white is 1.
    fn factor(share: f64, bits: u32) -> Self::Sum;
    fn middle(share: f64) -> Self::Sum;
    /// Added before truncation, so that it rounds to the nearest.
    const HALF: Self::Sum;
    fn factors(scales: &Scales) -> &Factors<Self::Sum>;
    fn product(sample: i16, factor: Self::Sum) -> Self::Sum;
    fn cut(sum: Self::Sum) -> Self;
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[Self; BLOCK]; 3], pixels: &mut [u8]);
}

/// In 32nds of a code value, so that colors outside RGB, up to 2.2 times white (BT.2020's blue), do not overflow 16
/// bits.
impl Channel for u8 {
    type Sum = i16;

    fn factor(share: f64, bits: u32) -> i16 {
        (share * 255.0 * f64::from(32 << bits)).round() as i16
    }
    fn middle(share: f64) -> i16 {
        (share * 255.0 * 32.0).floor() as i16
    }
    /// A product of luma is truncated, and so is the middle, which takes a 32nd on average. Those of chroma are
    /// truncated too, but not when chroma is neutral: a compensation would tint grays.
    const HALF: i16 = 16 + 1;
    fn factors(scales: &Scales) -> &Factors<i16> {
        &scales.narrow
    }
    #[inline(always)]
    fn product(sample: i16, factor: i16) -> i16 {
        ((i32::from(sample) * i32::from(factor)) >> 16) as i16
    }
    #[inline(always)]
    fn cut(sum: i16) -> u8 {
        (sum >> 5).clamp(0, 255) as u8
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u8; BLOCK]; 3], pixels: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 && CHANNELS == 3 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe { avx2::lay_out::<_, 32>(channels, pixels, &avx2::BYTE_SOURCES) };
        }
        for (index, pixel) in pixels.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, byte) in pixel.iter_mut().enumerate() {
                *byte = channels.get(channel).map_or(255, |samples| samples[index]);
            }
        }
    }
}

/// In 2^-13 of a code value, the finest unit in which colors outside RGB do not overflow 32 bits.
impl Channel for u16 {
    type Sum = i32;

    /// Of 10 bits, also for input of 8 bits.
    fn factor(share: f64, bits: u32) -> i32 {
        (share * 65535.0 * f64::from(1 << (bits + 3))).round() as i32
    }
    fn middle(share: f64) -> i32 {
        (share * 65535.0 * f64::from(1 << 13)).round() as i32
    }
    const HALF: i32 = 1 << 12;
    fn factors(scales: &Scales) -> &Factors<i32> {
        &scales.deep
    }
    #[inline(always)]
    fn product(sample: i16, factor: i32) -> i32 {
        i32::from(sample >> 6) * factor
    }
    #[inline(always)]
    fn cut(sum: i32) -> u16 {
        (sum >> 13).clamp(0, 65535) as u16
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u16; BLOCK]; 3], pixels: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 && CHANNELS == 3 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe { avx2::lay_out::<_, 16>(channels, pixels, &avx2::WORD_SOURCES) };
        }
        let samples = pixels.as_chunks_mut::<2>().0;
        for (index, pixel) in samples.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, sample) in pixel.iter_mut().enumerate() {
                *sample = channels.get(channel).map_or(65535, |samples| samples[index]).to_le_bytes();
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_shuffle_epi8,
        _mm256_storeu_si256,
    };

    use super::BLOCK;

    /// Which bytes of the three channels fill the three vectors of 32 bytes of each.
    type Sources = [[[i8; 32]; 3]; 3];

    pub(super) static BYTE_SOURCES: Sources = sources(1);
    pub(super) static WORD_SOURCES: Sources = sources(2);

    const fn sources(sample_bytes: usize) -> Sources {
        // Below 0: another channel fills this byte.
        let mut sources = [[[-1; 32]; 3]; 3];
        let mut byte = 0;
        while byte < 48 {
            let sample = byte / sample_bytes;
            let from = sample / 3 * sample_bytes + byte % sample_bytes;
            let lanes = &mut sources[byte / 16][sample % 3];
            lanes[byte % 16] = from as i8;
            lanes[byte % 16 + 16] = from as i8;
            byte += 1;
        }
        sources
    }

    /// Interleaves three channels. Written by hand, because the compiled loop takes a third more of the conversion's time; and
    /// without closures over vectors, because `map` and the like are not compiled for AVX2: unless the linker inlines
    /// them, each vector goes through memory, and the conversion takes 5 times as long (`make bench-compare`, "pixels").
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn lay_out<T, const SAMPLES: usize>(
        channels: &[[T; BLOCK]; 3],
        pixels: &mut [u8],
        sources: &Sources,
    ) {
        for (index, pixels) in pixels.as_chunks_mut::<96>().0.iter_mut().enumerate() {
            let from = [
                load::<T, SAMPLES>(&channels[0].as_chunks().0[index]),
                load::<T, SAMPLES>(&channels[1].as_chunks().0[index]),
                load::<T, SAMPLES>(&channels[2].as_chunks().0[index]),
            ];
            let a = gather(from, &sources[0]);
            let b = gather(from, &sources[1]);
            let c = gather(from, &sources[2]);
            let [first, second, third] = pixels.as_chunks_mut::<32>().0 else { unreachable!("96 bytes") };
            store(_mm256_permute2x128_si256::<0x20>(a, b), first);
            store(_mm256_permute2x128_si256::<0x30>(c, a), second);
            store(_mm256_permute2x128_si256::<0x31>(b, c), third);
        }
    }

    /// The bytes of the three channels that belong into one vector of each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn gather(from: [__m256i; 3], sources: &[[i8; 32]; 3]) -> __m256i {
        let first = _mm256_shuffle_epi8(from[0], load::<_, 32>(&sources[0]));
        let green = _mm256_shuffle_epi8(from[1], load::<_, 32>(&sources[1]));
        let last = _mm256_shuffle_epi8(from[2], load::<_, 32>(&sources[2]));
        _mm256_or_si256(_mm256_or_si256(first, green), last)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn store(vector: __m256i, bytes: &mut [u8; 32]) {
        // SAFETY: it is 32 bytes, and needs no alignment.
        unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load<T, const COUNT: usize>(samples: &[T; COUNT]) -> __m256i {
        const { assert!(size_of::<T>() * COUNT == 32) };
        // SAFETY: it is 32 bytes, and needs no alignment.
        unsafe { _mm256_loadu_si256(samples.as_ptr().cast()) }
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
