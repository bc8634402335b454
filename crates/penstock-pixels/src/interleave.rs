//! Samples to pixels by AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_loadu_si256, _mm256_or_si256, _mm256_permute2x128_si256, _mm256_shuffle_epi8,
    _mm256_storeu_si256,
};

/// Which bytes of the three channels fill the three vectors of 32 bytes of each.
pub(super) type Sources = [[[i8; 32]; 3]; 3];

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

/// Stores vectors of three channels as pixels. Written by hand, because the compiled loop takes a third more of the conversion's time;
/// and without closures over vectors, because `map` and the like are not compiled for AVX2: unless the linker inlines them, each vector
/// goes through memory, and the conversion takes 5 times as long (`make bench-compare`, its jobs of pixels).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn interleave(from: [__m256i; 3], sources: &Sources, pixels: &mut [u8; 96]) {
    let (a, b, c) = (gather(from, &sources[0]), gather(from, &sources[1]), gather(from, &sources[2]));
    let [first, second, third] = pixels.as_chunks_mut::<32>().0 else { unreachable!("96 bytes") };
    store(_mm256_permute2x128_si256::<0x20>(a, b), first);
    store(_mm256_permute2x128_si256::<0x30>(c, a), second);
    store(_mm256_permute2x128_si256::<0x31>(b, c), third);
}

/// The bytes of the three channels that belong into one vector of each lane.
#[inline]
#[target_feature(enable = "avx2")]
fn gather(from: [__m256i; 3], sources: &[[i8; 32]; 3]) -> __m256i {
    let first = _mm256_shuffle_epi8(from[0], load(&sources[0]));
    let green = _mm256_shuffle_epi8(from[1], load(&sources[1]));
    let last = _mm256_shuffle_epi8(from[2], load(&sources[2]));
    _mm256_or_si256(_mm256_or_si256(first, green), last)
}

/// Stores the pixels of the lower lanes, then those of the upper ones.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_quarters([e, f]: [__m256i; 2], [g, h]: [__m256i; 2], pixels: &mut [u8; 128]) {
    let [one, two, three, four] = pixels.as_chunks_mut::<32>().0 else { unreachable!("128 bytes") };
    store(_mm256_permute2x128_si256::<0x20>(e, f), one);
    store(_mm256_permute2x128_si256::<0x20>(g, h), two);
    store(_mm256_permute2x128_si256::<0x31>(e, f), three);
    store(_mm256_permute2x128_si256::<0x31>(g, h), four);
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(vector: __m256i, bytes: &mut [u8; 32]) {
    // SAFETY: it is 32 bytes, and needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[i8; 32]) -> __m256i {
    // SAFETY: it is 32 bytes, and needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
