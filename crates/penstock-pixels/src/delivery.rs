//! The last step of an array: other samples, channels first, and a border.

use super::conversion::Conversion;
use super::options::Unsupported;
use super::planes::{PlaneSize, Planes};

/// What becomes of a picture of packed pixels, whose samples have one or two bytes, little-endian.
#[derive(Clone, Debug)]
pub struct DeliveryOptions {
    /// Columns and rows of the picture.
    pub picture: (usize, usize),
    /// Samples of a pixel.
    pub channels: usize,
    /// Columns and rows of the array.
    pub size: (usize, usize),
    /// Columns left of the picture, and rows above it.
    pub border: (usize, usize),
    /// The sample of each channel around the picture.
    pub fill: Vec<u16>,
    /// Whether the array is channels × rows × columns. Otherwise it is rows × columns × channels.
    pub channels_first: bool,
    /// What each sample becomes, from 0 on: 256 or 65,536 values one after another. Each has 1, 2 or 4 bytes.
    pub values: Vec<u8>,
    /// Bytes of a sample of the picture.
    pub sample_bytes: usize,
}

/// Makes arrays of pictures that are converted or copied.
///
/// Values are looked up, so that they are the same on every processor, whoever has made the table.
#[derive(Clone, Debug)]
pub struct Delivery {
    options: DeliveryOptions,
    value_bytes: usize,
    output_bytes: usize,
}

impl Delivery {
    /// Prepares a delivery.
    ///
    /// # Errors
    ///
    /// The picture is not inside of the array, there are no channels, or the numbers of values and of samples do not fit.
    pub fn new(options: DeliveryOptions) -> Result<Self, Unsupported> {
        let DeliveryOptions { picture, channels, size, border, fill, sample_bytes, values, .. } = &options;
        let is_inside = |picture: usize, border: usize, size| {
            picture > 0 && picture.checked_add(border).is_some_and(|end| end <= size)
        };
        if !(is_inside(picture.0, border.0, size.0) && is_inside(picture.1, border.1, size.1)) {
            return Err(Unsupported(
                format!("a picture of {picture:?} at {border:?} isn't inside of {size:?}").into(),
            ));
        }
        if fill.len() != *channels || fill.is_empty() {
            return Err(Unsupported(
                format!("the border must have {channels} samples, not {}", fill.len()).into(),
            ));
        }
        let count = if *sample_bytes == 1 { 1 << 8 } else { 1 << 16 };
        let value_bytes = values.len() / count;
        let has_values = values.len() == count * value_bytes && [1, 2, 4].contains(&value_bytes);
        if ![1, 2].contains(sample_bytes)
            || !has_values
            || fill.iter().any(|sample| usize::from(*sample) >= count)
        {
            let got = values.len();
            return Err(Unsupported(
                format!("{got} bytes of values don't fit to samples of {sample_bytes} bytes").into(),
            ));
        }
        let bytes = [*channels, size.0, size.1, value_bytes];
        let output_bytes = bytes.into_iter().try_fold(1_usize, usize::checked_mul);
        let output_bytes = output_bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let output_bytes = output_bytes.ok_or_else(|| Unsupported("the array is too large".into()))?;
        Ok(Self { options, value_bytes, output_bytes })
    }

    /// Size of an array in bytes.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// The size of the picture, as the only plane.
    #[must_use]
    pub fn picture(&self) -> PlaneSize {
        let &DeliveryOptions { picture, channels, sample_bytes, .. } = &self.options;
        PlaneSize { rows: picture.1, row_bytes: picture.0 * channels * sample_bytes }
    }

