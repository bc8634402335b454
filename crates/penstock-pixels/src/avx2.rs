//! From RGB to and from more than 8 bits by AVX2. Written by hand, because compilers do not vectorize loads of every third byte.
//!
//! Without closures over vectors, because `map` and the like are not compiled for AVX2: unless the linker inlines them, each
//! vector goes through memory.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _MM_HINT_T0, _mm_cvtsi32_si128, _mm_loadu_si128, _mm_prefetch,
    _mm_storeu_si128, _mm256_add_epi16, _mm256_add_epi32, _mm256_add_ps, _mm256_castsi128_si256,
    _mm256_castsi256_si128, _mm256_cvtepi32_ps, _mm256_cvtps_epi32, _mm256_extracti128_si256,
    _mm256_hadd_epi32, _mm256_hadd_ps, _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_min_epi32, _mm256_min_epu16, _mm256_mul_ps, _mm256_packs_epi32, _mm256_packus_epi16,
    _mm256_packus_epi32, _mm256_permute4x64_epi64, _mm256_permutevar8x32_epi32, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setr_epi32, _mm256_setzero_ps, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_sra_epi32, _mm256_storeu_si256, _mm256_unpackhi_epi16,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64,
};

use super::levels::{BEYOND, BLOCK, Floats, Integers, Levels, Output, Samples};

/// Where the bytes of a vector's two lanes come from in theirs; below 0: it is 0.
pub(super) type Sources = [i8; 32];

/// The first two channels of four pixels as pairs of 16 bits, and the third with 0.
const fn pair_sources(channels: usize) -> [Sources; 2] {
    let mut sources = [[-1; 32]; 2];
    let mut pixel = 0;
    while pixel < 4 {
        let mut lane = 0;
        while lane < 32 {
            sources[0][lane + 4 * pixel] = (pixel * channels) as i8;
            sources[0][lane + 4 * pixel + 2] = (pixel * channels + 1) as i8;
            sources[1][lane + 4 * pixel] = (pixel * channels + 2) as i8;
            lane += 16;
        }
        pixel += 1;
    }
    sources
}

/// Each channel of two pixels of 16 bits side by side.
const fn word_sources(channels: usize) -> Sources {
    let mut sources = [-1; 32];
    let mut byte = 0;
    while byte < 12 {
        let (channel, pixel) = (byte / 4, byte / 2 % 2);
        let from = ((pixel * channels + channel) * 2 + byte % 2) as i8;
        sources[byte] = from;
        sources[byte + 16] = from;
        byte += 1;
    }
    sources
}

/// A pixel, or the sum of some: pairs of the first two channels, and of the third and 0.
#[derive(Clone, Copy)]
struct Pairs(__m256i, __m256i);

impl Pairs {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn plus(self, other: Self) -> Self {
        Self(_mm256_add_epi16(self.0, other.0), _mm256_add_epi16(self.1, other.1))
    }
}

/// Factors of [`Pairs`] in two parts, the first of which counts 2^10 times as much.
#[derive(Clone, Copy)]
struct Factors([Pairs; 2]);

const LOW_BITS: u32 = 10;

