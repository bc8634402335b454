//! From YUV to RGB, and from and to luma alone.
//!
//! The crate `yuv` would do it a quarter faster, but 0.8.20 has colours wrong here: its SIMD cuts luma below black off before it
//! adds chroma (up to 20 code values) and rounds 10 bits down, and its portable code lets 10 bits run over 255 to 0. So this is
//! plain loops over blocks, which compilers do many of at once.

use std::ops::{Add, Range};

use super::format::{PixelFormat, Plane};
use super::strip::Target;
use super::{Conversion, Matrix, Range as ColorRange};

/// Pixels that are worked on at once. Measured: with 32, it takes 1.1 times as long.
const BLOCK: usize = 64;

/// The rows that share one of chroma.
struct Group<'a> {
    luma: &'a [&'a [u8]],
    /// That of the first and that of the last channel of the output.
    chroma: [&'a [u8]; 2],
    /// Which of a pair is the first's and which the last's, where chroma comes in pairs.
    places: [usize; 2],
}

/// Converts the blocks that a group has whole.
type Kernel = fn(&Group<'_>, &Scales, &mut [u8]);

/// How luma and chroma become channels of RGB.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToRgb {
    kernel: Kernel,
    has_chroma: bool,
    blue_first: bool,
    bits: u32,
}

impl ToRgb {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        use PixelFormat::{
            Bgr0, Bgr24, Bgra, Gray, Nv12, Yuv420p, Yuv420p10, Yuv422p, Yuv422p10, Yuv444p, Yuv444p10,
        };
        let to_gray = output == Gray;
        let (kernel, bits) = match input {
            Yuv420p | Yuv422p | Yuv444p | Nv12 if to_gray => (run::<1, 0, 1, u8, 1> as Kernel, 8),
            Yuv420p10 | Yuv422p10 | Yuv444p10 if to_gray => (run::<2, 0, 1, u8, 1> as Kernel, 10),
            Gray => (kernel_to::<1, 0, 1>(output)?, 8),
            Yuv444p => (kernel_to::<1, 1, 1>(output)?, 8),
            Yuv420p | Yuv422p => (kernel_to::<1, 2, 1>(output)?, 8),
            Nv12 => (kernel_to::<1, 2, 2>(output)?, 8),
            Yuv444p10 => (kernel_to::<2, 1, 1>(output)?, 10),
            Yuv420p10 | Yuv422p10 => (kernel_to::<2, 2, 1>(output)?, 10),
            _ => return None,
        };
        let has_chroma = !to_gray && input != Gray;
        Some(Self { kernel, has_chroma, blue_first: matches!(output, Bgr24 | Bgra | Bgr0), bits })
    }

    /// Makes these rows of the output, which begin at an even one.
    pub(super) fn make(
        self,
        conversion: &Conversion,
        rows: &Range<usize>,
        input: &[u8],
        target: &mut Target<'_>,
    ) {
        let scales = Scales::new(conversion, self.bits, self.blue_first);
        let planes = conversion.options.input.planes();
        let shared_by = if self.has_chroma { planes[1].rows } else { 1 };
        let made = target.planes[0].chunks_mut(shared_by * target.row_bytes[0]);
        for (first, made) in rows.clone().step_by(shared_by).zip(made) {
            let luma = [first, (first + 1).min(rows.end - 1)]
                .map(|row| conversion.input_row(&planes[0], 0, row, input));
            let luma = &luma[..shared_by.min(rows.end - first)];
            let (chroma, places) = self.chroma(conversion, first / shared_by, input);
            let group = Group { luma, chroma, places };
            (self.kernel)(&group, &scales, made);
            self.make_rest(conversion.options.width, &group, &scales, made);
        }
    }

    /// The columns that are less than a block, by way of one.
    fn make_rest(self, width: usize, group: &Group<'_>, scales: &Scales, made: &mut [u8]) {
        let (rest, whole) = (width % BLOCK, width / BLOCK * BLOCK);
        if rest == 0 {
            return;
        }
        let padded = |row: &[u8]| {
            let mut padded = [0; 2 * BLOCK];
            let row = &row[row.len() * whole / width..];
            padded[..row.len()].copy_from_slice(row);
            padded
        };
        let block_bytes = BLOCK * group.luma[0].len() / width;
        let chroma = group.chroma.map(padded);
        let chroma = chroma.each_ref().map(|row| &row[..]);
        let row_bytes = made.len() / group.luma.len();
        let pixel_bytes = row_bytes / width;
        for (luma, row) in group.luma.iter().zip(made.chunks_exact_mut(row_bytes)) {
            let mut pixels = [0; 8 * BLOCK];
            let luma = &padded(luma)[..block_bytes];
            let group = Group { luma: &[luma], chroma, places: group.places };
            (self.kernel)(&group, scales, &mut pixels[..BLOCK * pixel_bytes]);
            row[whole * pixel_bytes..].copy_from_slice(&pixels[..rest * pixel_bytes]);
        }
    }

    /// A row of chroma: that of the first channel, and that of the last.
    fn chroma<'a>(self, conversion: &Conversion, row: usize, input: &'a [u8]) -> ([&'a [u8]; 2], [usize; 2]) {
        if !self.has_chroma {
            return ([&[], &[]], [0, 0]);
        }
        let options = &conversion.options;
        let planes = options.input.planes();
        let bytes = |plane: &Plane| plane.row_bytes(options.width) * plane.rows_of(options.height);
        let u_start = bytes(&planes[0]);
        let u = conversion.input_row(&planes[1], u_start, row, input);
        let v = planes
            .get(2)
            .map_or(u, |plane| conversion.input_row(plane, u_start + bytes(&planes[1]), row, input));
        // Red is made with V, blue with U.
        if self.blue_first { ([u, v], [0, 1]) } else { ([v, u], [1, 0]) }
    }
}

