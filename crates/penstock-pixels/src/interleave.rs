//! Samples to pixels by AVX2.

use std::arch::x86_64::{
    __m256i, _mm256_add_ps, _mm256_cvtps_epi32, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_packs_epi32, _mm256_permute2x128_si256, _mm256_permute4x64_epi64, _mm256_set1_epi16,
    _mm256_shuffle_epi8, _mm256_storeu_si256, _mm256_xor_si256,
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

/// Interleaves three channels. Written by hand, because the compiled loop takes a third more of the conversion's time; and
/// without closures over vectors, because `map` and the like are not compiled for AVX2: unless the linker inlines
/// them, each vector goes through memory, and the conversion takes 5 times as long (`make bench-compare`, its jobs of pixels).
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn lay_out<T, const SAMPLES: usize, const BLOCK: usize>(
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
        interleave(from, sources, pixels);
    }
}

/// Stores vectors of three channels as pixels.
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
    let first = _mm256_shuffle_epi8(from[0], load::<_, 32>(&sources[0]));
    let green = _mm256_shuffle_epi8(from[1], load::<_, 32>(&sources[1]));
    let last = _mm256_shuffle_epi8(from[2], load::<_, 32>(&sources[2]));
    _mm256_or_si256(_mm256_or_si256(first, green), last)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(vector: __m256i, bytes: &mut [u8; 32]) {
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

/// The nearest samples of 16 bits to sums above their middle. Written by hand, because packing clips, and compilers clip before.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn cut_floats<const BLOCK: usize>(
    ones: &[f32; BLOCK],
    others: &[f32; BLOCK],
    samples: &mut [u16; BLOCK],
) {
    let pairs = ones.as_chunks::<16>().0.iter().zip(others.as_chunks::<16>().0);
    for ((ones, others), samples) in pairs.zip(samples.as_chunks_mut::<16>().0) {
        // SAFETY: each has 16 numbers.
        unsafe {
            let low = _mm256_add_ps(_mm256_loadu_ps(ones.as_ptr()), _mm256_loadu_ps(others.as_ptr()));
            let high =
                _mm256_add_ps(_mm256_loadu_ps(ones[8..].as_ptr()), _mm256_loadu_ps(others[8..].as_ptr()));
            let both = _mm256_packs_epi32(_mm256_cvtps_epi32(low), _mm256_cvtps_epi32(high));
            let both = _mm256_xor_si256(_mm256_permute4x64_epi64::<0xD8>(both), _mm256_set1_epi16(i16::MIN));
            _mm256_storeu_si256(samples.as_mut_ptr().cast(), both);
        }
    }
}