impl Factors {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(factors: [i32; 3]) -> Self {
        let [mut high, mut low] = [[0; 3]; 2];
        for index in 0..3 {
            high[index] = factors[index] >> LOW_BITS;
            low[index] = factors[index] - (high[index] << LOW_BITS);
        }
        Self([pairs(high), pairs(low)])
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn pairs([first, second, third]: [i32; 3]) -> Pairs {
    Pairs(_mm256_set1_epi32((first & 0xFFFF) | (second << 16)), _mm256_set1_epi32(third & 0xFFFF))
}

/// The sums of pixels times factors, above a zero, as levels.
#[derive(Clone, Copy)]
struct Weigh {
    factors: Factors,
    zero: __m256i,
    shift: __m128i,
    peak: __m256i,
}

impl Weigh {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, of: Pairs) -> __m256i {
        let Factors([high, low]) = self.factors;
        let low = _mm256_add_epi32(_mm256_madd_epi16(of.0, low.0), _mm256_madd_epi16(of.1, low.1));
        let high = _mm256_add_epi32(_mm256_madd_epi16(of.0, high.0), _mm256_madd_epi16(of.1, high.1));
        let sum = _mm256_add_epi32(low, _mm256_slli_epi32::<{ LOW_BITS as i32 }>(high));
        let level = _mm256_sra_epi32(_mm256_add_epi32(sum, self.zero), self.shift);
        _mm256_min_epi32(level, self.peak)
    }
}

/// A block of pixels, as [`Integers`] have it.
///
/// # Panics
///
/// If a row is shorter than the block and the bytes beyond it.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn integers<const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize>(
    rows: [&[u8]; 2],
    levels: &Levels<Integers>,
    samples: &mut Samples<u16>,
) {
    let bits = Integers::FRACTION_BITS as i32;
    let peak = _mm256_set1_epi32(levels.peak);
    let luma = Weigh {
        factors: Factors::new(levels.luma),
        zero: _mm256_set1_epi32(levels.black),
        shift: _mm_cvtsi32_si128(bits),
        peak,
    };
    let shift = _mm_cvtsi32_si128(bits + (COLUMNS * ROWS).ilog2() as i32);
    let zero = _mm256_set1_epi32(levels.neutral);
    let u = Weigh { factors: Factors::new(levels.chroma[0]), zero, shift, peak };
    let v = Weigh { factors: Factors::new(levels.chroma[1]), zero, shift, peak };
    let sources = const { pair_sources(CHANNELS) };
    let (first, third) = (load(&sources[0]), load(&sources[1]));
    let rows = [&rows[0][..BLOCK * CHANNELS + BEYOND], &rows[1][..BLOCK * CHANNELS + BEYOND]];
    for part in 0..BLOCK / 16 {
        let mut sums = [Pairs(zero, zero); 2];
        for (row, bytes) in rows.into_iter().enumerate().take(ROWS) {
            let mut levels = [zero; 2];
            for index in 0..2 {
                let pixel = part * 16 + index * 8;
                let bytes = two_lanes(bytes, pixel * CHANNELS, (pixel + 4) * CHANNELS);
                let pairs = Pairs(_mm256_shuffle_epi8(bytes, first), _mm256_shuffle_epi8(bytes, third));
                levels[index] = luma.of(pairs);
                sums[index] = if row == 0 { pairs } else { sums[index].plus(pairs) };
            }
            store(levels, &mut samples.luma[row][part * 16..]);
        }
        let [us, vs] = &mut samples.chroma;
        if COLUMNS == 1 {
            store([u.of(sums[0]), u.of(sums[1])], &mut us[part * 16..]);
            store([v.of(sums[0]), v.of(sums[1])], &mut vs[part * 16..]);
        } else {
            let sums = neighbours(sums[0], sums[1]);
            let (us, vs) = (&mut us[part * 8..][..8], &mut vs[part * 8..][..8]);
            store_both(_mm256_packs_epi32(u.of(sums), v.of(sums)), us, vs);
        }
    }
}

/// The sums of neighbouring pixels, four of each vector's in each lane. No channel exceeds 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn neighbours(left: Pairs, right: Pairs) -> Pairs {
    Pairs(_mm256_hadd_epi32(left.0, right.0), _mm256_hadd_epi32(left.1, right.1))
}

/// Stores two vectors of eight levels.
#[inline]
#[target_feature(enable = "avx2")]
fn store([left, right]: [__m256i; 2], samples: &mut [u16]) {
    let packed = _mm256_packs_epi32(left, right);
    store_vector(_mm256_permute4x64_epi64::<0xD8>(packed), &mut samples[..16]);
}

/// Stores as many levels of each chroma, a double word of one lane after one of the other.
#[inline]
#[target_feature(enable = "avx2")]
fn store_both<O: Copy>(both: __m256i, us: &mut [O], vs: &mut [O]) {
    let in_turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let both = _mm256_permutevar8x32_epi32(both, in_turn);
    store_half(_mm256_castsi256_si128(both), us);
    store_half(_mm256_extracti128_si256::<1>(both), vs);
}

/// The shares of three channels in a sample, and what is added.
#[derive(Clone, Copy)]
struct Shares([__m256; 4]);

