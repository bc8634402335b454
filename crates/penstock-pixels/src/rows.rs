//! The input of [`to_rgb`](super::to_rgb).

/// Pixels that are converted at once. Measured: with 32, it takes 1.1 times as long.
pub(super) const BLOCK: usize = 64;

/// The rows that share a row of chroma.
pub(super) struct Rows<'a> {
    pub(super) width: usize,
    pub(super) luma: &'a [&'a [u8]],
    /// The chroma of the first and of the last channel of the output.
    pub(super) chroma: [&'a [u8]; 2],
    /// Which sample of a pair belongs to the first and to the last channel, where chroma is interleaved.
    pub(super) places: [usize; 2],
}

#[cfg(target_arch = "x86_64")]
impl Rows<'_> {
    /// # Panics
    ///
    /// If a row is shorter than the blocks.
    #[inline(always)]
    pub(super) fn check<const BYTES: usize, const COLUMNS: usize, const STEP: usize>(&self, blocks: usize) {
        assert!(self.width >= BLOCK && blocks <= self.width.div_ceil(BLOCK));
        // So compilers know that there is no loop over rows, for which they would keep vectors in memory.
        assert!(COLUMNS == 2 || self.luma.len() == 1);
        assert!(self.luma.iter().all(|row| row.len() >= self.width * BYTES));
        let chroma_samples = self.width.checked_div(COLUMNS).unwrap_or(0);
        assert!(self.chroma.iter().all(|row| row.len() >= chroma_samples * BYTES * STEP));
    }
}
