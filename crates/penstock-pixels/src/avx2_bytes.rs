//! From RGB of 8 bits to YUV of 8 bits by AVX2, straight into the rows of the output.
//!
//! Without closures over vectors, as in [`avx2`](super::avx2).

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm_storeu_si128, _mm256_add_epi16, _mm256_and_si256, _mm256_blendv_epi8,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu2_m128i, _mm256_maddubs_epi16,
    _mm256_or_si256, _mm256_packus_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_shuffle_epi8, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_si256, _mm256_sub_epi16,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
};

use super::avx2::{Sources, fetch_ahead, load};
use super::levels::{Levels, Words};

/// Pixels that are converted at once: as many as a vector has bytes.
const GROUP: usize = 32;

/// Which of a third's 16 bytes are of this channel, where a lane's pixels of three channels fill three thirds.
const fn is_in(third: usize, channel: usize) -> Sources {
    let mut is_in = [0; 32];
    let mut byte = 0;
    while byte < 32 {
        if (third * 16 + byte % 16) % 3 == channel {
            is_in[byte] = -1;
        }
        byte += 1;
    }
    is_in
}

/// Where the bytes of a channel are in a lane, once those of all thirds are in it: each is in its place of its own third.
const fn in_turn(channel: usize) -> Sources {
    let mut sources = [0; 32];
    let mut pixel = 0;
    while pixel < 32 {
        sources[pixel] = ((pixel % 16 * 3 + channel) % 16) as i8;
        pixel += 1;
    }
    sources
}

/// The channels of four pixels of four channels, each channel's side by side.
const fn by_channel() -> Sources {
    let mut sources = [0; 32];
    let mut byte = 0;
    while byte < 32 {
        sources[byte] = (byte % 4 * 4 + byte % 16 / 4) as i8;
        byte += 1;
    }
    sources
}

/// The factors of the channels of pixels: of luma, and of the chroma that belongs to the first channel and to the last one. Those of
/// chroma are of the only channel that adds to it, of green, and of the third.
struct Factors([__m256i; 9]);

impl Factors {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(levels: &Levels<Words>, blue_first: bool) -> Self {
        let [of_blue, of_red] = levels.chroma;
        let ([a, b, c], [f, e, d]) = if blue_first { (of_blue, of_red) } else { (of_red, of_blue) };
        let [r, g, l] = levels.luma;
        Self([
            vector(r),
            vector(g),
            vector(l),
            vector(a),
            vector(b),
            vector(c),
            vector(d),
            vector(e),
            vector(f),
        ])
    }

