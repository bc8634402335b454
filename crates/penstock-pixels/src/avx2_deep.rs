//! From YUV to RGB of 16 bits by AVX2, straight into the rows of the output: the arithmetic of [`Channel`](super::channel::Channel).
//!
//! Without closures over vectors, as in [`avx2`](super::avx2). In a group of 16 pixels, one vector of floats has the pixels 0 to 3 and 8
//! to 11, and another has the others, so that they are in turn when they are packed.

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_and_si128, _mm_loadl_epi64, _mm_loadu_si128, _mm_set1_epi16,
    _mm_setzero_si128, _mm_slli_epi16, _mm_unpacklo_epi8, _mm_xor_si128, _mm256_add_ps,
    _mm256_cvtepi16_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu8_epi16, _mm256_cvtps_epi32, _mm256_loadu_si256,
    _mm256_mul_ps, _mm256_packs_epi32, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_ps,
    _mm256_setzero_si256, _mm256_slli_epi16, _mm256_unpackhi_epi16, _mm256_unpackhi_epi32,
    _mm256_unpackhi_ps, _mm256_unpacklo_epi16, _mm256_unpacklo_epi32, _mm256_unpacklo_ps, _mm256_xor_si256,
};

use super::factors::{Factors, FloatUnits};
use super::interleave::{WORD_SOURCES, interleave, store_quarters};
use super::rows::{BLOCK, Rows};

/// Pixels that are converted at once.
const GROUP: usize = 16;

/// [`Factors`] as vectors.
struct Vectors {
    own: [__m256; 2],
    green: [__m256; 2],
    luma: __m256,
    middle: __m256,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new<const COLUMNS: usize>(factors: &Factors<FloatUnits, f32>) -> Self {
        // Samples are in the upper bits of what is made a float. By powers of two, the products stay the same.
        let in_double_words = 1.0 / (1 << 22) as f32;
        let chroma = if COLUMNS == 1 { in_double_words } else { 1.0 / (1 << 6) as f32 };
        Self {
            own: [_mm256_set1_ps(factors.own[0] * chroma), _mm256_set1_ps(factors.own[1] * chroma)],
            green: [_mm256_set1_ps(factors.green[0] * chroma), _mm256_set1_ps(factors.green[1] * chroma)],
            luma: _mm256_set1_ps(factors.luma.factor * in_double_words),
            middle: _mm256_set1_ps(factors.luma.middle),
        }
    }
}

/// Converts so many blocks of columns; the last one ends with the row.
///
/// # Panics
///
/// If a row is shorter than the blocks.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn rows<const BYTES: usize, const COLUMNS: usize, const STEP: usize, const CHANNELS: usize>(
    rows: &Rows<'_>,
    blocks: usize,
    factors: &Factors<FloatUnits, f32>,
    output: &mut [u8],
) {
    if blocks == 0 {
        return;
    }
    let vectors = Vectors::new::<COLUMNS>(factors);
    rows.check::<BYTES, COLUMNS, STEP>(blocks);
    let row_bytes = output.len() / rows.luma.len();
    assert!(row_bytes == rows.width * CHANNELS * 2);
    for group in 0..blocks * BLOCK / GROUP {
        let column = (group * GROUP).min(rows.width - GROUP);
        // SAFETY: a group from this column on ends in the row, as was checked.
        let parts = unsafe { parts::<BYTES, COLUMNS, STEP>(rows, column, &vectors) };
        for (luma, row) in rows.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            // SAFETY: as above.
            let [low, high] = unsafe { floats::<BYTES>(luma.as_ptr().add(column * BYTES)) };
            let luma = [_mm256_mul_ps(low, vectors.luma), _mm256_mul_ps(high, vectors.luma)];
            let (first, green) = (channel(luma, parts[0]), channel(luma, parts[1]));
            let last = channel(luma, parts[2]);
            let pixels = &mut row[column * CHANNELS * 2..][..GROUP * CHANNELS * 2];
            if CHANNELS == 3 {
                interleave([first, green, last], &WORD_SOURCES, pixels.first_chunk_mut().expect("a group"));
            } else {
                with_opaque([first, green, last], pixels.first_chunk_mut().expect("a group"));
            }
        }
    }
}