    /// Converts planes, and makes the array of that: a strip at a time, so that its samples are still in a near cache.
    ///
    /// # Panics
    ///
    /// If the conversion's output is not the picture, or `output` does not have the size above.
    pub fn convert(&self, conversion: &Conversion, input: &Planes<'_>, output: &mut [u8]) {
        assert_eq!(conversion.packed_size(), Some(self.picture()));
        self.fill_border(output);
        let (row_bytes, mut samples) = (self.picture().row_bytes, Vec::new());
        for strip in 0..conversion.strips() {
            let rows = conversion.convert_packed_strip(strip, row_bytes, input, &mut samples);
            for (row, made) in rows.zip(samples.chunks_exact(row_bytes)) {
                self.deliver_row(row, made, output);
            }
        }
    }

    /// Makes the array of a picture that is the only plane.
    ///
    /// # Panics
    ///
    /// If the plane is not the picture, or `output` does not have the size above.
    pub fn copy(&self, input: &Planes<'_>, output: &mut [u8]) {
        self.fill_border(output);
        for row in 0..self.picture().rows {
            self.deliver_row(row, input.row(0, row), output);
        }
    }

    fn fill_border(&self, output: &mut [u8]) {
        assert_eq!(output.len(), self.output_bytes);
        let &DeliveryOptions { picture, size, channels, channels_first, .. } = &self.options;
        if picture == size {
            return;
        }
        let value = |channel: usize| {
            let sample = usize::from(self.options.fill[channel]);
            &self.options.values[sample * self.value_bytes..][..self.value_bytes]
        };
        let pixels = size.0 * size.1;
        for (place, made) in output.chunks_exact_mut(self.value_bytes).enumerate() {
            made.copy_from_slice(value(if channels_first { place / pixels } else { place % channels }));
        }
    }

    /// Makes a row of the picture in the array.
    fn deliver_row(&self, row: usize, samples: &[u8], output: &mut [u8]) {
        assert_eq!(samples.len(), self.picture().row_bytes);
        match (self.options.sample_bytes, self.value_bytes) {
            (1, 1) => self.look_up_row::<1, 1, 256>(row, samples, output),
            (1, 2) => self.look_up_row::<1, 2, 256>(row, samples, output),
            (1, _) => self.look_up_row::<1, 4, 256>(row, samples, output),
            (_, 1) => self.look_up_row::<2, 1, 65_536>(row, samples, output),
            (_, 2) => self.look_up_row::<2, 2, 65_536>(row, samples, output),
            _ => self.look_up_row::<2, 4, 65_536>(row, samples, output),
        }
    }

    fn look_up_row<const SAMPLE: usize, const VALUE: usize, const VALUES: usize>(
        &self,
        row: usize,
        samples: &[u8],
        output: &mut [u8],
    ) {
        let &DeliveryOptions { picture, size, border, channels, channels_first, .. } = &self.options;
        let values: &[[u8; VALUE]; VALUES] =
            self.options.values.as_chunks().0.try_into().expect("there are as many as was checked");
        let (samples, output) = (samples.as_chunks::<SAMPLE>().0, output.as_chunks_mut::<VALUE>().0);
        let first = (border.1 + row) * size.0 + border.0;
        if !channels_first {
            let made = &mut output[first * channels..][..picture.0 * channels];
            look_up(values, samples.iter(), made);
            return;
        }
        for (channel, plane) in output.chunks_exact_mut(size.0 * size.1).enumerate() {
            let made = &mut plane[first..][..picture.0];
            match channels {
                // So that compilers know the distance.
                3 => look_up(values, samples[channel..].iter().step_by(3), made),
                _ => look_up(values, samples[channel..].iter().step_by(channels), made),
            }
        }
    }
}

#[inline(always)]
fn look_up<'a, const SAMPLE: usize, const VALUE: usize, const VALUES: usize>(
    values: &[[u8; VALUE]; VALUES],
    samples: impl Iterator<Item = &'a [u8; SAMPLE]>,
    made: &mut [[u8; VALUE]],
) {
    for (sample, made) in samples.zip(made) {
        // By the number of values, compilers know that each number has one.
        let number = sample.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
        *made = values[number % VALUES];
    }
}
