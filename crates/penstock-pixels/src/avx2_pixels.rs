//! From YUV to RGB of 8 bits by AVX2, straight into the rows of the output: the arithmetic of [`Channel`](super::channel::Channel).
//!
//! Without closures over vectors, as in [`avx2`](super::avx2). Vectors of words have the pixels 0 to 7 and 16 to 23 of a group of 32,
//! or the others, so that they are in turn when they are packed.

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi16, _mm256_adds_epi16, _mm256_and_si256, _mm256_cvtepu8_epi16,
    _mm256_loadu_si256, _mm256_loadu2_m128i, _mm256_mulhrs_epi16, _mm256_packs_epi16, _mm256_set1_epi8,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_slli_epi16, _mm256_sub_epi16, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_xor_si256,
};

use super::factors::{Factors, Units};
use super::interleave::{BYTE_SOURCES, interleave, store, store_quarters};
use super::rows::{BLOCK, Rows};

/// Pixels that are converted at once.
const GROUP: usize = 32;

/// [`Factors`] as vectors.
struct Vectors {
    own: [__m256i; 2],
    green: [__m256i; 2],
    luma_scale: __m256i,
    luma_middle: __m256i,
    back: __m256i,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(factors: &Factors<Units, i16>) -> Self {
        Self {
            own: [_mm256_set1_epi16(factors.own[0]), _mm256_set1_epi16(factors.own[1])],
            green: [_mm256_set1_epi16(factors.green[0]), _mm256_set1_epi16(factors.green[1])],
            luma_scale: _mm256_set1_epi16(factors.luma.scale as i16),
            luma_middle: _mm256_set1_epi16(factors.luma.middle),
            back: _mm256_set1_epi16(factors.luma.back),
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
    factors: &Factors<Units, i16>,
    output: &mut [u8],
) {
    if blocks == 0 {
        return;
    }
    let vectors = Vectors::new(factors);
    rows.check::<BYTES, COLUMNS, STEP>(blocks);
    let row_bytes = output.len() / rows.luma.len();
    let width = rows.width;
    assert!(row_bytes == width * CHANNELS);
    for group in 0..blocks * BLOCK / GROUP {
        let column = (group * GROUP).min(width - GROUP);
        let first_chroma = column.checked_div(COLUMNS).unwrap_or(0) * BYTES * STEP;
        // SAFETY: a group from this column on ends in the row, as asserted.
        let Chroma { samples, own, green } = unsafe {
            let chroma =
                [rows.chroma[0].as_ptr().add(first_chroma), rows.chroma[1].as_ptr().add(first_chroma)];
            Chroma::load::<BYTES, COLUMNS, STEP>(chroma, rows.places[0] == 1, &vectors)
        };
        for (luma, row) in rows.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            // SAFETY: as above.
            let luma = unsafe { words::<BYTES>(luma.as_ptr().add(column * BYTES)) };
            let luma = [weigh(luma[0], &vectors), weigh(luma[1], &vectors)];
            let first = channel(plus(luma, samples[0]), own[0], vectors.back);
            if CHANNELS == 1 {
                store(first, row[column..].first_chunk_mut().expect("a group"));
                continue;
            }
            let green = channel(luma, green, vectors.back);
            let last = channel(plus(luma, samples[1]), own[1], vectors.back);
            let pixels = &mut row[column * CHANNELS..][..GROUP * CHANNELS];
            if CHANNELS == 3 {
                interleave([first, green, last], &BYTE_SOURCES, pixels.first_chunk_mut().expect("a group"));
            } else {
                with_opaque([first, green, last], pixels);
            }
        }
    }
}

/// The chroma of a group, as [`Channel`](super::channel::Channel) has it.
struct Chroma {
    samples: [[__m256i; 2]; 2],
    own: [[__m256i; 2]; 2],
    green: [__m256i; 2],
}

impl Chroma {
    /// # Safety
    ///
    /// There is chroma for a group.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(
        chroma: [*const u8; 2],
        first_is_second: bool,
        vectors: &Vectors,
    ) -> Self {
        if COLUMNS == 0 {
            let none = [_mm256_setzero_si256(); 2];
            return Self { samples: [none; 2], own: [none; 2], green: none };
        }
        // SAFETY: the caller has seen to it.
        unsafe {
            if COLUMNS == 1 {
                let ([a, b], [c, d]) = (words::<BYTES>(chroma[0]), words::<BYTES>(chroma[1]));
                let (first, last) = ([signed(a), signed(b)], [signed(c), signed(d)]);
                return Self {
                    samples: [first, last],
                    own: [
                        [times(first[0], vectors.own[0]), times(first[1], vectors.own[0])],
                        [times(last[0], vectors.own[1]), times(last[1], vectors.own[1])],
                    ],
                    green: [green(first[0], last[0], vectors), green(first[1], last[1], vectors)],
                };
            }
            let (first, last) = if STEP == 2 {
                let pairs = _mm256_loadu_si256(chroma[0].cast());
                let lower = _mm256_slli_epi16::<8>(pairs);
                let upper = _mm256_and_si256(pairs, _mm256_set1_epi16(0xFF00_u16 as i16));
                if first_is_second { (upper, lower) } else { (lower, upper) }
            } else if BYTES == 1 {
                let first = _mm256_cvtepu8_epi16(_mm_loadu_si128(chroma[0].cast()));
                let last = _mm256_cvtepu8_epi16(_mm_loadu_si128(chroma[1].cast()));
                (_mm256_slli_epi16::<8>(first), _mm256_slli_epi16::<8>(last))
            } else {
                let first = _mm256_loadu_si256(chroma[0].cast());
                let last = _mm256_loadu_si256(chroma[1].cast());
                (_mm256_slli_epi16::<6>(first), _mm256_slli_epi16::<6>(last))
            };
            let (first, last) = (signed(first), signed(last));
            Self {
                samples: [twice(first), twice(last)],
                own: [twice(times(first, vectors.own[0])), twice(times(last, vectors.own[1]))],
                green: twice(green(first, last, vectors)),
            }
        }
    }
}