impl Shares {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new([first, green, last]: [f32; 3], zero: f32) -> Self {
        Self([_mm256_set1_ps(first), _mm256_set1_ps(green), _mm256_set1_ps(last), _mm256_set1_ps(zero)])
    }

    /// The nearest levels.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of(&self, [first, green, last]: [__m256; 3]) -> __m256i {
        let [of_first, of_green, of_last, zero] = self.0;
        let both = _mm256_add_ps(_mm256_mul_ps(first, of_first), _mm256_mul_ps(green, of_green));
        let all = _mm256_add_ps(both, _mm256_mul_ps(last, of_last));
        _mm256_cvtps_epi32(_mm256_add_ps(all, zero))
    }

    /// The same of 16 pixels, which are in turn then.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn of_both(&self, [low, high]: [[__m256; 3]; 2]) -> __m256i {
        _mm256_packus_epi32(self.of(low), self.of(high))
    }
}

/// A block of pixels of 16 bits, as [`Floats`] have it.
///
/// # Panics
///
/// If a row is shorter than the block and the bytes beyond it.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn floats<O: Output, const CHANNELS: usize, const COLUMNS: usize, const ROWS: usize>(
    rows: [&[u8]; 2],
    levels: &Levels<Floats<O>>,
    samples: &mut Samples<O>,
) {
    let luma = Shares::new(levels.luma, levels.black);
    let u = Shares::new(levels.chroma[0], levels.neutral);
    let v = Shares::new(levels.chroma[1], levels.neutral);
    let peak = _mm256_set1_epi16(levels.peak as i16);
    let rows = [&rows[0][..BLOCK * CHANNELS * 2 + BEYOND], &rows[1][..BLOCK * CHANNELS * 2 + BEYOND]];
    for part in 0..BLOCK / 32 {
        let first = part * 32;
        let (low, above) = split_rows::<CHANNELS, ROWS>(rows, first, &luma);
        let (high, above_right) = split_rows::<CHANNELS, ROWS>(rows, first + 16, &luma);
        for row in 0..ROWS {
            let levels = [above[row], above_right[row]];
            store_levels(levels, peak, &mut samples.luma[row][first..][..32]);
        }
        let [us, vs] = &mut samples.chroma;
        if COLUMNS == 1 {
            store_levels([u.of_both(low), u.of_both(high)], peak, &mut us[first..][..32]);
            store_levels([v.of_both(low), v.of_both(high)], peak, &mut vs[first..][..32]);
            continue;
        }
        let (low, high) = (columns(low), columns(high));
        let (us, vs) = (&mut us[first / 2..][..16], &mut vs[first / 2..][..16]);
        let (u, v) = (u.of_both([low, high]), v.of_both([low, high]));
        if size_of::<O>() == 1 {
            store_both(_mm256_packus_epi16(u, v), us, vs);
        } else {
            store_words(_mm256_permute4x64_epi64::<0xD8>(u), peak, us);
            store_words(_mm256_permute4x64_epi64::<0xD8>(v), peak, vs);
        }
    }
}

/// The sums of 16 pixels and of those below them, and the luma of each row.
#[inline]
#[target_feature(enable = "avx2")]
fn split_rows<const CHANNELS: usize, const ROWS: usize>(
    rows: [&[u8]; 2],
    first: usize,
    luma: &Shares,
) -> ([[__m256; 3]; 2], [__m256i; 2]) {
    let [low, high] = split_words::<CHANNELS>(rows[0], first);
    let above = luma.of_both([low, high]);
    if ROWS == 1 {
        return ([low, high], [above; 2]);
    }
    let below = split_words::<CHANNELS>(rows[1], first);
    ([plus(low, below[0]), plus(high, below[1])], [above, luma.of_both(below)])
}

/// The sums of neighbours.
#[inline]
#[target_feature(enable = "avx2")]
fn columns([low, high]: [[__m256; 3]; 2]) -> [__m256; 3] {
    [_mm256_hadd_ps(low[0], high[0]), _mm256_hadd_ps(low[1], high[1]), _mm256_hadd_ps(low[2], high[2])]
}

