//! Frames whose rows lie anywhere, against the same frames in one piece.

use crate::common::{convert, options};
use penstock_pixels::{Conversion, OddSize, PixelFormat, PlaneCopy, PlaneSize, Planes};
use proptest::prelude::*;

/// All cases if PENSTOCK_THOROUGH is set (`make test-exhaustive`).
fn cases() -> u32 {
    if std::env::var_os("PENSTOCK_THOROUGH").is_some() { 60 } else { 12 }
}

/// How a plane's rows lie in memory.
#[derive(Clone, Copy, Debug)]
struct Lie {
    padding: usize,
    is_bottom_up: bool,
    has_last_padding: bool,
}

fn lies() -> impl Strategy<Value = Lie> {
    (prop_oneof![Just(0), 1..70usize], any::<bool>(), any::<bool>())
        .prop_map(|(padding, is_bottom_up, has_last_padding)| Lie { padding, is_bottom_up, has_last_padding })
}

/// The rows of planes that follow each other, as they lie there; and the strides.
fn laid_out(sizes: &[PlaneSize], mut frame: &[u8], lies: &[Lie]) -> Vec<(Vec<u8>, isize)> {
    let planes = sizes.iter().zip(lies).map(|(size, lie)| {
        let (own, others) = frame.split_at(size.rows * size.row_bytes);
        frame = others;
        let mut rows: Vec<_> = own.chunks(size.row_bytes).collect();
        if lie.is_bottom_up {
            rows.reverse();
        }
        let padding = vec![0x5A; lie.padding];
        let mut memory: Vec<u8> = rows.iter().flat_map(|row| [*row, &padding].concat()).collect();
        if !lie.has_last_padding {
            memory.truncate(memory.len() - lie.padding);
        }
        let stride = (size.row_bytes + lie.padding) as isize;
        (memory, if lie.is_bottom_up { -stride } else { stride })
    });
    planes.collect()
}

fn planes_of<'a>(sizes: &[PlaneSize], memory: &'a [(Vec<u8>, isize)]) -> Planes<'a> {
    Planes::new(sizes, memory.iter().map(|(bytes, stride)| (&bytes[..], *stride))).unwrap()
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

/// Samples that the format can have: of 10 bits, no larger ones.
fn some_frame(format: PixelFormat, bytes: usize) -> Vec<u8> {
    let mut frame = noise(bytes);
    if format.name().contains("10") {
        frame.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 3);
    }
    frame
}

fn pairs() -> Vec<(PixelFormat, PixelFormat)> {
    let all = PixelFormat::ALL;
    let pairs = all.into_iter().flat_map(|input| all.map(|output| (input, output)));
    pairs.filter(|(input, output)| Conversion::new(&options(*input, *output, (2, 2))).is_ok()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_at_any_address_make_the_same_frame(
        (width, height) in (1..300usize, 1..40usize),
        lies in [lies(), lies(), lies()],
        bands in 1..5usize,
        vertical_flip in any::<bool>(),
        is_padded in any::<bool>(),
    ) {
        for (input, output) in pairs() {
            let odd_size = if is_padded { OddSize::Pad } else { OddSize::Keep };
            let wanted = options(input, output, (width, height)).odd_size(odd_size).vertical_flip(vertical_flip);
            let Ok(conversion) = Conversion::new(&wanted) else { continue };
            let frame = some_frame(input, conversion.input_bytes());
            let sizes: Vec<_> = conversion.input_sizes().collect();
            let memory = laid_out(&sizes, &frame, &lies);
            let mut made = vec![0xA5; conversion.output_bytes()];
            for mut band in conversion.bands(bands, &mut made) {
                conversion.convert_band(&planes_of(&sizes, &memory), &mut band);
            }
            prop_assert!(made == convert(&wanted, &frame), "{input:?} to {output:?}");
        }
    }

    #[test]
    fn copied_rows_follow_each_other(
        sizes in prop::collection::vec((0..20usize, 1..50usize), 0..=4),
        lies in [lies(), lies(), lies(), lies()],
        bands in 1..5usize,
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(|(rows, row_bytes)| PlaneSize { rows, row_bytes }).collect();
        // A plane without rows has no last padding that could be missing.
        let lies = lies.map(|lie| Lie { has_last_padding: true, ..lie });
        let copy = PlaneCopy::new(sizes.clone()).unwrap();
        let frame = noise(copy.output_bytes());
        let memory = laid_out(&sizes, &frame, &lies);
        let mut made = vec![0xA5; frame.len()];
        for band in copy.bands(bands, &mut made) {
            copy.copy_band(&planes_of(&sizes, &memory), band);
        }
        prop_assert_eq!(made, frame);
    }
}

#[test]
fn bands_of_a_large_frame_make_all_of_it() {
    for (input, output) in [
        (PixelFormat::Yuv420p, PixelFormat::Rgb24),
        (PixelFormat::Yuv420p, PixelFormat::Yuv420p),
        (PixelFormat::Rgb24, PixelFormat::Nv12),
    ] {
        let wanted = options(input, output, (1001, 701));
        let conversion = Conversion::new(&wanted).unwrap();
        let frame = noise(conversion.input_bytes());
        let sizes: Vec<_> = conversion.input_sizes().collect();
        let upright = [Lie { padding: 3, is_bottom_up: false, has_last_padding: false }; 3];
        let memory = laid_out(&sizes, &frame, &upright);
        for (count, expected) in [(1, 1), (2, 2), (3, 3), (1000, conversion.strips())] {
            let mut made = vec![0xA5; conversion.output_bytes()];
            let bands = conversion.bands(count, &mut made);
            assert_eq!(bands.len(), expected);
            for mut band in bands.into_iter().rev() {
                conversion.convert_band(&planes_of(&sizes, &memory), &mut band);
            }
            assert!(made == convert(&wanted, &frame), "{input:?} to {output:?} in {count} bands");
        }
    }
}

#[test]
fn planes_that_do_not_hold_the_rows_are_refused() {
    let sizes = [PlaneSize { rows: 3, row_bytes: 10 }, PlaneSize { rows: 1, row_bytes: 5 }];
    let try_with = |planes: &[(usize, isize)]| {
        let memory: Vec<_> = planes.iter().map(|(bytes, stride)| (vec![0; *bytes], *stride)).collect();
        Planes::new(&sizes, memory.iter().map(|(bytes, stride)| (&bytes[..], *stride))).map(drop)
    };
    assert_eq!(try_with(&[(34, 12), (5, 5)]), Ok(()));
    assert_eq!(try_with(&[(34, -12), (5, 0)]), Ok(()));
    for wrong in [
        &[(34, 12)][..],
        &[(34, 12), (5, 5), (5, 5)],
        &[(33, 12), (5, 5)],
        &[(33, -12), (5, 5)],
        &[(34, 12), (4, 5)],
        &[(340, 9), (5, 5)],
        &[(340, 0), (5, 5)],
        &[(34, isize::MIN), (5, 5)],
        &[(34, isize::MAX), (5, 5)],
    ] {
        assert!(try_with(wrong).is_err(), "{wrong:?}");
    }
    assert!(PlaneCopy::new(vec![PlaneSize { rows: usize::MAX, row_bytes: 2 }]).is_none());
    assert!(PlaneCopy::new(vec![PlaneSize { rows: 2, row_bytes: usize::MAX / 5 }; 4]).is_none());
}
