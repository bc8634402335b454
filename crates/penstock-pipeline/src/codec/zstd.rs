//! zstd frames, by libzstd.

use std::io::{self, BufRead};

use zstd::zstd_safe::{self, DCtx, InBuffer, OutBuffer};

use super::format::{Codec, ZSTD_MAGIC, corrupt, truncated};
use super::input::Peeked;
use super::member::{Failed, Format, Member, Step, Whole, unpack};

/// zstd_errors.h: "this list is guaranteed stable" for these.
const DESTINATION_TOO_SMALL: usize = 70;
const SOURCE_SIZE_WRONG: usize = 72;

/// The format.
pub(super) struct Zstd;

impl Format for Zstd {
    fn codec(&self) -> Codec {
        Codec::Zstd
    }

    fn next_member(
        &self,
        input: &mut Peeked<dyn BufRead + '_>,
        _is_first: bool,
    ) -> io::Result<Option<Box<dyn Member>>> {
        let claimed_bytes = claimed_bytes(input)?;
        Ok(Some(Box::new(Frame { context: DCtx::create(), claimed_bytes, given_bytes: 0 })))
    }

    fn whole(&self) -> Option<Box<dyn Whole>> {
        Some(Box::new(Decoder(DCtx::create())))
    }
}

struct Decoder(DCtx<'static>);

impl Whole for Decoder {
    fn claimed_bytes(&self, asset: &[u8]) -> Option<u64> {
        zstd_safe::get_frame_content_size(asset).ok().flatten()
    }

    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        if asset.is_empty() {
            return Err(Failed::Bad);
        }
        self.0.decompress(output, asset).map_err(|code| {
            self.0 = DCtx::create(); // one that has failed is of no further use
            if 0usize.wrapping_sub(code) == DESTINATION_TOO_SMALL { Failed::NoRoom } else { Failed::Bad }
        })
    }
}

struct Frame {
    context: DCtx<'static>,
    /// The size of its content by its header; none if the header does not tell.
    claimed_bytes: Option<u64>,
    given_bytes: u64,
}

impl Member for Frame {
    /// libzstd (1.5) checks the size of the content, except where the last block is empty.
    fn read(
        &mut self,
        input: &mut dyn BufRead,
        output: &mut [u8],
        has_more: &mut bool,
    ) -> io::Result<(usize, bool)> {
        let context = &mut self.context;
        let (given, is_over) =
            unpack(input, output, has_more, |from, to| decompress_zstd(context, from, to))?;
        self.given_bytes += given as u64;
        if is_over && self.claimed_bytes.is_some_and(|bytes| bytes != self.given_bytes) {
            return Err(corrupt("its content has another size than its header says"));
        }
        Ok((given, is_over))
    }
}

/// The content's size in the header of a zstd frame (RFC 8878, 3.1.1.1). Inspects no byte after the header, which it
/// might have to wait for.
fn claimed_bytes(input: &mut Peeked<dyn BufRead + '_>) -> io::Result<Option<u64>> {
    let Some(&[a, b, c, d, descriptor]) = input.peek(5)?.first_chunk() else { return Ok(None) };
    if u32::from_le_bytes([a, b, c, d]) != ZSTD_MAGIC {
        return Ok(None);
    }
    let is_single_segment = usize::from(descriptor >> 5 & 1);
    let window_bytes = 1 - is_single_segment;
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let size_bytes = [is_single_segment, 2, 4, 8][usize::from(descriptor >> 6)];
    let header = input.peek(5 + window_bytes + dictionary_bytes + size_bytes)?;
    Ok(zstd_safe::get_frame_content_size(header).ok().flatten())
}

fn decompress_zstd(context: &mut DCtx<'_>, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
    let left = context.decompress_stream(&mut to, &mut from).map_err(zstd_error)?;
    // 0 means that the frame has ended and all of it was returned.
    Ok(Step { taken: from.pos(), given: to.pos(), has_ended: left == 0 })
}

fn zstd_error(code: usize) -> io::Error {
    if 0usize.wrapping_sub(code) == SOURCE_SIZE_WRONG {
        return truncated();
    }
    corrupt(zstd_safe::get_error_name(code))
}