#[inline]
#[target_feature(enable = "avx2")]
fn plus(ones: [__m256; 3], others: [__m256; 3]) -> [__m256; 3] {
    [_mm256_add_ps(ones[0], others[0]), _mm256_add_ps(ones[1], others[1]), _mm256_add_ps(ones[2], others[2])]
}

/// Stores 32 levels.
#[inline]
#[target_feature(enable = "avx2")]
fn store_levels<O: Copy>(levels: [__m256i; 2], peak: __m256i, samples: &mut [O]) {
    if size_of::<O>() == 1 {
        // Packing clips them.
        let packed = _mm256_packus_epi16(levels[0], levels[1]);
        store_vector(_mm256_permute4x64_epi64::<0xD8>(packed), samples);
    } else {
        store_words(levels[0], peak, &mut samples[..16]);
        store_words(levels[1], peak, &mut samples[16..]);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_words<O: Copy>(words: __m256i, peak: __m256i, samples: &mut [O]) {
    store_vector(_mm256_min_epu16(words, peak), samples);
}

/// The channels of 16 pixels of 16 bits: those of the pixels 0 to 3 and 8 to 11, and those of the others.
#[inline]
#[target_feature(enable = "avx2")]
fn split_words<const CHANNELS: usize>(pixels: &[u8], first: usize) -> [[__m256; 3]; 2] {
    let sources = load(&const { word_sources(CHANNELS) });
    let pair_bytes = 4 * CHANNELS;
    let first = first * 2 * CHANNELS;
    fetch_ahead(pixels[first..].as_ptr(), 16 * 2 * CHANNELS);
    // Pairs of pixels: of the first eight in one lane, of the others in the other.
    let mut pairs = [sources; 4];
    for (index, pair) in pairs.iter_mut().enumerate() {
        let bytes = two_lanes(pixels, first + index * pair_bytes, first + (index + 4) * pair_bytes);
        *pair = _mm256_shuffle_epi8(bytes, sources);
    }
    let (a, b) = (_mm256_unpacklo_epi32(pairs[0], pairs[1]), _mm256_unpacklo_epi32(pairs[2], pairs[3]));
    let (c, d) = (_mm256_unpackhi_epi32(pairs[0], pairs[1]), _mm256_unpackhi_epi32(pairs[2], pairs[3]));
    let words = [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b), _mm256_unpacklo_epi64(c, d)];
    let zero = _mm256_setzero_si256();
    let mut split = [[_mm256_setzero_ps(); 3]; 2];
    for channel in 0..3 {
        split[0][channel] = _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(words[channel], zero));
        split[1][channel] = _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(words[channel], zero));
    }
    split
}

/// Fetches the bytes that follow 1 KiB later, as many as are converted now. Processors do that by themselves, but too late: without it,
/// RGB to 8 bits takes 1.1 to 1.2 times as long.
#[inline(always)]
pub(super) fn fetch_ahead(bytes: *const u8, count: usize) {
    for line in (0..count).step_by(64) {
        // SAFETY: it reads nothing, and may name any place.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(1024 + line).cast()) };
    }
}

/// 16 bytes of each place.
#[inline]
#[target_feature(enable = "avx2")]
fn two_lanes(bytes: &[u8], low: usize, high: usize) -> __m256i {
    let (low, high): (&[u8; 16], &[u8; 16]) =
        (bytes[low..].first_chunk().expect("16 bytes"), bytes[high..].first_chunk().expect("16 bytes"));
    // SAFETY: they are 16 bytes each, and need no alignment.
    let (low, high) =
        unsafe { (_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())) };
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &Sources) -> __m256i {
    // SAFETY: it is 32 bytes, and needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_vector<T: Copy>(vector: __m256i, samples: &mut [T]) {
    assert!(size_of_val(samples) == 32);
    // SAFETY: it is 32 bytes of numbers, and needs no alignment.
    unsafe { _mm256_storeu_si256(samples.as_mut_ptr().cast(), vector) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_half<T: Copy>(vector: __m128i, samples: &mut [T]) {
    assert!(size_of_val(samples) == 16);
    // SAFETY: it is 16 bytes of numbers, and needs no alignment.
    unsafe { _mm_storeu_si128(samples.as_mut_ptr().cast(), vector) };
}
