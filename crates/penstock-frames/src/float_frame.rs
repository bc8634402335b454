//! Frames of floating-point samples, with any strides, as whole samples.

use std::ops::Range;

use penstock_pixels::{Conversion, Outside, Quantizer};

use crate::strided::Strided;

/// More channels than pixels have.
const MOST_CHANNELS: usize = 4;

/// Rows × columns × channels, or rows × columns, of floats.
#[derive(Debug)]
pub struct FloatFrame<'a> {
    array: Strided<'a>,
    quantizer: Quantizer,
}

impl<'a> FloatFrame<'a> {
    /// The frame of these samples.
    ///
    /// # Safety
    ///
    /// Every element is readable, and nobody writes to it, as long as the frame is in use.
    ///
    /// # Panics
    ///
    /// If the array has no axes, or its items are not those of the quantizer.
    #[must_use]
    pub unsafe fn new(array: Strided<'a>, quantizer: Quantizer) -> Self {
        assert_eq!(array.item_bytes, quantizer.float().bytes());
        assert!(!array.shape.is_empty());
        Self { array, quantizer }
    }

    /// Size of all whole samples.
    #[must_use]
    pub fn made_bytes(&self) -> usize {
        self.array.bytes() / self.array.item_bytes * self.quantizer.sample_bytes()
    }

    /// Makes the whole samples of all rows.
    ///
    /// # Panics
    ///
    /// If `output` does not have their size.
    #[must_use]
    pub fn make(&self, output: &mut [u8]) -> Outside {
        self.make_rows(0..self.array.shape[0], output, &mut Vec::new())
    }

    /// Makes the whole samples, and converts them: a strip at a time, so that its samples are still in a near cache when they are
    /// converted.
    ///
    /// # Panics
    ///
    /// If `whole` or `output` does not have the size of the conversion's input or output.
    #[must_use]
    pub fn convert(&self, conversion: &Conversion, whole: &mut [u8], output: &mut [u8]) -> Outside {
        let (mut outside, mut scratch) = (Outside::default(), Vec::new());
        for strip in 0..conversion.strips() {
            outside += self.make_rows(conversion.input_rows(strip), whole, &mut scratch);
            conversion.convert_strip(strip, whole, output);
        }
        outside
    }

    /// Makes these rows of `output`.
    fn make_rows(&self, rows: Range<usize>, output: &mut [u8], scratch: &mut Vec<u8>) -> Outside {
        assert_eq!(output.len(), self.made_bytes());
        let row_bytes = output.len() / self.array.shape[0].max(1);
        let mut outside = Outside::default();
        for row in rows {
            outside +=
                self.make_row(self.array.at(row), &mut output[row * row_bytes..][..row_bytes], scratch);
        }
        outside
    }

    fn make_row(&self, row: Strided<'_>, made: &mut [u8], scratch: &mut Vec<u8>) -> Outside {
        // SAFETY: the elements are readable and stay as they are while the frame is in use, as whoever made it has promised.
        if let Some(floats) = unsafe { row.contiguous() } {
            return self.quantizer.convert(floats, made);
        }
        let mut channels = [&[][..]; MOST_CHANNELS];
        if let Some(count) = planes(&row, &mut channels) {
            return self.quantizer.interleave(&channels[..count], made);
        }
        scratch.resize(row.bytes(), 0);
        // SAFETY: as above.
        unsafe { row.gather(scratch) };
        self.quantizer.convert(scratch, made)
    }
}

/// The channels of a row, of which each follows one another; returns how many.
fn planes<'a>(row: &Strided<'a>, channels: &mut [&'a [u8]; MOST_CHANNELS]) -> Option<usize> {
    let &[_, count @ 1..=MOST_CHANNELS] = row.shape else { return None };
    for (channel, plane) in channels.iter_mut().enumerate().take(count) {
        // SAFETY: as for `make_row`, whose row this is.
        *plane = unsafe { row.at_innermost(channel).contiguous() }?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use penstock_pixels::{ConversionOptions, Float, PixelFormat};
    use proptest::prelude::*;

    use super::*;

    fn quantizer() -> Quantizer {
        Quantizer::new(Float::F32, (0.0, 1.0), 8).unwrap()
    }

    /// Floats, each a function of its place.
    fn memory(floats: usize) -> Vec<u8> {
        (0..floats).flat_map(|place| ((place * 7 % 311) as f32 / 300.0 - 0.01).to_le_bytes()).collect()
    }

    proptest! {
        #[test]
        fn every_view_is_made_as_its_copy_in_order(
            (rows, columns, channels) in (1..5usize, 1..40usize, 1..6usize),
            order in Just([0, 1, 2]).prop_shuffle(),
            reversed in any::<[bool; 3]>(),
        ) {
            let shape = [rows, columns, channels];
            let (mut strides, mut stride, mut origin) = ([0; 3], 4, 0);
            for axis in order {
                strides[axis] = if reversed[axis] { -stride } else { stride };
                origin += if reversed[axis] { stride * (shape[axis] as isize - 1) } else { 0 };
                stride *= shape[axis] as isize;
            }
            let floats = memory(rows * columns * channels);
            let start = floats.as_ptr().wrapping_offset(origin);
            let array = Strided { start, shape: &shape, strides: &strides, item_bytes: 4 };
            let (mut copy, mut wanted) = (vec![0; floats.len()], vec![0; floats.len() / 4]);
            // SAFETY: the vector holds all elements.
            let frame = unsafe {
                array.gather(&mut copy);
                FloatFrame::new(array, quantizer())
            };
            let wanted_outside = quantizer().convert(&copy, &mut wanted);
            let mut made = vec![0; frame.made_bytes()];
            prop_assert_eq!(frame.make(&mut made), wanted_outside);
            prop_assert_eq!(made, wanted);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "long: other tests read such memory")]
    fn a_conversion_in_strips_is_that_of_the_whole_samples() {
        const WIDTH: usize = 2000; // 42 rows a strip
        for (height, is_flipped) in [(1, false), (42, true), (43, false), (101, false), (102, true)] {
            let options = ConversionOptions::new(PixelFormat::Rgb24, PixelFormat::Yuv420p, WIDTH, height);
            let conversion = Conversion::new(&options.vertical_flip(is_flipped)).unwrap();
            let (shape, floats) = ([height, WIDTH, 3], memory(height * WIDTH * 3));
            let strides = [WIDTH as isize * 12, 12, 4];
            let array = Strided { start: floats.as_ptr(), shape: &shape, strides: &strides, item_bytes: 4 };
            // SAFETY: the vector holds all elements.
            let frame = unsafe { FloatFrame::new(array, quantizer()) };
            let (mut whole, mut wanted) = (vec![0; frame.made_bytes()], vec![0; conversion.output_bytes()]);
            let wanted_outside = frame.make(&mut whole);
            conversion.convert(&whole, &mut wanted);
            let mut made = vec![0; wanted.len()];
            whole.fill(0xA5);
            assert_eq!(frame.convert(&conversion, &mut whole, &mut made), wanted_outside);
            assert!(made == wanted, "{height} rows, flipped: {is_flipped}");
        }
    }
}
