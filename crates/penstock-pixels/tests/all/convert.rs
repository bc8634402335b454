//! Conversions against a reference in 64-bit floating point, and against each other.

use crate::common::{MATRICES, RANGES, convert, options};
use penstock_pixels::{Conversion, Matrix, OddSize, PixelFormat, Range};

use PixelFormat::{
    Bgr0, Bgr24, Bgra, Gray, Nv12, Rgb0, Rgb24, Rgb48, Rgba, Rgba64, Yuv420p, Yuv420p10, Yuv422p, Yuv422p10,
    Yuv444p, Yuv444p10,
};

const RGBS: [PixelFormat; 8] = [Rgb24, Bgr24, Rgba, Bgra, Rgb0, Bgr0, Rgb48, Rgba64];
const YUVS: [PixelFormat; 7] = [Yuv420p, Yuv422p, Yuv444p, Nv12, Yuv420p10, Yuv422p10, Yuv444p10];

/// A picture in three channels from 0 to 1, rows first.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[f64; 3]>,
}

impl Picture {
    fn new((width, height): (usize, usize), mut paint: impl FnMut(usize, usize) -> [f64; 3]) -> Self {
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self { width, height, pixels: places.map(|(x, y)| paint(x, y)).collect() }
    }

    fn gradient(size: (usize, usize)) -> Self {
        let (w, h) = (size.0.max(2) as f64 - 1.0, size.1.max(2) as f64 - 1.0);
        Self::new(size, |x, y| [x as f64 / w, y as f64 / h, 1.0 - x as f64 / w])
    }

    fn noise(size: (usize, usize)) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        Self::new(size, |_, _| {
            [(); 3].map(|()| {
                // xorshift64 (Marsaglia 2003).
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f64 / (1 << 24) as f64
            })
        })
    }

    fn saturated_bars(size: (usize, usize)) -> Self {
        Self::new(size, |x, y| [x / 3 % 2, x / 5 % 2, (x / 7 + y / 4) % 2].map(|on| on as f64))
    }

    /// Rounds to what the format can hold, and lays it out in it.
    fn quantized(&mut self, format: PixelFormat) -> Vec<u8> {
        let (channels, white, order) = match format {
            Rgb24 => (3, 255.0, [0, 1, 2]),
            Bgr24 => (3, 255.0, [2, 1, 0]),
            Rgba | Rgb0 => (4, 255.0, [0, 1, 2]),
            Bgra | Bgr0 => (4, 255.0, [2, 1, 0]),
            Rgb48 => (3, 65535.0, [0, 1, 2]),
            Rgba64 => (4, 65535.0, [0, 1, 2]),
            other => panic!("{other:?} is no RGB"),
        };
        let mut bytes = Vec::new();
        for pixel in &mut self.pixels {
            let samples = pixel.map(|value| (value * white).round());
            *pixel = samples.map(|sample| sample / white);
            for channel in 0..channels {
                let sample = order.get(channel).map_or(77.0, |source| samples[*source]);
                bytes.extend_from_slice(&(sample as u16).to_le_bytes()[..if white > 255.0 { 2 } else { 1 }]);
            }
        }
        bytes
    }

    /// The planes of YUV as the definition has them (ITU-T H.273, 8.3), chroma as the mean of its pixels, unrounded.
    fn reference(
        &self,
        matrix: Matrix,
        range: Range,
        bits: u32,
        columns: usize,
        rows: usize,
    ) -> [Vec<f64>; 3] {
        let (kr, kb) = match matrix {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
            Matrix::Bt2020 => (0.2627, 0.0593),
            _ => unreachable!("all of MATRICES are above"),
        };
        let (depth, peak) = (f64::from(1 << (bits - 8)), f64::from((1 << bits) - 1));
        let (black, luma_scale, chroma_scale) = match range {
            Range::Limited => (16.0 * depth, 219.0 * depth, 224.0 * depth),
            Range::Full => (0.0, peak, peak),
        };
        let ycc: Vec<_> = self
            .pixels
            .iter()
            .map(|[r, g, b]| {
                let y = kr * r + (1.0 - kr - kb) * g + kb * b;
                [y, (b - y) / (2.0 * (1.0 - kb)), (r - y) / (2.0 * (1.0 - kr))]
            })
            .collect();
        let luma = ycc.iter().map(|ycc| black + luma_scale * ycc[0]).collect();
        let chroma = |channel: usize| {
            let mut plane = Vec::new();
            for y in (0..self.height).step_by(rows) {
                for x in (0..self.width).step_by(columns) {
                    let block = (y..(y + rows).min(self.height))
                        .flat_map(|y| (x..(x + columns).min(self.width)).map(move |x| (x, y)));
                    let values: Vec<_> = block.map(|(x, y)| ycc[y * self.width + x][channel]).collect();
                    let mean = values.iter().sum::<f64>() / values.len() as f64;
                    plane.push((128.0 * depth + chroma_scale * mean).clamp(0.0, peak));
                }
            }
            plane
        };
        [luma, chroma(1), chroma(2)]
    }
}

