//! From YUV to RGB, and from and to luma alone.
//!
//! The crate `yuv` could do it as fast, but 0.8.20 has colours wrong here: luma below black is cut off before chroma is added (up
//! to 18 code values; not in its portable code), 10 bits are rounded down, and in portable code run over 255 to 0. So this is plain
//! loops over blocks, of a size that compilers keep in registers and do many of at once.

use std::ops::{Add, Range};

use super::format::{PixelFormat, Plane};
use super::strip::Target;
use super::{Conversion, Matrix, Range as ColorRange};

/// Pixels that are worked on at once. Measured: 32 take 1.1 times as long.
const BLOCK: usize = 64;
const HALF: usize = BLOCK / 2;

/// How samples of luma and chroma lie.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bits: u32,
    /// Pixels in a row that a sample of chroma stands for; 0 where there is none, or none is wanted.
    columns: usize,
    /// Samples of chroma from one to the next of its kind: 2 where both kinds are in one plane.
    step: usize,
}

/// The rows that share one of chroma.
struct Group<'a> {
    luma: &'a [&'a [u8]],
    /// That of the first and that of the last channel of the output.
    chroma: [&'a [u8]; 2],
}

type Kernel = fn(Layout, &Group<'_>, &Scales, &mut [u8]);

/// How luma and chroma become channels of RGB.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToRgb {
    kernel: Kernel,
    layout: Layout,
    blue_first: bool,
}

impl ToRgb {
    pub(super) fn between(input: PixelFormat, output: PixelFormat) -> Option<Self> {
        use PixelFormat::{
            Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p,
            Yuv422p10, Yuv444p, Yuv444p10,
        };
        let (bits, columns, step) = match input {
            Gray => (8, 0, 1),
            Yuv444p => (8, 1, 1),
            Yuv420p | Yuv422p => (8, 2, 1),
            Nv12 => (8, 2, 2),
            Yuv444p10 => (10, 1, 1),
            Yuv420p10 | Yuv422p10 => (10, 2, 1),
            _ => return None,
        };
        let kernel: Kernel = match output {
            Gray => run::<u8, 1>,
            Rgb24 | Bgr24 => run::<u8, 3>,
            Rgba | Bgra | Rgb0 | Bgr0 => run::<u8, 4>,
            Rgb48 => run::<u16, 3>,
            Rgba64 => run::<u16, 4>,
            _ => return None,
        };
        let layout = Layout { bits, columns: if output == Gray { 0 } else { columns }, step };
        Some(Self { kernel, layout, blue_first: matches!(output, Bgr24 | Bgra | Bgr0) })
    }

    /// Makes these rows of the output, which begin at an even one.
    pub(super) fn make(
        self,
        conversion: &Conversion,
        rows: &Range<usize>,
        input: &[u8],
        target: &mut Target<'_>,
    ) {
        let scales = Scales::new(conversion, self.layout.bits, self.blue_first);
        let planes = conversion.options.input.planes();
        let shared_by = if self.layout.columns == 0 { 1 } else { planes[1].rows };
        let made = target.planes[0].chunks_mut(shared_by * target.row_bytes[0]);
        for (first, made) in rows.clone().step_by(shared_by).zip(made) {
            let luma = [first, (first + 1).min(rows.end - 1)]
                .map(|row| conversion.input_row(&planes[0], 0, row, input));
            let luma = &luma[..shared_by.min(rows.end - first)];
            let chroma = self.chroma(conversion, first / shared_by, input);
            (self.kernel)(self.layout, &Group { luma, chroma }, &scales, made);
        }
    }