/// [`Factors`], for each depth of the output.
struct Scales {
    narrow: Factors<i16>,
    deep: Factors<i32>,
    /// Where FFmpeg may be more than 2 below the nearest value.
    ffmpeg: Option<FfmpegGreen>,
}

/// Green as FFmpeg 5.1 makes it on x86 where chroma has half as many columns (libswscale/x86/yuv_2_rgb.asm): it drops the fraction
/// of each of three products, in 13 bits, and so is up to 2.98 below the exact value. Ours stays within 2 of it, and within 1 of the
/// exact one.
///
/// This is its chroma, in 13 bits of a code value; its luma is that of the sum here, where that is cut off.
#[derive(Clone, Copy)]
struct FfmpegGreen([i16; 2]);

impl FfmpegGreen {
    /// How much more than luma green may be.
    #[inline(always)]
    fn most(self, first: i16, last: i16) -> i16 {
        let [first, last] = [(first, self.0[0]), (last, self.0[1])]
            .map(|(sample, factor)| ((i32::from(sample >> 5) * i32::from(factor)) >> 16) as i16);
        first + last + 2
    }
}

/// What a sample of the input is worth in the output.
struct Factors<T> {
    luma: T,
    /// What luma of half the code values is.
    middle: T,
    /// Of the first channel's chroma in it, of the last's in it.
    own: [T; 2],
    /// Of both in green.
    green: [T; 2],
}

impl Scales {
    /// ITU-T H.273, 8.3, solved for RGB.
    fn new(conversion: &Conversion, bits: u32, blue_first: bool) -> Self {
        let options = &conversion.options;
        let is_gray = options.input == PixelFormat::Gray;
        let range = if is_gray { ColorRange::Full } else { options.range };
        let (black, luma, chroma) = match range {
            ColorRange::Limited => (16 << (bits - 8), 219 << (bits - 8), 224 << (bits - 8)),
            ColorRange::Full => (0, (1 << bits) - 1, (1 << bits) - 1),
        };
        let (luma, chroma) = (1.0 / f64::from(luma), 1.0 / f64::from(chroma));
        let (kr, kb) = match options.matrix {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
        };
        let (red, blue) = (2.0 * (1.0 - kr) * chroma, 2.0 * (1.0 - kb) * chroma);
        let kg = 1.0 - kr - kb;
        let in_order = |red: f64, blue: f64| if blue_first { [blue, red] } else { [red, blue] };
        let middle = f64::from((1 << (bits - 1)) - black) * luma;
        let (own, green) = (in_order(red, blue), in_order(-red * kr / kg, -blue * kb / kg));
        let in_13_bits = |share: f64| (share * 255.0 * f64::from(1 << 13)).round() as i16;
        let ffmpeg = (bits == 8 && range == ColorRange::Limited).then(|| FfmpegGreen(green.map(in_13_bits)));
        let factors = Factors { luma, middle, own, green };
        Self { narrow: factors.rounded::<u8>(bits), deep: factors.rounded::<u16>(bits), ffmpeg }
    }
}