fn layout(format: PixelFormat) -> (u32, usize, usize) {
    match format {
        Yuv420p | Nv12 => (8, 2, 2),
        Yuv422p => (8, 2, 1),
        Yuv444p => (8, 1, 1),
        Yuv420p10 => (10, 2, 2),
        Yuv422p10 => (10, 2, 1),
        Yuv444p10 => (10, 1, 1),
        other => panic!("{other:?} is no YUV"),
    }
}

/// The samples of the three planes.
fn planes(format: PixelFormat, bytes: &[u8], (width, height): (usize, usize)) -> [Vec<f64>; 3] {
    let (bits, columns, rows) = layout(format);
    let samples: Vec<f64> = if bits == 8 {
        bytes.iter().map(|byte| f64::from(*byte)).collect()
    } else {
        bytes.chunks(2).map(|pair| f64::from(u16::from_le_bytes([pair[0], pair[1]]))).collect()
    };
    let (luma, chroma) = samples.split_at(width * height);
    let count = width.div_ceil(columns) * height.div_ceil(rows);
    assert_eq!(chroma.len(), 2 * count);
    let (u, v): (Vec<_>, Vec<_>) = if format == Nv12 {
        chroma.chunks(2).map(|pair| (pair[0], pair[1])).unzip()
    } else {
        chroma[..count].iter().copied().zip(chroma[count..].iter().copied()).unzip()
    };
    [luma.to_vec(), u, v]
}

