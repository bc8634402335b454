//! From YUV to RGB, and from and to luma alone.
//!
//! The crate `yuv` could do it as fast, but 0.8.20 has colours wrong here: luma below black is cut off before chroma is added (up
//! to 18 code values; not in its portable code), 10 bits are rounded down, and in portable code run over 255 to 0. So this is plain
//! loops over blocks, of a size that compilers keep in registers and do many of at once.

use std::ops::{Add, Range};

use super::format::PixelFormat;
use super::strip::Target;
use super::{Conversion, Matrix, Range as ColorRange};

/// Pixels that are worked on at once. Measured: 32 take 1.1 times as long.
const BLOCK: usize = 64;

/// The rows that share one of chroma.
struct Group<'a> {
    luma: &'a [&'a [u8]],
    /// That of the first and that of the last channel of the output.
    chroma: [&'a [u8]; 2],
    /// Where the first's and the last's sample lies in a pair, where chroma has pairs.
    places: [usize; 2],
}

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
        let to_luma = output == Gray;
        let (kernel, bits) = match input {
            Yuv420p | Yuv422p | Yuv444p | Nv12 if to_luma => (run::<1, 0, 1, u8, 1> as Kernel, 8),
            Yuv420p10 | Yuv422p10 | Yuv444p10 if to_luma => (run::<2, 0, 1, u8, 1> as Kernel, 10),
            Gray => (kernel_to::<1, 0, 1>(output)?, 8),
            Yuv444p => (kernel_to::<1, 1, 1>(output)?, 8),
            Yuv420p | Yuv422p => (kernel_to::<1, 2, 1>(output)?, 8),
            Nv12 => (kernel_to::<1, 2, 2>(output)?, 8),
            Yuv444p10 => (kernel_to::<2, 1, 1>(output)?, 10),
            Yuv420p10 | Yuv422p10 => (kernel_to::<2, 2, 1>(output)?, 10),
            _ => return None,
        };
        let has_chroma = !to_luma && input != Gray;
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
            (self.kernel)(&Group { luma, chroma, places }, &scales, made);
        }
    }

    /// A row of chroma: that of the first channel, and that of the last.
    fn chroma<'a>(self, conversion: &Conversion, row: usize, input: &'a [u8]) -> ([&'a [u8]; 2], [usize; 2]) {
        if !self.has_chroma {
            return ([&[], &[]], [0, 0]);
        }
        let options = &conversion.options;
        let planes = options.input.planes();
        let bytes_of =
            |index: usize| planes[index].row_bytes(options.width) * planes[index].rows_of(options.height);
        let u = conversion.input_row(&planes[1], bytes_of(0), row, input);
        let v = planes
            .get(2)
            .map_or(u, |plane| conversion.input_row(plane, bytes_of(0) + bytes_of(1), row, input));
        // Red is made with V, blue with U.
        if self.blue_first { ([u, v], [0, 1]) } else { ([v, u], [1, 0]) }
    }
}

/// What a code value is worth, where white is 1.
struct Scales {
    bits: u32,
    luma: f64,
    /// What luma of half the code values is.
    middle: f64,
    /// The first channel's chroma in it, the last's in it.
    own: [f64; 2],
    /// Both in green.
    green: [f64; 2],
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
        let (own, green) = ([red, blue], [-red * kr / kg, -blue * kb / kg]);
        let in_order = |[red, blue]: [f64; 2]| if blue_first { [blue, red] } else { [red, blue] };
        let middle = f64::from((1 << (bits - 1)) - black) * luma;
        Self { bits, luma, middle, own: in_order(own), green: in_order(green) }
    }

    fn rounded<C: Channel>(&self) -> Fixed<C::Sum> {
        let of = |scale: f64| C::factor(scale, self.bits);
        let middle = C::middle(self.middle);
        Fixed { luma: of(self.luma), middle, own: self.own.map(of), green: self.green.map(of) }
    }
}

/// [`Scales`] as numbers to calculate with.
#[derive(Clone, Copy)]
struct Fixed<T> {
    luma: T,
    middle: T,
    own: [T; 2],
    green: [T; 2],
}

