//! What each format implements, and what several of them use.

use std::io::{self, BufRead};

use super::format::{Codec, truncated};
use super::input::Peeked;

/// A compressed format.
pub(super) trait Format: Sync {
    /// Which one.
    fn codec(&self) -> Codec;

    /// Begins the next member; none if the input ends here, or what follows is to be ignored. The first one has input. Its
    /// window takes at most so much memory.
    fn next_member(
        &self,
        input: &mut Peeked<dyn BufRead + '_>,
        is_first: bool,
        max_window_bytes: usize,
    ) -> io::Result<Option<Box<dyn Member>>>;

    /// What decompresses whole assets.
    fn whole(&self) -> Box<dyn Whole>;
}

/// A member of a stream in progress.
pub(super) trait Member {
    /// Decompresses some bytes. Also returns whether the member has ended. Sets `has_more` if it may return more without further
    /// input.
    fn read(
        &mut self,
        input: &mut dyn BufRead,
        output: &mut [u8],
        has_more: &mut bool,
    ) -> io::Result<(usize, bool)>;
}

/// Decompresses one whole asset after another.
pub(super) trait Whole: Send {
    /// The size of the content by what the asset says of it, which may claim anything.
    fn claimed_bytes(&self, _asset: &[u8]) -> Option<u64> {
        None
    }

    /// Returns how many bytes came out.
    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed>;
}

/// Why one attempt with an output of some size did not succeed.
pub(super) enum Failed {
    /// The output is too small.
    NoRoom,
    /// The asset is invalid, incomplete, or has a wrong checksum. `explain` finds out why.
    Bad,
}

impl From<io::Error> for Failed {
    fn from(_: io::Error) -> Self {
        Self::Bad
    }
}

/// What one call of a decompressor did.
pub(super) struct Step {
    pub(super) taken: usize,
    pub(super) given: usize,
    pub(super) has_ended: bool,
}

/// Decompresses some bytes by `step`, which gets input and output. Also returns whether the member has ended.
pub(super) fn unpack(
    input: &mut dyn BufRead,
    output: &mut [u8],
    has_more: &mut bool,
    mut step: impl FnMut(&[u8], &mut [u8]) -> io::Result<Step>,
) -> io::Result<(usize, bool)> {
    loop {
        let is_asked_for_more = std::mem::take(has_more);
        let available = if is_asked_for_more { &[] } else { input.fill_buf()? };
        let at_end = available.is_empty() && !is_asked_for_more;
        let Step { taken, given, has_ended } = step(available, output)?;
        input.consume(taken);
        *has_more = given == output.len();
        if has_ended || given > 0 {
            return Ok((given, has_ended));
        }
        if at_end {
            return Err(truncated());
        }
    }
}