/// A group's samples, in the upper bits of words.
///
/// # Safety
///
/// There are as many samples as a group has.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn words<const BYTES: usize>(samples: *const u8) -> [__m256i; 2] {
    // SAFETY: the caller has seen to it.
    unsafe {
        if BYTES == 1 {
            let bytes = _mm256_loadu_si256(samples.cast());
            let zero = _mm256_setzero_si256();
            return [_mm256_unpacklo_epi8(zero, bytes), _mm256_unpackhi_epi8(zero, bytes)];
        }
        let low = _mm256_loadu2_m128i(samples.add(32).cast(), samples.cast());
        let high = _mm256_loadu2_m128i(samples.add(48).cast(), samples.add(16).cast());
        [_mm256_slli_epi16::<6>(low), _mm256_slli_epi16::<6>(high)]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn signed(words: __m256i) -> __m256i {
    _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN))
}

#[inline]
#[target_feature(enable = "avx2")]
fn times(samples: __m256i, factors: __m256i) -> __m256i {
    _mm256_mulhrs_epi16(samples, factors)
}

/// What chroma adds to green.
#[inline]
#[target_feature(enable = "avx2")]
fn green(first: __m256i, last: __m256i, vectors: &Vectors) -> __m256i {
    _mm256_add_epi16(times(first, vectors.green[0]), times(last, vectors.green[1]))
}

/// Each word for two neighbours.
#[inline]
#[target_feature(enable = "avx2")]
fn twice(words: __m256i) -> [__m256i; 2] {
    [_mm256_unpacklo_epi16(words, words), _mm256_unpackhi_epi16(words, words)]
}

/// What luma adds to each channel.
#[inline]
#[target_feature(enable = "avx2")]
fn weigh(samples: __m256i, vectors: &Vectors) -> __m256i {
    let product: __m256i;
    // An instruction, as in `avx2_bytes`.
    // SAFETY: the processor has it, and it has no other effect.
    unsafe {
        asm!(
            "vpmulhuw {}, {}, {}",
            out(ymm_reg) product,
            in(ymm_reg) samples,
            in(ymm_reg) vectors.luma_scale,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    _mm256_sub_epi16(product, vectors.luma_middle)
}

#[inline]
#[target_feature(enable = "avx2")]
fn plus(ones: [__m256i; 2], others: [__m256i; 2]) -> [__m256i; 2] {
    [_mm256_adds_epi16(ones[0], others[0]), _mm256_adds_epi16(ones[1], others[1])]
}

/// A channel's samples of a group.
#[inline]
#[target_feature(enable = "avx2")]
fn channel(luma: [__m256i; 2], chroma: [__m256i; 2], back: __m256i) -> __m256i {
    let [low, high] = plus(luma, chroma);
    let levels = _mm256_packs_epi16(times(low, back), times(high, back));
    _mm256_xor_si256(levels, _mm256_set1_epi8(i8::MIN))
}

/// Stores pixels of three channels and an opaque one.
#[inline]
#[target_feature(enable = "avx2")]
fn with_opaque([first, green, last]: [__m256i; 3], pixels: &mut [u8]) {
    let opaque = _mm256_set1_epi8(-1);
    let (a, b) = (_mm256_unpacklo_epi8(first, green), _mm256_unpacklo_epi8(last, opaque));
    let (c, d) = (_mm256_unpackhi_epi8(first, green), _mm256_unpackhi_epi8(last, opaque));
    store_quarters(
        [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)],
        [_mm256_unpacklo_epi16(c, d), _mm256_unpackhi_epi16(c, d)],
        pixels.first_chunk_mut().expect("a group"),
    );
}