/// A sample of the output.
trait Channel: Copy + Default {
    /// What a pixel's parts are added up in.
    type Sum: Copy + Default + Add<Output = Self::Sum>;

    fn factor(scale: f64, bits: u32) -> Self::Sum;
    /// With what makes cutting off afterwards rounding to the nearest.
    fn middle(middle: f64) -> Self::Sum;
    /// `sample` has its first bit for its sign, and begins at it whatever its depth, of `BYTES`.
    fn product<const BYTES: usize>(sample: i16, factor: Self::Sum) -> Self::Sum;
    fn cut(sum: Self::Sum) -> Self;
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[Self; BLOCK]; 3], pixels: &mut [u8]);
}

/// In 32nds of a code value: so colours outside RGB, up to 2.2 times white (BT.2020's blue), do not run over 16 bits.
impl Channel for u8 {
    type Sum = i16;

    #[inline(always)]
    fn factor(scale: f64, bits: u32) -> i16 {
        (scale * 255.0 * f64::from(32 << bits)).round() as i16
    }
    /// A product of luma is cut off, too, which takes half of a 32nd on average. Those of chroma as well, but not when it is
    /// neutral: were that made up for, grays would be coloured.
    #[inline(always)]
    fn middle(middle: f64) -> i16 {
        (middle * 255.0 * 32.0 + 16.5).round() as i16
    }
    #[inline(always)]
    fn product<const BYTES: usize>(sample: i16, factor: i16) -> i16 {
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
            return unsafe { avx2::lay_out(channels, pixels) };
        }
        let (pixels, []) = pixels.as_chunks_mut::<CHANNELS>() else { unreachable!("a block is whole") };
        for (index, pixel) in pixels.iter_mut().enumerate() {
            *pixel =
                std::array::from_fn(|channel| channels.get(channel).map_or(255, |samples| samples[index]));
        }
    }
}

/// In 2^-13 of a code value: the finest for which colours outside RGB do not run over 32 bits.
impl Channel for u16 {
    type Sum = i32;

    #[inline(always)]
    fn factor(scale: f64, _: u32) -> i32 {
        (scale * 65535.0 * f64::from(1 << 13)).round() as i32
    }
    #[inline(always)]
    fn middle(middle: f64) -> i32 {
        (middle * 65535.0 * f64::from(1 << 13)).round() as i32 + (1 << 12)
    }
    #[inline(always)]
    fn product<const BYTES: usize>(sample: i16, factor: i32) -> i32 {
        i32::from(sample >> if BYTES == 1 { 8 } else { 6 }) * factor
    }
    #[inline(always)]
    fn cut(sum: i32) -> u16 {
        (sum >> 13).clamp(0, 65535) as u16
    }
    #[inline(always)]
    fn lay_out<const CHANNELS: usize, const AVX2: bool>(channels: &[[u16; BLOCK]; 3], pixels: &mut [u8]) {
        let (samples, []) = pixels.as_chunks_mut::<2>() else { unreachable!("a block is whole") };
        let (pixels, []) = samples.as_chunks_mut::<CHANNELS>() else { unreachable!("a block is whole") };
        for (index, pixel) in pixels.iter_mut().enumerate() {
            *pixel = std::array::from_fn(|channel| {
                channels.get(channel).map_or(65535, |samples| samples[index]).to_le_bytes()
            });
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

/// Converts a group of rows: of samples of `BYTES`, of which one of chroma stands for `COLUMNS` pixels (0: there is none) and follows
/// its neighbour after `STEP` of them.
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
    let fixed = scales.rounded::<C>();
    let luma_bytes = BLOCK * BYTES;
    let chroma_bytes = if COLUMNS == 0 { 0 } else { BLOCK / COLUMNS * STEP * BYTES };
    let pixel_bytes = BLOCK * CHANNELS * size_of::<C>();
    let row_bytes = output.len() / group.luma.len();
    let whole = group.luma[0].len() / luma_bytes;
    for block in 0..whole {
        let chroma = group.chroma.map(|row| &row[block * chroma_bytes..][..chroma_bytes]);
        let parts = chroma_parts::<BYTES, COLUMNS, STEP, C>(chroma, group.places, &fixed);
        for (luma, row) in group.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            let luma = &luma[block * luma_bytes..][..luma_bytes];
            let pixels = &mut row[block * pixel_bytes..][..pixel_bytes];
            pixels_of::<BYTES, C, CHANNELS, AVX2>(luma, &parts, &fixed, pixels);
        }
    }
    if group.luma[0].len() == whole * luma_bytes {
        return;
    }
    // What is left goes through blocks that are longer.
    let (mut chroma, mut made) = ([[0; 4 * BLOCK]; 2], [0; 8 * BLOCK]);
    for (padded, row) in chroma.iter_mut().zip(group.chroma) {
        let rest = &row[whole * chroma_bytes..];
        padded[..rest.len()].copy_from_slice(rest);
    }
    let chroma = chroma.each_ref().map(|padded| &padded[..chroma_bytes]);
    let parts = chroma_parts::<BYTES, COLUMNS, STEP, C>(chroma, group.places, &fixed);
    for (luma, row) in group.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
        let mut padded = [0; 2 * BLOCK];
        let rest = &luma[whole * luma_bytes..];
        padded[..rest.len()].copy_from_slice(rest);
        pixels_of::<BYTES, C, CHANNELS, AVX2>(
            &padded[..luma_bytes],
            &parts,
            &fixed,
            &mut made[..pixel_bytes],
        );
        let row = &mut row[whole * pixel_bytes..];
        row.copy_from_slice(&made[..row.len()]);
    }
}

