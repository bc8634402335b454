//! Decompresses a stream of consecutive members as it arrives.

use std::io::{self, BufRead, Read};

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{self, DCtx, InBuffer, OutBuffer};

use super::format::{Codec, GZIP_MAGIC, LZ4_MAGIC, ZSTD_MAGIC, corrupt, is_skippable, truncated};
use super::input::Peeked;
use super::lz4::Lz4Frame;

/// RFC 1950's largest window, sufficient for every stream.
const WINDOW_BITS: u8 = 15;

/// Decompresses its input. Errors: `UnexpectedEof` if the input ends too early, `InvalidData` if it is invalid, and the
/// input's own.
pub(crate) struct Members<R> {
    input: Peeked<R>,
    codec: Codec,
    member: Option<Member>,
    /// Whether the member may return more without further input, which then must not be waited for.
    has_more: bool,
    /// Whether this is not the first member.
    has_begun: bool,
    has_ended: bool,
}

enum Member {
    Inflate(Box<Decompress>),
    Zstd(ZstdFrame),
    Lz4(Box<Lz4Frame>),
}

struct ZstdFrame {
    context: DCtx<'static>,
    /// The size of its content by its header; none if the header does not tell.
    claimed_bytes: Option<u64>,
    given_bytes: u64,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(codec: Codec, input: R) -> Self {
        Self {
            input: Peeked::new(input),
            codec,
            member: None,
            has_more: false,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Bytes of the input consumed so far.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.input.taken_bytes
    }

    pub(crate) fn input(&mut self) -> &mut R {
        &mut self.input.inner
    }

    /// Begins the next member; none at the end.
    fn next_member(&mut self) -> io::Result<Option<Member>> {
        let start = self.input.peek(4)?;
        self.codec = self.codec.settled(start)?;
        if start.is_empty() {
            return if self.has_begun { Ok(None) } else { Err(truncated()) };
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        match self.codec {
            Codec::Zlib => Ok(is_first.then(|| Member::Inflate(Box::new(Decompress::new(true))))),
            Codec::Gzip if is_first || start.starts_with(&GZIP_MAGIC) => {
                Ok(Some(Member::Inflate(Box::new(Decompress::new_gzip(WINDOW_BITS)))))
            }
            Codec::Gzip => Ok(None),
            Codec::Zstd => Ok(Some(Member::Zstd(ZstdFrame::begin(&mut self.input)?))),
            Codec::Lz4 => self.next_lz4_frame(),
            Codec::Auto => unreachable!("it was settled above"),
        }
    }

    fn next_lz4_frame(&mut self) -> io::Result<Option<Member>> {
        loop {
            let start = self.input.peek(8)?;
            if start.is_empty() {
                return Ok(None);
            }
            let magic = start.first_chunk().copied().map(u32::from_le_bytes).ok_or_else(truncated)?;
            if magic == LZ4_MAGIC {
                return Ok(Some(Member::Lz4(Box::new(Lz4Frame::begin(&mut self.input)?))));
            }
            if !is_skippable(magic) {
                return Err(corrupt("it is no lz4 frame"));
            }
            let size = start[4..].first_chunk().copied().map(u32::from_le_bytes).ok_or_else(truncated)?;
            self.input.skip(8 + u64::from(size))?;
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if output.is_empty() {
            return Ok(0);
        }
        while !self.has_ended {
            let Some(member) = &mut self.member else {
                self.member = self.next_member()?;
                self.has_ended = self.member.is_none();
                continue;
            };
            let (bytes, is_over) = match member {
                Member::Inflate(state) => {
                    unpack(&mut self.input, output, &mut self.has_more, |from, to| inflate(state, from, to))?
                }
                Member::Zstd(frame) => frame.read(&mut self.input, output, &mut self.has_more)?,
                Member::Lz4(frame) => frame.read(&mut self.input, output)?,
            };
            if is_over {
                self.member = None;
                self.has_more = false;
            }
            if bytes > 0 {
                return Ok(bytes);
            }
        }
        Ok(0)
    }
}

/// What one call of a decompressor did.
struct Step {
    taken: usize,
    given: usize,
    has_ended: bool,
}

/// Decompresses some bytes by `step`, which gets input and output. Also returns whether the member has ended.
fn unpack(
    input: &mut impl BufRead,
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

fn inflate(state: &mut Decompress, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
    let before = (state.total_in(), state.total_out());
    let status = state
        .decompress(input, output, FlushDecompress::None)
        .map_err(|error| corrupt(error.message().unwrap_or("its checksum or its data are wrong")))?;
    let (taken, given) = ((state.total_in() - before.0) as usize, (state.total_out() - before.1) as usize);
    Ok(Step { taken, given, has_ended: status == Status::StreamEnd })
}

impl ZstdFrame {
    fn begin(input: &mut Peeked<impl BufRead>) -> io::Result<Self> {
        let claimed_bytes = claimed_bytes(input)?;
        Ok(Self { context: DCtx::create(), claimed_bytes, given_bytes: 0 })
    }

    /// As [`unpack`]. libzstd (1.5) checks the size of the content, except where the last block is empty.
    fn read(
        &mut self,
        input: &mut impl BufRead,
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
fn claimed_bytes(input: &mut Peeked<impl BufRead>) -> io::Result<Option<u64>> {
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

/// zstd_errors.h: "this list is guaranteed stable" for these.
const SOURCE_SIZE_WRONG: usize = 72;

fn zstd_error(code: usize) -> io::Error {
    if 0usize.wrapping_sub(code) == SOURCE_SIZE_WRONG {
        return truncated();
    }
    corrupt(zstd_safe::get_error_name(code))
}