impl Factors<f64> {
    fn rounded<C: Channel>(&self, bits: u32) -> Factors<C::Sum> {
        let of = |factor: f64| C::factor(factor, bits);
        let middle = C::middle(self.middle);
        Factors { luma: of(self.luma), middle, own: self.own.map(of), green: self.green.map(of) }
    }
}

/// A sample of the output.
trait Channel: Copy + Default {
    /// What the parts of it are added up in.
    type Sum: Copy + Default + Add<Output = Self::Sum>;

    /// Of a code value of the input, where white is 1.
    fn factor(share: f64, bits: u32) -> Self::Sum;
    fn middle(share: f64) -> Self::Sum;
    /// What makes cutting off rounding to the nearest.
    const HALF: Self::Sum;
    fn factors(scales: &Scales) -> &Factors<Self::Sum>;
    fn product(sample: i16, factor: Self::Sum) -> Self::Sum;
    fn cut(sum: Self::Sum) -> Self;
    /// Of luma and what is added to it; of 8 bits, no more than luma that is cut off and this.
    fn cut_within(luma: Self::Sum, part: Self::Sum, most: i16) -> Self;
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[Self; BLOCK]; 3], pixels: &mut [u8]);
}

/// In 32nds of a code value: so colours outside RGB, up to 2.2 times white (BT.2020's blue), do not run over 16 bits.
impl Channel for u8 {
    type Sum = i16;

    fn factor(share: f64, bits: u32) -> i16 {
        (share * 255.0 * f64::from(32 << bits)).round() as i16
    }
    /// Not above the exact value, so that luma that is cut off is never above FFmpeg's.
    fn middle(share: f64) -> i16 {
        (share * 255.0 * 32.0).floor() as i16
    }
    /// A product of luma is cut off, too, and so is the middle, which takes a 32nd on average. Those of chroma as well, but not
    /// when it is neutral: were that made up for, grays would be coloured.
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
    fn cut_within(luma: i16, part: i16, most: i16) -> u8 {
        ((luma + part) >> 5).min((luma >> 5) + most).clamp(0, 255) as u8
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u8; BLOCK]; 3], pixels: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if AVX2 && CHANNELS == 3 {
            // SAFETY: only code for processors that have AVX2 is made with `AVX2`.
            return unsafe { avx2::lay_out(channels, pixels) };
        }
        for (index, pixel) in pixels.as_chunks_mut::<CHANNELS>().0.iter_mut().enumerate().take(BLOCK) {
            for (channel, byte) in pixel.iter_mut().enumerate() {
                *byte = channels.get(channel).map_or(255, |samples| samples[index]);
            }
        }
    }
}

/// In 2^-13 of a code value: the finest for which colours outside RGB do not run over 32 bits.
impl Channel for u16 {
    type Sum = i32;