    /// A row of chroma: that of the first channel, and that of the last.
    fn chroma<'a>(self, conversion: &Conversion, row: usize, input: &'a [u8]) -> [&'a [u8]; 2] {
        if self.layout.columns == 0 {
            return [&[], &[]];
        }
        let options = &conversion.options;
        let planes = options.input.planes();
        let bytes = |plane: &Plane| plane.row_bytes(options.width) * plane.rows_of(options.height);
        let u_start = bytes(&planes[0]);
        let u = conversion.input_row(&planes[1], u_start, row, input);
        let v = match planes.get(2) {
            Some(plane) => conversion.input_row(plane, u_start + bytes(&planes[1]), row, input),
            None => &u[1..],
        };
        // Red is made with V, blue with U.
        if self.blue_first { [u, v] } else { [v, u] }
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
    fn product(sample: i16, factor: Self::Sum) -> Self::Sum;
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
    fn factor(scale: f64, bits: u32) -> i32 {
        (scale * 65535.0 * f64::from(1 << (3 + bits))).round() as i32
    }
    #[inline(always)]
    fn middle(middle: f64) -> i32 {
        (middle * 65535.0 * f64::from(1 << 13)).round() as i32 + (1 << 12)
    }
    #[inline(always)]
    fn product(sample: i16, factor: i32) -> i32 {
        // 10 bits of it: the others are 0.
        i32::from(sample >> 6) * factor
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

/// Converts a group of rows.
fn run<C: Channel, const CHANNELS: usize>(
    layout: Layout,
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { run_avx2::<C, CHANNELS>(layout, group, scales, output) };
    }
    run_inline::<C, CHANNELS, false>(layout, group, scales, output);
}

/// The same code, compiled for more.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2<C: Channel, const CHANNELS: usize>(
    layout: Layout,
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    run_inline::<C, CHANNELS, true>(layout, group, scales, output);
}

#[inline(always)]
fn run_inline<C: Channel, const CHANNELS: usize, const AVX2: bool>(
    layout: Layout,
    group: &Group<'_>,
    scales: &Scales,
    output: &mut [u8],
) {
    let fixed = scales.rounded::<C>();
    let (luma_bytes, chroma_bytes) = (layout.luma_bytes(), layout.chroma_bytes());
    let pixel_bytes = BLOCK * CHANNELS * size_of::<C>();
    let row_bytes = output.len() / group.luma.len();
    let mut block = Block::<C>::default();
    for index in 0..group.luma[0].len().div_ceil(luma_bytes) {
        block.read_chroma(layout, group.chroma.map(|row| rest(row, index * chroma_bytes)), &fixed);
        for (luma, row) in group.luma.iter().zip(output.chunks_exact_mut(row_bytes)) {
            block.read_luma(layout, &luma[index * luma_bytes..], &fixed);
            let row = &mut row[index * pixel_bytes..];
            if let Some(pixels) = row.get_mut(..pixel_bytes) {
                C::lay_out::<CHANNELS, AVX2>(&block.channels, pixels);
            } else {
                let mut padded = [0; 8 * BLOCK];
                C::lay_out::<CHANNELS, AVX2>(&block.channels, &mut padded[..pixel_bytes]);
                row.copy_from_slice(&padded[..row.len()]);
            }
        }
    }
}

/// None of a row that is not there.
#[inline(always)]
fn rest(row: &[u8], from: usize) -> &[u8] {
    row.get(from..).unwrap_or_default()
}

/// What is made of some columns, in steps.
struct Block<C: Channel> {
    /// What chroma adds to each channel of each pixel.
    parts: [[C::Sum; BLOCK]; 3],
    channels: [[C; BLOCK]; 3],
}

impl<C: Channel> Default for Block<C> {
    fn default() -> Self {
        Self { parts: [[C::Sum::default(); BLOCK]; 3], channels: [[C::default(); BLOCK]; 3] }
    }
}

impl<C: Channel> Block<C> {
    #[inline(always)]
    fn read_chroma(&mut self, layout: Layout, rows: [&[u8]; 2], fixed: &Fixed<C::Sum>) {
        match (layout.bits, layout.columns, layout.step) {
            (_, 0, _) => {}
            (8, 1, _) => self.add_products::<1, 1, BLOCK>(rows, fixed),
            (8, _, 1) => self.add_products::<1, 1, HALF>(rows, fixed),
            (8, _, _) => self.add_products::<1, 2, HALF>(rows, fixed),
            (_, 1, _) => self.add_products::<2, 1, BLOCK>(rows, fixed),
            _ => self.add_products::<2, 1, HALF>(rows, fixed),
        }
    }