/// What chroma adds to each channel.
///
/// # Safety
///
/// There is chroma for a group from this column on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn parts<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(
    rows: &Rows<'_>,
    column: usize,
    vectors: &Vectors,
) -> [[__m256; 2]; 3] {
    if COLUMNS == 0 {
        return [[vectors.middle; 2]; 3];
    }
    let first_byte = column / COLUMNS * BYTES * STEP;
    // SAFETY: the caller has seen to it.
    unsafe {
        let chroma = [rows.chroma[0].as_ptr().add(first_byte), rows.chroma[1].as_ptr().add(first_byte)];
        if COLUMNS == 1 {
            let ([a, b], [c, d]) = (floats::<BYTES>(chroma[0]), floats::<BYTES>(chroma[1]));
            let (low, high) = (products(a, c, vectors), products(b, d, vectors));
            return [[low[0], high[0]], [low[1], high[1]], [low[2], high[2]]];
        }
        let (first, last) = if STEP == 2 {
            let pairs = _mm_loadu_si128(chroma[0].cast());
            let lower = _mm_slli_epi16::<8>(pairs);
            let upper = _mm_and_si128(pairs, _mm_set1_epi16(0xFF00_u16 as i16));
            if rows.places[0] == 1 { (upper, lower) } else { (lower, upper) }
        } else {
            (half::<BYTES>(chroma[0]), half::<BYTES>(chroma[1]))
        };
        let [first, green, last] = products(float(first), float(last), vectors);
        [twice(first), twice(green), twice(last)]
    }
}

/// What eight samples of each chroma add to the channels.
#[inline]
#[target_feature(enable = "avx2")]
fn products(first: __m256, last: __m256, vectors: &Vectors) -> [__m256; 3] {
    let green = _mm256_add_ps(_mm256_mul_ps(first, vectors.green[0]), _mm256_mul_ps(last, vectors.green[1]));
    [
        _mm256_add_ps(_mm256_mul_ps(first, vectors.own[0]), vectors.middle),
        _mm256_add_ps(green, vectors.middle),
        _mm256_add_ps(_mm256_mul_ps(last, vectors.own[1]), vectors.middle),
    ]
}

/// Each for two neighbours.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(floats: __m256) -> [__m256; 2] {
    [_mm256_unpacklo_ps(floats, floats), _mm256_unpackhi_ps(floats, floats)]
}

/// A group's samples, in the upper 10 bits of 32. Half of the code values is 0.
///
/// # Safety
///
/// There are as many samples as a group has.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn floats<const BYTES: usize>(samples: *const u8) -> [__m256; 2] {
    // SAFETY: the caller has seen to it.
    let words = unsafe {
        if BYTES == 1 {
            _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(samples.cast())))
        } else {
            _mm256_slli_epi16::<6>(_mm256_loadu_si256(samples.cast()))
        }
    };
    let (words, zero) = (_mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN)), _mm256_setzero_si256());
    [
        _mm256_cvtepi32_ps(_mm256_unpacklo_epi16(zero, words)),
        _mm256_cvtepi32_ps(_mm256_unpackhi_epi16(zero, words)),
    ]
}

/// Half of a group's samples, in the upper bits of words.
///
/// # Safety
///
/// There are as many.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half<const BYTES: usize>(samples: *const u8) -> __m128i {
    // SAFETY: the caller has seen to it.
    unsafe {
        if BYTES == 1 {
            let bytes = _mm_loadl_epi64(samples.cast());
            return _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
        }
        _mm_slli_epi16::<6>(_mm_loadu_si128(samples.cast()))
    }
}

/// Eight samples, in the upper 10 bits of 16.
#[inline]
#[target_feature(enable = "avx2")]
fn float(words: __m128i) -> __m256 {
    let signed = _mm_xor_si128(words, _mm_set1_epi16(i16::MIN));
    _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(signed))
}

/// A channel's samples of a group. Packing clips them.
#[inline]
#[target_feature(enable = "avx2")]
fn channel(luma: [__m256; 2], chroma: [__m256; 2]) -> __m256i {
    let low = _mm256_cvtps_epi32(_mm256_add_ps(luma[0], chroma[0]));
    let high = _mm256_cvtps_epi32(_mm256_add_ps(luma[1], chroma[1]));
    _mm256_xor_si256(_mm256_packs_epi32(low, high), _mm256_set1_epi16(i16::MIN))
}

/// Stores pixels of three channels and an opaque one.
#[inline]
#[target_feature(enable = "avx2")]
fn with_opaque([first, green, last]: [__m256i; 3], pixels: &mut [u8; 128]) {
    let opaque = _mm256_set1_epi8(-1);
    let (a, b) = (_mm256_unpacklo_epi16(first, green), _mm256_unpacklo_epi16(last, opaque));
    let (c, d) = (_mm256_unpackhi_epi16(first, green), _mm256_unpackhi_epi16(last, opaque));
    store_quarters(
        [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)],
        [_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d)],
        pixels,
    );
}