    /// Of 10 bits, also for 8 of them.
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
    fn cut_within(luma: i32, part: i32, _most: i16) -> u16 {
        Self::cut(luma + part)
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u16; BLOCK]; 3], pixels: &mut [u8]) {
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

    /// Where the bytes of 16 pixels come from: of the three vectors that they fill, from each of the three channels.
    static SOURCES: [[[i8; 32]; 3]; 3] = {
        // Below 0: from another channel.
        let mut sources = [[[-1; 32]; 3]; 3];
        let mut byte = 0;
        while byte < 48 {
            let lanes = &mut sources[byte / 16][byte % 3];
            lanes[byte % 16] = (byte / 3) as i8;
            lanes[byte % 16 + 16] = (byte / 3) as i8;
            byte += 1;
        }
        sources
    };

    /// Three channels to pixels. By hand, because what compilers make of the loop takes a third of the conversion's time more.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn lay_out(channels: &[[u8; BLOCK]; 3], pixels: &mut [u8]) {
        for (index, pixels) in pixels.as_chunks_mut::<96>().0.iter_mut().enumerate() {
            let from = channels.each_ref().map(|samples| load(&samples.as_chunks::<32>().0[index]));
            let [a, b, c] = SOURCES.each_ref().map(|sources| {
                let [first, green, last] =
                    [0, 1, 2].map(|channel| _mm256_shuffle_epi8(from[channel], load(&sources[channel])));
                _mm256_or_si256(_mm256_or_si256(first, green), last)
            });
            let made = [
                _mm256_permute2x128_si256::<0x20>(a, b),
                _mm256_permute2x128_si256::<0x30>(c, a),
                _mm256_permute2x128_si256::<0x31>(b, c),
            ];
            for (vector, bytes) in made.into_iter().zip(pixels.as_chunks_mut::<32>().0) {
                // SAFETY: it is 32 bytes, and needs no alignment.
                unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load<T>(bytes: &[T; 32]) -> __m256i {
        const { assert!(size_of::<T>() == 1) };
        // SAFETY: it is 32 bytes, and needs no alignment.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }
}

fn kernel_to<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(
    output: PixelFormat,
) -> Option<Kernel> {
    use PixelFormat::{Bgr0, Bgr24, Bgra, Rgb0, Rgb24, Rgb48, Rgba, Rgba64};
    match output {
        Rgb24 | Bgr24 => Some(run::<BYTES, COLUMNS, STEP, u8, 3>),
        Rgba | Bgra | Rgb0 | Bgr0 => Some(run::<BYTES, COLUMNS, STEP, u8, 4>),
        Rgb48 => Some(run::<BYTES, COLUMNS, STEP, u16, 3>),
        Rgba64 => Some(run::<BYTES, COLUMNS, STEP, u16, 4>),
        _ => None,
    }
}

/// A [`Kernel`] for samples of `BYTES`, where one of chroma stands for `COLUMNS` pixels of a row (0: there is none), and the next of
/// its kind is `STEP` further.
fn run<const BYTES: usize, const COLUMNS: usize, const STEP: usize, C: Channel, const CHANNELS: usize>(
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { run_avx2::<BYTES, COLUMNS, STEP, C, CHANNELS>(group, scales, output) };
    }
    run_inline::<BYTES, COLUMNS, STEP, C, CHANNELS, false>(group, scales, output);
}

/// The same code, compiled for more.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<
    const BYTES: usize,
    const COLUMNS: usize,
    const STEP: usize,
    C: Channel,
    const CHANNELS: usize,
>(
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    run_inline::<BYTES, COLUMNS, STEP, C, CHANNELS, true>(group, scales, output);
}

#[inline(always)]
fn run_inline<
    const BYTES: usize,
    const COLUMNS: usize,
    const STEP: usize,
    C: Channel,
    const CHANNELS: usize,
    const AVX2: bool,
>(
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    let luma_bytes = BLOCK * BYTES;
    let chroma_bytes = (BLOCK * BYTES * STEP).checked_div(COLUMNS).unwrap_or(0);
    let pixel_bytes = BLOCK * CHANNELS * size_of::<C>();
    let row_bytes = output.len() / group.luma.len();
    for block in 0..group.luma[0].len() / luma_bytes {
        let chroma = group.chroma.map(|row| &row[block * chroma_bytes..][..chroma_bytes]);
        let mut ffmpeg = [0; BLOCK];
        let parts = chroma_parts::<BYTES, COLUMNS, STEP, C>(chroma, group.places, scales, &mut ffmpeg);
        for (luma, row) in group.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            let luma = &luma[block * luma_bytes..][..luma_bytes];
            let pixels = &mut row[block * pixel_bytes..][..pixel_bytes];
            make_pixels::<BYTES, COLUMNS, C, CHANNELS, AVX2>(luma, &parts, &ffmpeg, scales, pixels);
        }
    }
}

/// A sample as 16 bits with a sign: half of its code values is 0.
#[inline(always)]
fn sample<const BYTES: usize>(bytes: &[u8], index: usize) -> i16 {
    let aligned = if BYTES == 1 {
        u16::from(bytes[index]) << 8
    } else {
        u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]) << 6
    };
    (aligned ^ 0x8000) as i16
}