fn worst(got: &[f64], expected: &[f64]) -> f64 {
    got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn colors_are_those_of_the_definition() {
    let sizes = [(48, 32), (35, 21), (2, 2), (1, 1), (1, 7), (9, 1)];
    for (input, output) in RGBS.into_iter().flat_map(|input| YUVS.map(|output| (input, output))) {
        for (matrix, range) in MATRICES.into_iter().flat_map(|matrix| RANGES.map(|range| (matrix, range))) {
            // Matrices and ranges are arithmetic, which does not depend on the size.
            let usual = (matrix, range) == (Matrix::default(), Range::default());
            for size in sizes.into_iter().take(if usual { sizes.len() } else { 1 }) {
                for (name, mut picture) in [
                    ("gradient", Picture::gradient(size)),
                    ("noise", Picture::noise(size)),
                    ("bars", Picture::saturated_bars(size)),
                ] {
                    let bytes = picture.quantized(input);
                    let made = convert(&options(input, output, size).matrix(matrix).range(range), &bytes);
                    let (bits, columns, rows) = layout(output);
                    let got = planes(output, &made, size);
                    let expected = picture.reference(matrix, range, bits, columns, rows);
                    let what = format!("{input:?} to {output:?}, {matrix:?} {range:?}, {size:?}, {name}");
                    for plane in 0..3 {
                        let off = worst(&got[plane], &expected[plane]);
                        assert!(off <= 0.51, "{what}: plane {plane} is {off} off");
                    }
                }
            }
        }
    }
}

/// Every color of 8 bits, in the layouts without subsampling: those with it add before they weigh.
#[test]
fn every_color_is_within_half_a_level() {
    let size = (4096, 64);
    for (output, matrix, range) in [Yuv444p, Yuv444p10].into_iter().flat_map(|output| {
        MATRICES.into_iter().flat_map(move |matrix| RANGES.map(move |range| (output, matrix, range)))
    }) {
        let wanted = options(Rgb24, output, size).matrix(matrix).range(range);
        // A 64th of all colors, all of whose channels take each value.
        let colors = (0..size.0 * size.1).map(|index| (index * 64 + index / 4096) as u32);
        let picture: Vec<[u8; 3]> =
            colors.map(|color| [color, color >> 8, color >> 16].map(|c| c as u8)).collect();
        let exact = Picture {
            width: size.0,
            height: size.1,
            pixels: picture.iter().map(|pixel| pixel.map(|channel| f64::from(channel) / 255.0)).collect(),
        };
        let got = planes(output, &convert(&wanted, picture.as_flattened()), size);
        let expected = exact.reference(matrix, range, layout(output).0, 1, 1);
        for plane in 0..3 {
            let off = worst(&got[plane], &expected[plane]);
            assert!(off <= 0.51, "{output:?} {matrix:?} {range:?}: plane {plane} is {off} off");
        }
    }
}

#[test]
fn gray_becomes_luma_of_the_range_with_neutral_chroma() {
    let grays: Vec<u8> = (0..=255).collect();
    for output in YUVS {
        for range in RANGES {
            let made = convert(&options(Gray, output, (32, 8)).range(range), &grays);
            let (bits, ..) = layout(output);
            let got = planes(output, &made, (32, 8));
            let peak = f64::from((1 << bits) - 1);
            let depth = f64::from(1 << (bits - 8));
            for (gray, luma) in grays.iter().zip(&got[0]) {
                let share = f64::from(*gray) / 255.0;
                let expected =
                    if range == Range::Full { peak * share } else { depth * (16.0 + 219.0 * share) };
                assert!((luma - expected).abs() <= 0.51, "{output:?} {range:?} {gray}");
            }
            assert!(got[1..].iter().flatten().all(|chroma| *chroma == 128.0 * depth));
        }
    }
}

/// A frame of that format whose bytes are all different enough.
fn some_frame(format: PixelFormat, size: (usize, usize)) -> Vec<u8> {
    let bytes = Conversion::new(&options(format, format, size)).unwrap().input_bytes();
    (0..bytes).map(|index| (index * 7919 % 251) as u8).collect()
}

fn turned_over(format: PixelFormat, size: (usize, usize), frame: &[u8]) -> Vec<u8> {
    convert(&options(format, format, size).vertical_flip(true), frame)
}

#[test]
fn a_frame_that_is_turned_over_as_it_is_converted_is_one_that_was_turned_over_before() {
    for size in [(64, 48), (33, 22), (1, 2), (640, 402)] {
        for (input, output) in
            RGBS.into_iter().chain([Gray]).flat_map(|input| YUVS.map(|output| (input, output)))
        {
            let frame = some_frame(input, size);
            let row_bytes = frame.len() / size.1;
            let by_hand: Vec<u8> = frame.chunks(row_bytes).rev().flatten().copied().collect();
            assert!(turned_over(input, size, &frame) == by_hand, "{input:?} {size:?}");
            let plain = options(input, output, size);
            let flipped = plain.vertical_flip(true);
            assert!(
                convert(&flipped, &frame) == convert(&plain, &by_hand),
                "{input:?} to {output:?} {size:?}"
            );
        }
    }
}

#[test]
fn turning_planes_over_twice_gives_them_back_and_once_does_not() {
    for format in PixelFormat::ALL {
        let size = (34, 26);
        let frame = some_frame(format, size);
        let once = turned_over(format, size, &frame);
        assert!(once != frame && turned_over(format, size, &once) == frame, "{format:?}");
        assert!(convert(&options(format, format, size), &frame) == frame, "{format:?}");
    }
}

#[test]
fn a_frame_in_many_strips_is_the_same_as_in_one() {
    // 2,000 columns of rgb24 have strips of 42 rows; those of 2 rows' height have one each.
    let (width, height) = (2000, 131);
    let frame = some_frame(Rgb24, (width, height));
    let conversion = Conversion::new(&options(Rgb24, Yuv420p, (width, height))).unwrap();
    assert!(conversion.strips() > 2);
    let whole = planes(Yuv420p, &convert(&options(Rgb24, Yuv420p, (width, height)), &frame), (width, height));
    for top in (0..height).step_by(2) {
        let rows = 2.min(height - top);
        let part = &frame[top * width * 3..(top + rows) * width * 3];
        let part = planes(Yuv420p, &convert(&options(Rgb24, Yuv420p, (width, rows)), part), (width, rows));
        assert_eq!(part[0], whole[0][top * width..(top + rows) * width], "{top}");
        for channel in [1, 2] {
            assert_eq!(part[channel], whole[channel][top / 2 * width / 2..][..width / 2], "{top}");
        }
    }
}

/// Pads a packed frame by hand, by repeating its last column and row, or crops it.
fn fitted_by_hand(
    frame: &[u8],
    (width, height): (usize, usize),
    (to_width, to_height): (usize, usize),
) -> Vec<u8> {
    let bytes = frame.len() / width / height;
    let place = |x: usize, y: usize| (y.min(height - 1) * width + x.min(width - 1)) * bytes;
    let places = (0..to_height).flat_map(|y| (0..to_width).map(move |x| (x, y)));
    places.flat_map(|(x, y)| frame[place(x, y)..][..bytes].to_vec()).collect()
}

#[test]
fn odd_sizes_are_padded_or_cropped_as_by_hand() {
    for size in [(33, 21), (34, 21), (33, 22), (3, 3), (300, 151)] {
        for (input, output) in
            [Rgb24, Bgra, Rgb48, Gray].into_iter().flat_map(|input| YUVS.map(|output| (input, output)))
        {
            let frame = some_frame(input, size);
            for odd_size in [OddSize::Pad, OddSize::Crop, OddSize::Keep] {
                let wanted = options(input, output, size).odd_size(odd_size);
                let conversion = Conversion::new(&wanted).unwrap();
                let to = (conversion.output_width(), conversion.output_height());
                let (_, columns, rows) = layout(output);
                if odd_size == OddSize::Keep {
                    assert_eq!(to, size);
                } else {
                    assert!(to.0.is_multiple_of(columns) && to.1.is_multiple_of(rows));
                    assert!(to.0.abs_diff(size.0) < columns && to.1.abs_diff(size.1) < rows);
                }
                let by_hand = fitted_by_hand(&frame, size, to);
                let expected = convert(&options(input, output, to), &by_hand);
                assert!(
                    convert(&wanted, &frame) == expected,
                    "{input:?} to {output:?} {size:?} {odd_size:?}"
                );
                if size.1.is_multiple_of(2) || odd_size == OddSize::Keep {
                    let flipped = wanted.vertical_flip(true);
                    let turned = turned_over(input, size, &frame);
                    assert!(convert(&flipped, &frame) == convert(&wanted, &turned));
                }
            }
        }
    }
}

#[test]
fn odd_planes_are_padded_and_cropped_too() {
    let frame: Vec<u8> = (0..9 + 4 + 4).collect();
    let kept = options(Yuv420p, Yuv420p, (3, 3));
    let padded = convert(&kept.odd_size(OddSize::Pad), &frame);
    let luma = [0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 6, 7, 8, 8];
    assert_eq!(padded, [&luma[..], &[9, 10, 11, 12], &[13, 14, 15, 16]].concat());
    let cropped = convert(&kept.odd_size(OddSize::Crop), &frame);
    assert_eq!(cropped, [0, 1, 3, 4, 9, 13]);
}

#[test]
fn impossible_conversions_are_named() {
    for (input, output) in [(Rgb24, Gray), (Yuv420p, Nv12), (Rgb24, Bgr24), (Rgb48, Rgb24)] {
        let error = Conversion::new(&options(input, output, (8, 8))).unwrap_err();
        let said = format!("there is no conversion from {} to {}", input.name(), output.name());
        assert_eq!(error.to_string(), said);
    }
    for size in [(0, 8), (8, 0)] {
        assert!(Conversion::new(&options(Rgb24, Yuv420p, size)).is_err());
    }
    for size in [(usize::MAX, 8), (8, usize::MAX), (1 << 30, 1 << 30)] {
        assert!(
            Conversion::new(&options(Rgb24, Yuv420p, size)).unwrap_err().to_string().contains("too large")
        );
    }
    let crop = options(Rgb24, Yuv420p, (1, 8)).odd_size(OddSize::Crop);
    assert!(Conversion::new(&crop).is_err(), "nothing would be left");
    let flip = options(Yuv420p, Yuv420p, (8, 7)).vertical_flip(true);
    assert!(Conversion::new(&flip).is_err());
}

#[test]
fn format_names_match_ffmpeg() {
    for format in PixelFormat::ALL {
        assert_eq!(PixelFormat::from_name(format.name()), Some(format));
    }
    assert_eq!(PixelFormat::from_name("yuv420p10le"), Some(Yuv420p10));
    assert_eq!(PixelFormat::from_name("vaapi"), None);
}

/// FNV-1a (Fowler, Noll and Vo), over the frames that all pairs of formats make.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// `scripts/test_processors` runs it on several.
#[test]
fn every_processor_makes_the_same_bytes() {
    let size = (194, 6);
    let pairs = PixelFormat::ALL.into_iter().flat_map(|from| PixelFormat::ALL.map(|to| (from, to)));
    let mut sum = 0xCBF2_9CE4_8422_2325;
    for (matrix, range) in MATRICES.into_iter().flat_map(|matrix| RANGES.map(|range| (matrix, range))) {
        for (from, to) in pairs.clone() {
            let wanted = options(from, to, size).matrix(matrix).range(range);
            if Conversion::new(&wanted).is_ok() {
                let mut frame = some_frame(from, size);
                if [Yuv420p10, Yuv422p10, Yuv444p10].contains(&from) {
                    frame.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 3);
                }
                sum = hash(&convert(&wanted, &frame), sum);
            }
        }
    }
    assert_eq!(
        sum, 0xAB7B_A8F1_C397_DB45,
        "{sum:#x}: if the arithmetic was changed on purpose, this is the new one"
    );
}