/// A sample as 16 bits with a sign, half of its code values being 0, whatever its depth.
#[inline(always)]
fn sample<const BYTES: usize>(bytes: &[u8], index: usize) -> i16 {
    let aligned = if BYTES == 1 {
        u16::from(bytes[index]) << 8
    } else {
        u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]]) << 6
    };
    (aligned ^ 0x8000) as i16
}

/// What chroma adds to each channel of each pixel.
#[inline(always)]
fn chroma_parts<const BYTES: usize, const COLUMNS: usize, const STEP: usize, C: Channel>(
    chroma: [&[u8]; 2],
    places: [usize; 2],
    fixed: &Fixed<C::Sum>,
) -> [[C::Sum; BLOCK]; 3] {
    let mut parts = [[C::Sum::default(); BLOCK]; 3];
    if COLUMNS == 0 {
        return parts;
    }
    for index in 0..BLOCK / COLUMNS {
        let [first, last] = if STEP == 1 {
            chroma.map(|row| sample::<BYTES>(row, index))
        } else {
            [0, 1].map(|channel| sample::<BYTES>(chroma[0], index * 2 + places[channel]))
        };
        for pixel in index * COLUMNS..(index + 1) * COLUMNS {
            parts[0][pixel] = C::product::<BYTES>(first, fixed.own[0]);
            parts[1][pixel] =
                C::product::<BYTES>(first, fixed.green[0]) + C::product::<BYTES>(last, fixed.green[1]);
            parts[2][pixel] = C::product::<BYTES>(last, fixed.own[1]);
        }
    }
    parts
}

#[inline(always)]
fn pixels_of<const BYTES: usize, C: Channel, const CHANNELS: usize, const AVX2: bool>(
    luma: &[u8],
    chroma: &[[C::Sum; BLOCK]; 3],
    fixed: &Fixed<C::Sum>,
    pixels: &mut [u8],
) {
    let mut channels = [[C::default(); BLOCK]; 3];
    for (channel, parts) in channels.iter_mut().zip(chroma) {
        for index in 0..BLOCK {
            let luma = C::product::<BYTES>(sample::<BYTES>(luma, index), fixed.luma) + fixed.middle;
            channel[index] = C::cut(luma + parts[index]);
        }
    }
    C::lay_out::<CHANNELS, AVX2>(&channels, pixels);
}
