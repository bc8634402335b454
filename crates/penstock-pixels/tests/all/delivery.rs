//! Delivered arrays, against pixels that are put in their places one by one.

use crate::common::{convert, options};
use penstock_pixels::{Conversion, Delivery, DeliveryOptions, PixelFormat, PlaneSize, Planes};
use proptest::prelude::*;

/// A table that tells samples apart, whatever they become.
fn values(sample_bytes: usize, value_bytes: usize) -> Vec<u8> {
    let count = if sample_bytes == 1 { 1 << 8 } else { 1 << 16 };
    let values = (0..count as u32).map(|sample| sample.wrapping_mul(0x9E37_79B9) ^ sample);
    values.flat_map(|value| value.to_le_bytes().into_iter().take(value_bytes)).collect()
}

/// Each sample of the array, by its place.
fn naive(options: &DeliveryOptions, value_bytes: usize, picture: &[u8]) -> Vec<u8> {
    let &DeliveryOptions { channels, sample_bytes, border, .. } = options;
    let mut made = vec![0; channels * options.size.0 * options.size.1 * value_bytes];
    for channel in 0..channels {
        for row in 0..options.size.1 {
            for column in 0..options.size.0 {
                let (x, y) = (column.wrapping_sub(border.0), row.wrapping_sub(border.1));
                let is_picture = x < options.picture.0 && y < options.picture.1;
                let sample = if is_picture {
                    let at = ((y * options.picture.0 + x) * channels + channel) * sample_bytes;
                    if sample_bytes == 1 {
                        usize::from(picture[at])
                    } else {
                        usize::from(u16::from_le_bytes([picture[at], picture[at + 1]]))
                    }
                } else {
                    usize::from(options.fill[channel])
                };
                let pixel = row * options.size.0 + column;
                let place = if options.channels_first {
                    channel * options.size.0 * options.size.1 + pixel
                } else {
                    pixel * channels + channel
                };
                made[place * value_bytes..][..value_bytes]
                    .copy_from_slice(&options.values[sample * value_bytes..][..value_bytes]);
            }
        }
    }
    made
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

fn wanted(
    picture: (usize, usize),
    channels: usize,
    border: [usize; 4],
    channels_first: bool,
    (sample_bytes, value_bytes): (usize, usize),
) -> DeliveryOptions {
    DeliveryOptions {
        picture,
        channels,
        size: (picture.0 + border[0] + border[2], picture.1 + border[1] + border[3]),
        border: (border[0], border[1]),
        fill: (0..channels as u16).map(|channel| 10 * channel + 7).collect(),
        channels_first,
        values: values(sample_bytes, value_bytes),
        sample_bytes,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_sample_of_a_plane_comes_to_its_place(
        picture in (1..80usize, 1..9usize),
        channels in 1..5usize,
        border in [0..4usize, 0..3usize, 0..4usize, 0..3usize],
        channels_first in any::<bool>(),
        bytes in prop_oneof![Just((1, 1)), Just((1, 2)), Just((1, 4)), Just((2, 1)), Just((2, 2)), Just((2, 4))],
        padding in 0..5usize,
    ) {
        let options = wanted(picture, channels, border, channels_first, bytes);
        let delivery = Delivery::new(options.clone()).unwrap();
        let size = delivery.picture();
        prop_assert_eq!(size, PlaneSize { rows: picture.1, row_bytes: picture.0 * channels * bytes.0 });
        let stride = size.row_bytes + padding;
        let memory = noise(stride * size.rows);
        let planes = Planes::new(&[size], [(&memory[..], stride as isize)].into_iter()).unwrap();
        let packed: Vec<u8> = memory.chunks(stride).flat_map(|row| &row[..size.row_bytes]).copied().collect();
        let mut made = vec![0xA5; delivery.output_bytes()];
        delivery.copy(&planes, &mut made);
        prop_assert_eq!(made, naive(&options, bytes.1, &packed));
    }

    #[test]
    fn converted_planes_come_to_their_places(
        (width, height) in (1..300usize, 1..300usize),
        border in [0..4usize, 0..3usize, 0..4usize, 0..3usize],
        channels_first in any::<bool>(),
        (output, channels) in prop_oneof![Just((PixelFormat::Rgb24, 3)), Just((PixelFormat::Bgr24, 3)), Just((PixelFormat::Rgba, 4))],
    ) {
        let Ok(conversion) = Conversion::new(&options(PixelFormat::Yuv420p, output, (width, height))) else {
            return Ok(());
        };
        let frame = noise(conversion.input_bytes());
        let wanted = wanted((width, height), channels, border, channels_first, (1, 4));
        let delivery = Delivery::new(wanted.clone()).unwrap();
        let mut made = vec![0xA5; delivery.output_bytes()];
        let sizes: Vec<_> = conversion.input_sizes().collect();
        let mut rest = &frame[..];
        let memory: Vec<_> = sizes.iter().map(|size| {
            let (own, others) = rest.split_at(size.rows * size.row_bytes);
            rest = others;
            (own, size.row_bytes as isize)
        }).collect();
        delivery.convert(&conversion, &Planes::new(&sizes, memory.into_iter()).unwrap(), &mut made);
        let picture = convert(&options(PixelFormat::Yuv420p, output, (width, height)), &frame);
        prop_assert_eq!(made, naive(&wanted, 4, &picture));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let good = wanted((5, 4), 3, [1, 1, 0, 0], true, (1, 4));
    assert!(Delivery::new(good.clone()).is_ok());
    for bad in [
        DeliveryOptions { border: (2, 1), ..good.clone() },
        DeliveryOptions { border: (usize::MAX, 1), ..good.clone() },
        DeliveryOptions { picture: (0, 4), ..good.clone() },
        DeliveryOptions { fill: vec![0; 2], ..good.clone() },
        DeliveryOptions { fill: vec![256; 3], ..good.clone() },
        DeliveryOptions { channels: 0, fill: vec![], ..good.clone() },
        DeliveryOptions { values: vec![0; 1025], ..good.clone() },
        DeliveryOptions { values: vec![], ..good.clone() },
        DeliveryOptions { sample_bytes: 2, ..good.clone() },
        DeliveryOptions { sample_bytes: 3, ..good.clone() },
        DeliveryOptions { size: (1 << 31, 1 << 31), ..good.clone() },
    ] {
        assert!(Delivery::new(bad).is_err());
    }
}
