//! From YUV and gray to RGB, against a reference in 64-bit floating point.

use crate::common::{MATRICES, RANGES, convert, options};
use penstock_pixels::{Conversion, Matrix, OddSize, PixelFormat, Range};

use PixelFormat::{
    Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p, Yuv422p10,
    Yuv444p, Yuv444p10,
};

const INPUTS: [PixelFormat; 8] = [Yuv420p, Yuv422p, Yuv444p, Nv12, Yuv420p10, Yuv422p10, Yuv444p10, Gray];
const OUTPUTS: [PixelFormat; 8] = [Rgb24, Bgr24, Rgba, Bgra, Rgb0, Bgr0, Rgb48, Rgba64];

/// Bits of a sample, and the columns and rows that share one of chroma; none of them where there is none.
fn layout(format: PixelFormat) -> (u32, Option<(usize, usize)>) {
    match format {
        Gray => (8, None),
        Yuv420p | Nv12 => (8, Some((2, 2))),
        Yuv422p => (8, Some((2, 1))),
        Yuv444p => (8, Some((1, 1))),
        Yuv420p10 => (10, Some((2, 2))),
        Yuv422p10 => (10, Some((2, 1))),
        Yuv444p10 => (10, Some((1, 1))),
        other => panic!("{other:?} is no input here"),
    }
}

/// The samples of a frame, plane by plane.
struct Yuv {
    format: PixelFormat,
    size: (usize, usize),
    planes: [Vec<u16>; 3],
}

impl Yuv {
    /// `paint` gives shares of what a sample can be, by plane, column and row.
    fn new(format: PixelFormat, size: (usize, usize), mut paint: impl FnMut(usize, f64, f64) -> f64) -> Self {
        let (bits, shared_by) = layout(format);
        let peak = f64::from((1 << bits) - 1);
        let planes = [0, 1, 2].map(|plane| {
            let (columns, rows) =
                if plane == 0 { (1, 1) } else { shared_by.unwrap_or((usize::MAX, usize::MAX)) };
            let (width, height) = (size.0.div_ceil(columns), size.1.div_ceil(rows));
            let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
            let sample = |(x, y)| paint(plane, x as f64 / width as f64, y as f64 / height as f64);
            places.map(sample).map(|share: f64| (share * peak).round() as u16).collect()
        });
        Self { format, size, planes }
    }

    /// Every code value there is, also such as stand for no color.
    fn noise(format: PixelFormat, size: (usize, usize)) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        Self::new(format, size, |_, _, _| {
            // xorshift64 (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f64 / (1 << 24) as f64
        })
    }

    fn gradient(format: PixelFormat, size: (usize, usize)) -> Self {
        Self::new(format, size, |plane, x, y| [x, y, 1.0 - x][plane])
    }

    /// Chroma at its ends, in all pairs, and luma of all kinds: most of it outside RGB.
    fn bars(format: PixelFormat, size: (usize, usize)) -> Self {
        let ends = |x: f64, count: f64| f64::from((x * count) as u32 % 2);
        Self::new(format, size, |plane, x, y| [y, ends(x, 8.0), ends(x, 16.0)][plane])
    }

    fn bytes(&self) -> Vec<u8> {
        let [luma, u, v] = &self.planes;
        let samples: Vec<u16> = match self.format {
            Gray => luma.clone(),
            Nv12 => luma.iter().copied().chain(u.iter().zip(v).flat_map(|(u, v)| [*u, *v])).collect(),
            _ => [&luma[..], u, v].concat(),
        };
        if layout(self.format).0 == 8 {
            samples.into_iter().map(|sample| sample as u8).collect()
        } else {
            samples.into_iter().flat_map(u16::to_le_bytes).collect()
        }
    }

    /// Each pixel's red, green and blue, from 0 to `white`, as the definition has them (ITU-T H.273, 8.3), not rounded. A sample of
    /// chroma stands for all its pixels.
    fn reference(&self, matrix: Matrix, range: Range, white: f64) -> Vec<[f64; 3]> {
        let (kr, kb) = match matrix {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
            _ => unreachable!("all of MATRICES are above"),
        };
        let (bits, shared_by) = layout(self.format);
        let (depth, peak) = (f64::from(1 << (bits - 8)), f64::from((1 << bits) - 1));
        let range = if self.format == Gray { Range::Full } else { range };
        let (black, luma_scale, chroma_scale) = match range {
            Range::Limited => (16.0 * depth, 219.0 * depth, 224.0 * depth),
            Range::Full => (0.0, peak, peak),
        };
        let pixel = |x: usize, y: usize| {
            let luma = (f64::from(self.planes[0][y * self.size.0 + x]) - black) / luma_scale;
            let [cb, cr] = [1, 2].map(|plane| {
                shared_by.map_or(0.0, |(columns, rows)| {
                    let place = y / rows * self.size.0.div_ceil(columns) + x / columns;
                    (f64::from(self.planes[plane][place]) - 128.0 * depth) / chroma_scale
                })
            });
            let (red, blue) = (luma + 2.0 * (1.0 - kr) * cr, luma + 2.0 * (1.0 - kb) * cb);
            let green = (luma - kr * red - kb * blue) / (1.0 - kr - kb);
            [red, green, blue].map(|share| (share * white).clamp(0.0, white))
        };
        (0..self.size.1)
            .flat_map(|y| (0..self.size.0).map(move |x| (x, y)))
            .map(|(x, y)| pixel(x, y))
            .collect()
    }
}