    #[inline(always)]
    fn add_products<const BYTES: usize, const STEP: usize, const COUNT: usize>(
        &mut self,
        rows: [&[u8]; 2],
        fixed: &Fixed<C::Sum>,
    ) {
        let first = samples::<BYTES, STEP, COUNT>(rows[0]);
        let last = samples::<BYTES, STEP, COUNT>(rows[1]);
        let mut parts = [[C::Sum::default(); COUNT]; 3];
        for index in 0..COUNT {
            parts[0][index] = C::product(first[index], fixed.own[0]);
            parts[2][index] = C::product(last[index], fixed.own[1]);
            parts[1][index] =
                C::product(first[index], fixed.green[0]) + C::product(last[index], fixed.green[1]);
        }
        for channel in 0..3 {
            for index in 0..COUNT {
                for pixel in 0..BLOCK / COUNT {
                    self.parts[channel][index * (BLOCK / COUNT) + pixel] = parts[channel][index];
                }
            }
        }
    }

    #[inline(always)]
    fn read_luma(&mut self, layout: Layout, row: &[u8], fixed: &Fixed<C::Sum>) {
        if layout.bits == 8 {
            self.add_luma(&samples::<1, 1, BLOCK>(row), fixed);
        } else {
            self.add_luma(&samples::<2, 1, BLOCK>(row), fixed);
        }
    }

    #[inline(always)]
    fn add_luma(&mut self, luma: &[i16; BLOCK], fixed: &Fixed<C::Sum>) {
        for channel in 0..3 {
            for index in 0..BLOCK {
                let luma = C::product(luma[index], fixed.luma) + fixed.middle;
                self.channels[channel][index] = C::cut(luma + self.parts[channel][index]);
            }
        }
    }
}

impl Layout {
    fn luma_bytes(self) -> usize {
        if self.bits == 8 { BLOCK } else { 2 * BLOCK }
    }

    fn chroma_bytes(self) -> usize {
        self.luma_bytes().checked_div(self.columns).map_or(0, |bytes| bytes * self.step)
    }
}

/// Samples of `BYTES` every `STEP`, as 16 bits with a sign: half of their code values is 0. Those that the row lacks are any.
#[inline(always)]
fn samples<const BYTES: usize, const STEP: usize, const COUNT: usize>(row: &[u8]) -> [i16; COUNT] {
    // Not all of the last step: where both kinds of chroma are in one plane, that of the second kind ends before it does.
    let needed = (COUNT - 1) * STEP * BYTES + BYTES;
    match row.get(..needed) {
        Some(row) => whole_samples::<BYTES, STEP, COUNT>(row),
        None => padded_samples::<BYTES, STEP, COUNT>(row),
    }
}

#[cold]
#[inline(never)]
fn padded_samples<const BYTES: usize, const STEP: usize, const COUNT: usize>(row: &[u8]) -> [i16; COUNT] {
    let mut padded = [0; 2 * BLOCK];
    padded[..row.len()].copy_from_slice(row);
    whole_samples::<BYTES, STEP, COUNT>(&padded)
}

#[inline(always)]
fn whole_samples<const BYTES: usize, const STEP: usize, const COUNT: usize>(row: &[u8]) -> [i16; COUNT] {
    let row = &row[..(COUNT - 1) * STEP * BYTES + BYTES];
    let mut made = [0; COUNT];
    for index in 0..COUNT {
        let first = index * STEP * BYTES;
        let aligned = if BYTES == 1 {
            u16::from(row[first]) << 8
        } else {
            u16::from_le_bytes([row[first], row[first + 1]]) << 6
        };
        made[index] = (aligned ^ 0x8000) as i16;
    }
    made
}