    /// The upper halves of products. An instruction, because compilers make ten of the intrinsic `_mm256_mulhi_epu16` if its result
    /// is added to others (LLVM 22).
    #[inline]
    #[target_feature(enable = "avx2")]
    fn times<const INDEX: usize>(&self, words: __m256i) -> __m256i {
        let product;
        // SAFETY: the processor has it, and it reads one of the factors.
        unsafe {
            asm!(
                "vpmulhuw {}, {}, ymmword ptr [{} + {}]",
                out(ymm_reg) product,
                in(ymm_reg) words,
                in(reg) self.0.as_ptr(),
                const 32 * INDEX,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        product
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn luma(&self, [first, green, last]: [__m256i; 3], black: __m256i) -> __m256i {
        let first = _mm256_add_epi16(black, self.times::<0>(first));
        _mm256_add_epi16(first, _mm256_add_epi16(self.times::<1>(green), self.times::<2>(last)))
    }

    /// The chroma that belongs to the first channel, and to the last one.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn chroma(&self, [first, green, last]: [__m256i; 3], neutral: __m256i) -> [__m256i; 2] {
        let one = _mm256_add_epi16(neutral, self.times::<3>(first));
        let other = _mm256_add_epi16(neutral, self.times::<6>(last));
        [
            _mm256_sub_epi16(one, _mm256_add_epi16(self.times::<4>(green), self.times::<5>(last))),
            _mm256_sub_epi16(other, _mm256_add_epi16(self.times::<7>(green), self.times::<8>(first))),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn vector(factor: i32) -> __m256i {
    _mm256_set1_epi16(factor.unsigned_abs() as u16 as i16)
}

/// Converts columns from the left of a row, or two, and returns how many. A row of luma that isn't there is empty, and its pixels are
/// those of the other one.
///
/// # Panics
///
/// If a row of pixels or of the output is shorter than so many columns.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn rows<
    const CHANNELS: usize,
    const COLUMNS: usize,
    const ROWS: usize,
    const INTERLEAVED: bool,
>(
    pixels: [&[u8]; 2],
    width: usize,
    levels: &Levels<Words>,
    luma: &mut [&mut [u8]; 2],
    chroma: &mut [&mut [u8]; 2],
) -> usize {
    // The last columns are made in a group that begins before them, if that is one of whole chroma.
    let overlaps = width >= GROUP && width.is_multiple_of(COLUMNS);
    let groups = if overlaps { width.div_ceil(GROUP) } else { width / GROUP };
    let made = if overlaps { width } else { groups * GROUP };
    let pixels = pixels.map(|row| row[..made * CHANNELS].as_ptr());
    let upper = luma[0][..made].as_mut_ptr();
    let lower = if luma[1].is_empty() { upper } else { luma[1][..made].as_mut_ptr() };
    let luma = [upper, lower];
    let chroma_bytes = if INTERLEAVED { made } else { made / COLUMNS };
    let u = chroma[0][..chroma_bytes].as_mut_ptr();
    let v = if INTERLEAVED { u } else { chroma[1][..chroma_bytes].as_mut_ptr() };
    // U belongs to blue, V to red.
    let blue_first = levels.chroma[0][0] > 0;
    let factors = Factors::new(levels, blue_first);
    let (black, neutral) =
        (_mm256_set1_epi16(levels.black.0 as i16), _mm256_set1_epi16(levels.neutral.0 as i16));
    for group in 0..groups {
        let column = (group * GROUP).min(made - GROUP);
        let mut split = [[black; 3]; 2];
        for row in 0..ROWS {
            // SAFETY: a group from this column on ends in `made` columns.
            unsafe {
                let pixels = pixels[row].add(column * CHANNELS);
                fetch_ahead(pixels, GROUP * CHANNELS);
                split[row] = channels::<CHANNELS>(pixels);
                let [(r, rr), (g, gg), (b, bb)] =
                    [halves(split[row][0]), halves(split[row][1]), halves(split[row][2])];
                let made = join(factors.luma([r, g, b], black), factors.luma([rr, gg, bb], black));
                _mm256_storeu_si256(luma[row].add(column).cast(), made);
            }
        }
        let [[first, green, last], below] = split;
        if COLUMNS == 1 {
            let [(a, aa), (b, bb), (c, cc)] = [halves(first), halves(green), halves(last)];
            let [one, other] = factors.chroma([a, b, c], neutral);
            let [one_odd, other_odd] = factors.chroma([aa, bb, cc], neutral);
            let (one, other) = (join(one, one_odd), join(other, other_odd));
            let (of_blue, of_red) = if blue_first { (one, other) } else { (other, one) };
            // SAFETY: as above.
            unsafe {
                _mm256_storeu_si256(u.add(column).cast(), of_blue);
                _mm256_storeu_si256(v.add(column).cast(), of_red);
            }
            continue;
        }
        let sums =
            [sums::<ROWS>(first, below[0]), sums::<ROWS>(green, below[1]), sums::<ROWS>(last, below[2])];
        let [one, other] = factors.chroma(sums, neutral);
        let (of_blue, of_red) = if blue_first { (one, other) } else { (other, one) };
        if INTERLEAVED {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(u.add(column).cast(), join(of_blue, of_red)) };
            continue;
        }
        let both = _mm256_packus_epi16(_mm256_srli_epi16::<8>(of_blue), _mm256_srli_epi16::<8>(of_red));
        let both = _mm256_permute4x64_epi64::<0xD8>(both);
        // SAFETY: as above.
        unsafe {
            _mm_storeu_si128(u.add(column / 2).cast(), _mm256_castsi256_si128(both));
            _mm_storeu_si128(v.add(column / 2).cast(), _mm256_extracti128_si256::<1>(both));
        }
    }
    made
}

/// A group's channels.
///
/// # Safety
///
/// There are as many pixels as a group has.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn channels<const CHANNELS: usize>(pixels: *const u8) -> [__m256i; 3] {
    // One half of the group in each lane.
    let half = GROUP / 2 * CHANNELS;
    // SAFETY: the caller has seen to it.
    let [a, b, c] = unsafe {
        [two_lanes(pixels, half), two_lanes(pixels.add(16), half), two_lanes(pixels.add(32), half)]
    };
    if CHANNELS == 3 {
        let first = gather::<0>(a, b, c);
        return [first, gather::<1>(a, b, c), gather::<2>(a, b, c)];
    }
    // SAFETY: as above.
    let d = unsafe { two_lanes(pixels.add(48), half) };
    let sources = load(&const { by_channel() });
    let (a, b) = (_mm256_shuffle_epi8(a, sources), _mm256_shuffle_epi8(b, sources));
    let (c, d) = (_mm256_shuffle_epi8(c, sources), _mm256_shuffle_epi8(d, sources));
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let last = _mm256_unpacklo_epi64(_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    [_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd), last]
}

/// A channel of three, of the 16 pixels that are in each lane of three vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn gather<const CHANNEL: usize>(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    let (second, third) = const { (is_in(1, CHANNEL), is_in(2, CHANNEL)) };
    let both = _mm256_blendv_epi8(a, b, load(&second));
    _mm256_shuffle_epi8(_mm256_blendv_epi8(both, c, load(&third)), load(&const { in_turn(CHANNEL) }))
}

/// The even and the odd samples, in the upper bytes of words.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(samples: __m256i) -> (__m256i, __m256i) {
    (_mm256_slli_epi16::<8>(samples), _mm256_and_si256(samples, upper()))
}

/// The upper bytes of words, those of the second after those of the first.
#[inline]
#[target_feature(enable = "avx2")]
fn join(even: __m256i, odd: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_srli_epi16::<8>(even), _mm256_and_si256(odd, upper()))
}

#[inline]
#[target_feature(enable = "avx2")]
fn upper() -> __m256i {
    _mm256_set1_epi16(0xFF00_u16 as i16)
}

/// The sums of two columns' samples in so many rows, as [`Words`] has them.
#[inline]
#[target_feature(enable = "avx2")]
fn sums<const ROWS: usize>(above: __m256i, below: __m256i) -> __m256i {
    // Signed bytes hold no 128.
    let aligned = _mm256_set1_epi8(64);
    let above = _mm256_maddubs_epi16(above, aligned);
    _mm256_add_epi16(above, if ROWS == 1 { above } else { _mm256_maddubs_epi16(below, aligned) })
}

/// 16 bytes, and as many from a later place on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn two_lanes(bytes: *const u8, later: usize) -> __m256i {
    // SAFETY: the caller has seen to it that they are there. They need no alignment.
    unsafe { _mm256_loadu2_m128i(bytes.add(later).cast(), bytes.cast()) }
}