/// Channels of a pixel, what white is, and red's place.
fn shape(format: PixelFormat) -> (usize, f64, usize) {
    match format {
        Rgb24 => (3, 255.0, 0),
        Bgr24 => (3, 255.0, 2),
        Rgba | Rgb0 => (4, 255.0, 0),
        Bgra | Bgr0 => (4, 255.0, 2),
        Rgb48 => (3, 65535.0, 0),
        Rgba64 => (4, 65535.0, 0),
        other => panic!("{other:?} is no RGB"),
    }
}

/// Each pixel's red, green and blue. Alpha, or what is in its place, is seen to be opaque.
fn pixels(format: PixelFormat, bytes: &[u8]) -> Vec<[f64; 3]> {
    let (channels, white, red) = shape(format);
    let samples: Vec<f64> = if white == 255.0 {
        bytes.iter().map(|byte| f64::from(*byte)).collect()
    } else {
        bytes.chunks(2).map(|pair| f64::from(u16::from_le_bytes([pair[0], pair[1]]))).collect()
    };
    let pixel = |samples: &[f64]| {
        assert!(samples.get(3).is_none_or(|alpha| *alpha == white), "{format:?}");
        [samples[red], samples[1], samples[2 - red]]
    };
    samples.chunks(channels).map(pixel).collect()
}

fn worst(got: &[[f64; 3]], expected: &[[f64; 3]]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let pairs = got.iter().flatten().zip(expected.iter().flatten());
    pairs.map(|(got, expected)| (got - expected).abs()).fold(0.0, f64::max)
}

/// How far from the exact value a sample may be.
const ALLOWED: f64 = 0.51;

#[test]
fn colors_are_those_of_the_definition() {
    let sizes = [(131, 7), (128, 4), (67, 5), (64, 2), (63, 3), (2, 2), (1, 1), (1, 7), (9, 1), (65, 1)];
    for (input, output) in INPUTS.into_iter().flat_map(|input| OUTPUTS.map(|output| (input, output))) {
        for (matrix, range) in MATRICES.into_iter().flat_map(|matrix| RANGES.map(|range| (matrix, range))) {
            // Matrices and ranges are arithmetic, which does not depend on the size.
            let usual = (matrix, range) == (Matrix::default(), Range::default());
            for size in sizes.into_iter().take(if usual { sizes.len() } else { 1 }) {
                for paint in [Yuv::gradient, Yuv::noise, Yuv::bars] {
                    let yuv = paint(input, size);
                    let wanted = options(input, output, size).matrix(matrix).range(range);
                    let got = pixels(output, &convert(&wanted, &yuv.bytes()));
                    let off = worst(&got, &yuv.reference(matrix, range, shape(output).1));
                    assert!(off <= ALLOWED, "{wanted:?}: {off} off");
                }
            }
        }
    }
}

/// Every luma with every level of each chroma.
#[test]
fn every_color_is_within_half_a_level() {
    for (input, output) in
        [Yuv444p, Yuv444p10].into_iter().flat_map(|input| OUTPUTS.map(|output| (input, output)))
    {
        let levels = 1 << layout(input).0;
        let yuv = Yuv::new(input, (levels, levels), |plane, x, y| {
            let (x, y) = (x * levels as f64, y * levels as f64);
            [x, y, (x * 7.0 + y * 5.0) % levels as f64][plane] / (levels - 1) as f64
        });
        let bytes = yuv.bytes();
        for (matrix, range) in MATRICES.into_iter().flat_map(|matrix| RANGES.map(|range| (matrix, range))) {
            let wanted = options(input, output, yuv.size).matrix(matrix).range(range);
            let off = worst(
                &pixels(output, &convert(&wanted, &bytes)),
                &yuv.reference(matrix, range, shape(output).1),
            );
            assert!(off <= ALLOWED, "{wanted:?}: {off} off");
        }
    }
}

/// Rounding errors are few: of all colors, one in a hundred is next to the nearest.
#[test]
fn most_colors_are_the_nearest() {
    for (input, output) in INPUTS.into_iter().flat_map(|input| OUTPUTS.map(|output| (input, output))) {
        let yuv = Yuv::noise(input, (640, 64));
        let wanted = options(input, output, (640, 64));
        let got = pixels(output, &convert(&wanted, &yuv.bytes()));
        let expected = yuv.reference(wanted.matrix, wanted.range, shape(output).1);
        let all = got.iter().flatten().zip(expected.iter().flatten());
        let off = all.filter(|(got, expected)| **got != expected.round()).count();
        assert!(off * 100 < got.len() * 3, "{input:?} to {output:?}: {off} of {}", got.len() * 3);
    }
}