/// What chroma adds to each channel of each pixel. In loops of their own, which compilers do many of at once; not in one.
#[inline(always)]
fn chroma_parts<const BYTES: usize, const COLUMNS: usize, const STEP: usize, C: Channel>(
    chroma: [&[u8]; 2],
    places: [usize; 2],
    scales: &Scales,
    ffmpeg: &mut [i16; BLOCK],
) -> [[C::Sum; BLOCK]; 3] {
    let factors = C::factors(scales);
    let mut parts = [[C::HALF; BLOCK]; 3];
    if COLUMNS == 0 {
        return parts;
    }
    let count = BLOCK / COLUMNS;
    let mut samples = [[0; BLOCK]; 2];
    let mut products = [[C::Sum::default(); BLOCK]; 3];
    let [ones, others] = &mut samples;
    for (index, (one, other)) in ones.iter_mut().zip(others).enumerate().take(count) {
        (*one, *other) = if STEP == 1 {
            (sample::<BYTES>(chroma[0], index), sample::<BYTES>(chroma[1], index))
        } else {
            (sample::<BYTES>(chroma[0], 2 * index), sample::<BYTES>(chroma[0], 2 * index + 1))
        };
    }
    let [firsts, lasts] = if STEP == 1 { [0, 1] } else { places }.map(|place| &samples[place]);
    for index in 0..count {
        let (first, last) = (firsts[index], lasts[index]);
        products[0][index] = C::product(first, factors.own[0]) + C::HALF;
        products[1][index] =
            C::product(first, factors.green[0]) + C::product(last, factors.green[1]) + C::HALF;
        products[2][index] = C::product(last, factors.own[1]) + C::HALF;
    }
    if COLUMNS == 2
        && let Some(green) = scales.ffmpeg
    {
        for index in 0..count {
            let most = green.most(firsts[index], lasts[index]);
            (ffmpeg[2 * index], ffmpeg[2 * index + 1]) = (most, most);
        }
    }
    for (parts, products) in parts.iter_mut().zip(&products) {
        for index in 0..count {
            for pixel in 0..COLUMNS {
                parts[index * COLUMNS + pixel] = products[index];
            }
        }
    }
    parts
}

#[inline(always)]
fn make_pixels<
    const BYTES: usize,
    const COLUMNS: usize,
    C: Channel,
    const CHANNELS: usize,
    const AVX2: bool,
>(
    luma: &[u8],
    chroma: &[[C::Sum; BLOCK]; 3],
    ffmpeg: &[i16; BLOCK],
    scales: &Scales,
    pixels: &mut [u8],
) {
    let factors = C::factors(scales);
    let mut sums = [C::Sum::default(); BLOCK];
    for (index, sum) in sums.iter_mut().enumerate() {
        *sum = C::product(sample::<BYTES>(luma, index), factors.luma) + factors.middle;
    }
    let mut channels = [[C::default(); BLOCK]; 3];
    let [first, green, last] = &mut channels;
    cut_all(&sums, &chroma[0], first);
    if CHANNELS > 1 {
        cut_all(&sums, &chroma[2], last);
        if COLUMNS == 2 && scales.ffmpeg.is_some() {
            cut_all_within(&sums, &chroma[1], ffmpeg, green);
        } else {
            cut_all(&sums, &chroma[1], green);
        }
    }
    C::lay_out::<CHANNELS, AVX2>(&channels, pixels);
}

#[inline(always)]
fn cut_all<C: Channel>(luma: &[C::Sum; BLOCK], parts: &[C::Sum; BLOCK], channel: &mut [C; BLOCK]) {
    for index in 0..BLOCK {
        channel[index] = C::cut(luma[index] + parts[index]);
    }
}

#[inline(always)]
fn cut_all_within<C: Channel>(
    luma: &[C::Sum; BLOCK],
    parts: &[C::Sum; BLOCK],
    most: &[i16; BLOCK],
    channel: &mut [C; BLOCK],
) {
    for index in 0..BLOCK {
        channel[index] = C::cut_within(luma[index], parts[index], most[index]);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{BLOCK, Channel};

    /// Tests from without see only what this processor is given.
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
    }
}
