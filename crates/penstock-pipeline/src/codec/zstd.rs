//! zstd frames, by libzstd.

use std::io::{self, BufRead};

use zstd::zstd_safe::{self, DCtx, DParameter, InBuffer, OutBuffer};

use super::format::{Codec, WindowTooLarge, ZSTD_MAGIC, corrupt, truncated};
use super::input::Peeked;
use super::member::{Failed, Format, Member, Step, Whole, unpack};

/// zstd_errors.h: "this list is guaranteed stable" for these.
const DESTINATION_TOO_SMALL: usize = 70;
const SOURCE_SIZE_WRONG: usize = 72;
const WINDOW_TOO_LARGE: usize = 16;

/// RFC 8878, 3.1.1.1.2, recommends that decoders support windows of 8 MiB, which those of `zstd -19` have.
const LEAST_MAX_WINDOW_BYTES: usize = 8 << 20;

/// `ZSTD_WINDOWLOG_MAX_32`, which a processor of any width has.
const MOST_MAX_WINDOW_LOG: u32 = 30;

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
        max_window_bytes: usize,
    ) -> io::Result<Option<Box<dyn Member>>> {
        let claimed_bytes = claimed_bytes(input)?;
        let max_window_log = max_window_bytes.max(LEAST_MAX_WINDOW_BYTES).ilog2().min(MOST_MAX_WINDOW_LOG);
        let mut context = DCtx::create();
        context.set_parameter(DParameter::WindowLogMax(max_window_log)).expect("zstd.h allows it");
        Ok(Some(Box::new(Frame { context, max_window_log, claimed_bytes, given_bytes: 0 })))
    }

    fn whole(&self) -> Box<dyn Whole> {
        Box::new(Decoder(DCtx::create()))
    }
}

struct Decoder(DCtx<'static>);

impl Whole for Decoder {
    fn claimed_bytes(&self, asset: &[u8]) -> Option<u64> {
        zstd_safe::get_frame_content_size(asset).ok().flatten()
    }

    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        self.0.decompress(output, asset).map_err(|code| {
            self.0 = DCtx::create(); // one that has failed is of no further use
            if 0usize.wrapping_sub(code) == DESTINATION_TOO_SMALL { Failed::NoRoom } else { Failed::Bad }
        })
    }
}

struct Frame {
    context: DCtx<'static>,
    max_window_log: u32,
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
        let (context, max_window_log) = (&mut self.context, self.max_window_log);
        let (given, is_over) = unpack(input, output, has_more, |from, to| {
            decompress_zstd(context, from, to).map_err(|code| zstd_error(code, max_window_log))
        })?;
        self.given_bytes += given as u64;
        if is_over && self.claimed_bytes.is_some_and(|bytes| bytes != self.given_bytes) {
            return Err(corrupt("the content has another size than the header says"));
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

fn decompress_zstd(context: &mut DCtx<'_>, input: &[u8], output: &mut [u8]) -> Result<Step, usize> {
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
    let left = context.decompress_stream(&mut to, &mut from)?;
    // 0 means that the frame has ended and all of it was returned.
    Ok(Step { taken: from.pos(), given: to.pos(), has_ended: left == 0 })
}

fn zstd_error(code: usize, max_window_log: u32) -> io::Error {
    match 0usize.wrapping_sub(code) {
        SOURCE_SIZE_WRONG => truncated(),
        WINDOW_TOO_LARGE => io::Error::other(WindowTooLarge { limit_bytes: 1 << max_window_log }),
        _ => corrupt(zstd_safe::get_error_name(code)),
    }
}
