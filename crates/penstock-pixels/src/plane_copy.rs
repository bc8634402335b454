//! Copies of planes whose samples do not matter.

use std::ops::Range;

use super::planes::{PlaneSize, Planes};

/// Copies the rows of planes one after another, without their padding, whatever their samples are.
#[derive(Clone, Debug)]
pub struct PlaneCopy {
    sizes: Vec<PlaneSize>,
    output_bytes: usize,
}

/// Some rows of a copy, of each plane. Bands share no byte, so that threads can make them at the same time.
#[derive(Debug)]
pub struct CopyBand<'a>(Vec<(Range<usize>, &'a mut [u8])>);

impl PlaneCopy {
    /// Prepares copies of planes of these sizes; none if no memory holds them.
    #[must_use]
    pub fn new(sizes: Vec<PlaneSize>) -> Option<Self> {
        let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(size.bytes()?));
        let output_bytes = sum.filter(|bytes| isize::try_from(*bytes).is_ok())?;
        Some(Self { sizes, output_bytes })
    }

    /// The sizes of the planes.
    #[must_use]
    pub fn input_sizes(&self) -> &[PlaneSize] {
        &self.sizes
    }

    /// Size of a copy in bytes.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Splits a copy into so many bands of similar size.
    ///
    /// # Panics
    ///
    /// If `output` does not have the size above, or `count` is 0.
    #[must_use]
    pub fn bands<'a>(&self, count: usize, mut output: &'a mut [u8]) -> Vec<CopyBand<'a>> {
        assert_eq!(output.len(), self.output_bytes);
        let mut bands: Vec<_> = (0..count).map(|_| CopyBand(Vec::with_capacity(self.sizes.len()))).collect();
        for PlaneSize { rows, row_bytes } in &self.sizes {
            for (index, CopyBand(parts)) in bands.iter_mut().enumerate() {
                let own = rows * index / count..rows * (index + 1) / count;
                let (bytes, others) = output.split_at_mut(own.len() * row_bytes);
                parts.push((own, bytes));
                output = others;
            }
        }
        bands
    }

    /// Makes the rows of a band.
    ///
    /// # Panics
    ///
    /// If the planes do not have the sizes above.
    pub fn copy_band(&self, input: &Planes<'_>, band: CopyBand<'_>) {
        for (plane, (rows, output)) in band.0.into_iter().enumerate() {
            let row_bytes = self.sizes[plane].row_bytes;
            if rows.is_empty() || row_bytes == 0 {
                continue;
            }
            if input.stride(plane) == row_bytes
                && !input.is_bottom_up(plane)
                && let Some(memory) = input.memory(plane, rows.clone())
            {
                output.copy_from_slice(memory);
                continue;
            }
            for (row, made) in rows.zip(output.chunks_exact_mut(row_bytes)) {
                made.copy_from_slice(input.row(plane, row));
            }
        }
    }
}