/// Colors that YUV holds without clipping stay what the first generation made of them.
#[test]
fn generations_do_not_drift() {
    let size = (512, 64);
    for (yuv, flat) in [(Yuv444p, 1), (Yuv420p, 2), (Nv12, 2)] {
        for (matrix, range) in MATRICES.into_iter().flat_map(|matrix| RANGES.map(|range| (matrix, range))) {
            let there = options(Rgb24, yuv, size).matrix(matrix).range(range);
            let back = options(yuv, Rgb24, size).matrix(matrix).range(range);
            let mut state = 1_u32;
            let (columns, rows) = (size.0 / flat, size.1 / flat);
            let colors: Vec<[u8; 3]> = (0..columns * rows)
                .map(|index| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if index < 256 { [index as u8; 3] } else { [8, 16, 24].map(|bits| (state >> bits) as u8) }
                })
                .collect();
            let first: Vec<u8> = (0..size.0 * size.1)
                .flat_map(|index| colors[index / size.0 / flat * columns + index % size.0 / flat])
                .collect();
            let mut generations = vec![first];
            for _ in 0..5 {
                let made = convert(&back, &convert(&there, generations.last().unwrap()));
                generations.push(made);
            }
            let (mut worst, mut moved, mut all) = ([0; 3], 0, 0);
            for index in 0..size.0 * size.1 {
                let of = |generation: usize| &generations[generation][3 * index..][..3];
                for (worst, (old, new)) in worst.iter_mut().zip(of(0).iter().zip(of(1))) {
                    *worst = old.abs_diff(*new).max(*worst);
                }
                if of(1).iter().all(|channel| (1..255).contains(channel)) {
                    all += 1;
                    moved += usize::from((2..=5).any(|generation| of(generation) != of(1)));
                }
            }
            let what = format!("{yuv:?} {matrix:?} {range:?}: {moved} of {all} move, {worst:?}");
            // Limited range has fewer levels of blue's chroma than there are of blue.
            let limit = if range == Range::Limited { [1, 1, 2] } else { [1, 1, 1] };
            assert!(worst.iter().zip(limit).all(|(worst, limit)| *worst <= limit), "{what}");
            assert!(moved == 0, "{what}");
        }
    }
}
