//! Floats to whole samples, against the definition, one sample at a time.

use penstock_pixels::{Float, Outside, Quantizer};
use proptest::prelude::*;

const RANGES: [(f64, f64); 5] = [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (0.1, 0.9), (-3.5, 1e6)];

/// The sample nearest to `value`, and whether it is outside. A bound may be a little further out, where the type does not have it.
fn sample(float: Float, value: f64, (low, high): (f64, f64), most: f64) -> (u16, Outside) {
    let precision = match float {
        Float::F16 => 2_f64.powi(-11),
        Float::F32 => 2_f64.powi(-24),
        Float::F64 => 0.0,
    };
    let scaled = ((value - low) * (most / (high - low))).clamp(0.0, most).round_ties_even();
    let clipped = usize::from(value < low - low.abs() * precision || value > high + high.abs() * precision);
    (scaled as u16, Outside { clipped, nan: usize::from(value.is_nan()) })
}

fn made(quantizer: &Quantizer, floats: &[u8]) -> (Vec<u16>, Outside) {
    let mut output = vec![0xA5; floats.len() / quantizer.float().bytes() * quantizer.sample_bytes()];
    let outside = quantizer.convert(floats, &mut output);
    (widened(&output, quantizer.sample_bytes()), outside)
}

fn widened(output: &[u8], sample_bytes: usize) -> Vec<u16> {
    match sample_bytes {
        1 => output.iter().map(|byte| u16::from(*byte)).collect(),
        _ => output.as_chunks().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect(),
    }
}

/// What a half of these bits is (IEEE 754, 3.4).
fn half(bits: u16) -> f64 {
    let (sign, exponent) = (if bits >> 15 == 0 { 1.0 } else { -1.0 }, i32::from(bits >> 10 & 31));
    let fraction = f64::from(bits & 1023) / 1024.0;
    sign * match exponent {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    }
}

#[test]
fn every_half_becomes_the_nearest_sample() {
    for (range, bits) in RANGES.into_iter().flat_map(|range| [(range, 8), (range, 10), (range, 16)]) {
        let quantizer = Quantizer::new(Float::F16, range, bits).unwrap();
        for bits_of_half in 0..=u16::MAX {
            let (samples, outside) = made(&quantizer, &bits_of_half.to_le_bytes());
            let most = f64::from((1_u32 << bits) - 1);
            let (wanted, wanted_outside) = sample(Float::F16, half(bits_of_half), range, most);
            assert_eq!(outside, wanted_outside, "{bits_of_half:#x} in {range:?}");
            if outside.nan == 0 {
                assert_eq!(samples, [wanted], "{bits_of_half:#x} in {range:?}, {bits} bits");
            }
        }
    }
}

#[test]
fn values_outside_the_range_are_clipped_and_counted_and_nan_is_counted_apart() {
    let values = [-0.5, 0.0, 1.0, 1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.5, -0.0, -f32::NAN];
    let floats: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (samples, outside) = made(&Quantizer::new(Float::F32, (0.0, 1.0), 8).unwrap(), &floats);
    assert_eq!(outside, Outside { clipped: 4, nan: 2 });
    assert_eq!(samples[..6], [0, 0, 255, 255, 255, 0]);
    assert_eq!(samples[7..9], [128, 0], "a half goes to the even one");
}

#[test]
fn a_bound_that_the_type_lacks_is_not_clipped() {
    let bound = 0.1_f32; // a little more than 0.1
    let (samples, outside) = made(&Quantizer::new(Float::F32, (-1.0, 0.1), 8).unwrap(), &bound.to_le_bytes());
    assert_eq!((samples[0], outside), (255, Outside::default()));
}

#[test]
fn impossible_ranges_are_refused() {
    for range in
        [(1.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (-1e308, 1e308), (0.0, 5e-324)]
    {
        let refused = Quantizer::new(Float::F64, range, 8).unwrap_err().to_string();
        assert!(refused.len() < 80, "{refused}");
    }
    assert!(Quantizer::new(Float::F32, (0.0, 1.0), 17).is_err());
}

proptest! {
    #[test]
    fn samples_are_the_nearest_whole_ones(
        values in prop::collection::vec(prop_oneof![4 => -0.2..1.2f64, 1 => any::<f64>()], 0..700),
        place in 0..RANGES.len(),
        bits in 1..=16u32,
    ) {
        let (range, most) = (RANGES[place], f64::from((1_u32 << bits) - 1));
        let (low, high) = range;
        let values: Vec<f64> = values.iter().map(|value| low + value * (high - low)).collect();
        for float in [Float::F32, Float::F64] {
            let (floats, held): (Vec<Vec<u8>>, Vec<f64>) = match float {
                Float::F64 => values.iter().map(|value| (value.to_le_bytes().to_vec(), *value)).unzip(),
                _ => values.iter().map(|value| *value as f32).map(|value| (value.to_le_bytes().to_vec(), f64::from(value))).unzip(),
            };
            let (samples, outside) = made(&Quantizer::new(float, range, bits).unwrap(), &floats.concat());
            let mut wanted = Outside::default();
            for (value, got) in held.iter().zip(samples) {
                let (nearest, one) = sample(float, *value, range, most);
                wanted += one;
                prop_assert!(value.is_nan() || got == nearest, "{} in {:?} gives {}, not {}", value, range, got, nearest);
            }
            prop_assert_eq!(outside, wanted);
        }
    }

    #[test]
    fn channels_that_lie_apart_come_together(
        pixels in 0..600usize,
        channels in 1..=4usize,
        bits in prop::sample::select(vec![8, 12, 16]),
    ) {
        for float in Float::ALL {
            let quantizer = Quantizer::new(float, (0.0, 1.0), bits).unwrap();
            let planes: Vec<Vec<u8>> = (0..channels)
                .map(|channel| {
                    (0..pixels * float.bytes()).map(|byte| (((byte + channel * 999) * 7919) >> 4) as u8).collect()
                })
                .collect();
            let mut output = vec![0; pixels * channels * quantizer.sample_bytes()];
            let outside = quantizer.interleave(&planes.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut output);
            let output = widened(&output, quantizer.sample_bytes());
            let mut alone = Outside::default();
            for (channel, plane) in planes.iter().enumerate() {
                let (samples, outside) = made(&quantizer, plane);
                alone += outside;
                prop_assert!(output.iter().skip(channel).step_by(channels).eq(&samples));
            }
            prop_assert_eq!(outside, alone);
        }
    }
}