#[test]
fn grays_have_no_color_and_end_in_black_and_white() {
    for (input, output) in INPUTS.into_iter().flat_map(|input| OUTPUTS.map(|output| (input, output))) {
        for range in RANGES {
            let (bits, _) = layout(input);
            let depth = 1 << (bits - 8);
            let neutral = f64::from(128 * depth) / f64::from((1 << bits) - 1);
            let yuv = Yuv::new(input, (1 << bits, 2), |plane, x, _| if plane == 0 { x } else { neutral });
            let made = convert(&options(input, output, yuv.size).range(range), &yuv.bytes());
            let got = pixels(output, &made);
            assert!(got.iter().all(|[red, green, blue]| red == green && green == blue));
            let limited = range == Range::Limited && input != Gray;
            let (black, white) = if limited { (16 * depth, 235 * depth) } else { (0, (1 << bits) - 1) };
            for (luma, [gray, ..]) in yuv.planes[0].iter().zip(&got) {
                let luma = i32::from(*luma);
                assert!(luma > black || *gray == 0.0, "{input:?} {output:?} {range:?} {luma}: {gray}");
                assert!(
                    luma < white || *gray == shape(output).1,
                    "{input:?} {output:?} {range:?} {luma}: {gray}"
                );
            }
        }
    }
}

#[test]
fn luma_becomes_gray_of_the_full_range() {
    for input in INPUTS.into_iter().filter(|input| *input != Gray) {
        for (range, size) in RANGES.into_iter().flat_map(|range| [(range, (256, 4)), (range, (67, 5))]) {
            let yuv = Yuv::noise(input, size);
            let got = convert(&options(input, Gray, size).range(range), &yuv.bytes());
            let only_luma = Yuv { format: Gray, size, planes: [yuv.planes[0].clone(), vec![], vec![]] };
            let (bits, _) = layout(input);
            let depth = f64::from(1 << (bits - 8));
            let (black, scale) = match range {
                Range::Limited => (16.0 * depth, 219.0 * depth),
                Range::Full => (0.0, f64::from((1 << bits) - 1)),
            };
            for (luma, gray) in only_luma.planes[0].iter().zip(&got) {
                let expected = ((f64::from(*luma) - black) / scale * 255.0).clamp(0.0, 255.0);
                assert!((f64::from(*gray) - expected).abs() <= ALLOWED, "{input:?} {range:?} {luma}: {gray}");
            }
            assert_eq!(got.len(), only_luma.planes[0].len());
        }
    }
}

#[test]
fn a_frame_that_is_turned_over_as_it_is_converted_is_one_that_was_turned_over_before() {
    for (input, output) in
        INPUTS.into_iter().flat_map(|input| [Rgb24, Bgra, Rgb48].map(|output| (input, output)))
    {
        for size in [(64, 48), (33, 22), (1, 2), (640, 402)] {
            let frame = Yuv::noise(input, size).bytes();
            let turned = convert(&options(input, input, size).vertical_flip(true), &frame);
            let plain = options(input, output, size);
            let flipped = convert(&plain.vertical_flip(true), &frame);
            assert!(flipped == convert(&plain, &turned), "{input:?} to {output:?} {size:?}");
            assert!(size.0 == 1 || flipped != convert(&plain, &frame), "{input:?} to {output:?} {size:?}");
        }
    }
}

#[test]
fn chroma_of_an_odd_number_of_rows_is_not_turned_over() {
    let flip = options(Yuv420p, Rgb24, (8, 7)).vertical_flip(true);
    assert!(Conversion::new(&flip).is_err());
    assert!(Conversion::new(&options(Yuv422p, Rgb24, (8, 7)).vertical_flip(true)).is_ok());
}

/// A large frame is made in strips, those that are not the first beginning in the middle of the planes.
#[test]
fn a_frame_in_many_strips_is_right_throughout() {
    let size = (1003, 203);
    for input in INPUTS {
        let yuv = Yuv::noise(input, size);
        let wanted = options(input, Rgb24, size);
        assert!(Conversion::new(&wanted).unwrap().strips() > 1);
        let got = pixels(Rgb24, &convert(&wanted, &yuv.bytes()));
        assert!(worst(&got, &yuv.reference(wanted.matrix, wanted.range, 255.0)) <= ALLOWED, "{input:?}");
    }
}

/// Nothing is padded or cropped: every pixel of RGB has its own color.
#[test]
fn odd_sizes_are_kept() {
    for odd_size in [OddSize::Pad, OddSize::Crop, OddSize::Keep] {
        let wanted = options(Yuv420p, Rgb24, (33, 21)).odd_size(odd_size);
        let conversion = Conversion::new(&wanted).unwrap();
        assert_eq!((conversion.output_width(), conversion.output_height()), (33, 21));
        let frame = Yuv::noise(Yuv420p, (33, 21)).bytes();
        assert!(convert(&wanted, &frame) == convert(&options(Yuv420p, Rgb24, (33, 21)), &frame));
    }
}
