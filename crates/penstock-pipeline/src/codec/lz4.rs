//! LZ4 frames, after the description of the format, version 1.6.4 (lz4_Frame_format.md).
//!
//! Not `lz4_flex::frame`, which takes input that ends between two blocks for the end of the frame.

use std::hash::Hasher;
use std::io::{self, BufRead};

use lz4_flex::block::{DecompressError, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::format::{Codec, LZ4_MAGIC, corrupt, is_skippable, truncated};
use super::input::{Peeked, skip};
use super::member::{Failed, Format, Member, Whole};

/// Linked blocks refer to at most so many earlier bytes.
const WINDOW_BYTES: usize = 64 << 10;

/// Set in the size of an uncompressed block.
const UNCOMPRESSED: u32 = 1 << 31;

/// The most bytes that one of a compressed block gives (lz4_Block_format.md: each byte of a length adds at most so many).
const MOST_PER_BYTE: usize = 255;

/// The format.
pub(super) struct Lz4;

impl Format for Lz4 {
    fn codec(&self) -> Codec {
        Codec::Lz4
    }

    /// All frames are one member, so that they share its memory.
    fn next_member(
        &self,
        _input: &mut Peeked<dyn BufRead + '_>,
        is_first: bool,
        _max_window_bytes: usize,
    ) -> io::Result<Option<Box<dyn Member>>> {
        Ok(is_first.then(|| Box::<Frames>::default() as Box<dyn Member>))
    }

    fn whole(&self) -> Box<dyn Whole> {
        Box::new(Decoder)
    }
}

struct Decoder;

impl Whole for Decoder {
    fn claimed_bytes(&self, mut asset: &[u8]) -> Option<u64> {
        Frame::next(&mut asset).ok()??.expected_bytes
    }

    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        let mut input = asset;
        let mut to = 0;
        while let Some(mut frame) = Frame::next(&mut input)? {
            let start = to;
            while let Some(block) = frame.next_block(&mut input)? {
                let (stored, rest) = input.split_at_checked(block.bytes).ok_or(Failed::Bad)?;
                input = rest;
                frame.check(stored, &mut input)?;
                let (before, space) = output.split_at_mut(to);
                let is_cut = space.len() < frame.max_block_bytes;
                let space = if is_cut { space } else { &mut space[..frame.max_block_bytes] };
                to += frame.unpack(&block, stored, &before[start..], space).map_err(|error| match error {
                    DecompressError::OutputTooSmall { .. } if is_cut => Failed::NoRoom,
                    _ => Failed::Bad,
                })?;
            }
        }
        Ok(to)
    }
}

/// The frames of a stream, with memory that they share.
#[derive(Default)]
pub(super) struct Frames {
    /// The frame in progress.
    frame: Option<Frame>,
    /// The bytes of a block as they lie in the frame.
    stored: Vec<u8>,
    /// The content of the block up to `to`. In front of it are the bytes before it that a linked block may refer to. Only
    /// grows, because what a vector grows by is filled with zeros.
    content: Vec<u8>,
    /// The part of the block that was not returned yet.
    from: usize,
    to: usize,
}

impl Member for Frames {
    fn read(
        &mut self,
        input: &mut dyn BufRead,
        output: &mut [u8],
        _has_more: &mut bool,
    ) -> io::Result<(usize, bool)> {
        while self.from == self.to {
            if !self.step(input)? {
                return Ok((0, true));
            }
        }
        let bytes = output.len().min(self.to - self.from);
        output[..bytes].copy_from_slice(&self.content[self.from..self.from + bytes]);
        self.from += bytes;
        Ok((bytes, false))
    }
}

impl Frames {
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.stored.capacity() + self.content.capacity()
    }

    /// Decompresses the next block, or begins or ends a frame. Returns false at the end of the input.
    fn step(&mut self, input: &mut dyn BufRead) -> io::Result<bool> {
        let Some(frame) = &mut self.frame else {
            self.frame = Frame::next(input)?;
            (self.from, self.to) = (0, 0);
            return Ok(self.frame.is_some());
        };
        let Some(block) = frame.next_block(input)? else {
            self.frame = None;
            return Ok(true);
        };
        read_bytes(input, block.bytes, &mut self.stored)?;
        frame.check(&self.stored, input)?;
        let kept = if frame.has(Frame::INDEPENDENT) { 0 } else { self.to.min(WINDOW_BYTES) };
        self.content.copy_within(self.to - kept..self.to, 0);
        let end = kept + block.most_bytes().min(frame.max_block_bytes);
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        let (before, space) = self.content[..end].split_at_mut(kept);
        let given = frame.unpack(&block, &self.stored, before, space);
        (self.from, self.to) = (kept, kept + given.map_err(|error| corrupt(error.to_string()))?);
        Ok(true)
    }
}

/// A frame in progress: what its header says, and what is to be checked at its end.
struct Frame {
    flags: u8,
    max_block_bytes: usize,
    /// Bytes of its content, if the header tells.
    expected_bytes: Option<u64>,
    given_bytes: u64,
    content: XxHash32,
}

/// A block of a frame.
struct Block {
    /// How many bytes it has in the frame.
    bytes: usize,
    is_packed: bool,
}

impl Block {
    /// The most bytes that it can give.
    fn most_bytes(&self) -> usize {
        if self.is_packed { self.bytes.saturating_mul(MOST_PER_BYTE) } else { self.bytes }
    }
}

impl Frame {
    const INDEPENDENT: u8 = 1 << 5;
    const BLOCK_CHECKSUMS: u8 = 1 << 4;
    const CONTENT_SIZE: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;
    const DICTIONARY: u8 = 1;

    /// Begins the next frame, after any skippable ones; none at the end of the input.
    fn next(input: &mut dyn BufRead) -> io::Result<Option<Self>> {
        while !input.fill_buf()?.is_empty() {
            match number(input)? {
                LZ4_MAGIC => return Self::begin(input).map(Some),
                magic if is_skippable(magic) => {
                    let bytes = number(input)?;
                    skip(input, bytes.into())?;
                }
                _ => return Err(corrupt("the data are no lz4 frame")),
            }
        }
        Ok(None)
    }

    /// Reads the header of a frame, after its magic number.
    fn begin(input: &mut dyn BufRead) -> io::Result<Self> {
        let mut header = vec![0; 2];
        input.read_exact(&mut header)?;
        let (flags, sizes) = (header[0], header[1]);
        if flags >> 6 != 1 || flags & 2 != 0 || sizes & 0x8F != 0 {
            return Err(corrupt("the header has a version or a bit that lz4 doesn't know"));
        }
        let expected_bytes = match flags & Self::CONTENT_SIZE {
            0 => None,
            _ => {
                let mut size = [0; 8];
                input.read_exact(&mut size)?;
                header.extend(size);
                Some(u64::from_le_bytes(size))
            }
        };
        if flags & Self::DICTIONARY != 0 {
            return Err(corrupt("the frame needs a dictionary, which is not supported"));
        }
        let mut checksum = [0];
        input.read_exact(&mut checksum)?;
        if (XxHash32::oneshot(0, &header) >> 8) as u8 != checksum[0] {
            return Err(corrupt("the checksum of the header is wrong"));
        }
        let max_block_bytes = match sizes >> 4 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            7 => 4 << 20,
            _ => return Err(corrupt("the header has a block size that lz4 doesn't know")),
        };
        let content = XxHash32::with_seed(0);
        Ok(Self { flags, max_block_bytes, expected_bytes, given_bytes: 0, content })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Begins the next block, whose bytes follow. None at the end of the frame, which is checked.
    fn next_block(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Block>> {
        let size = number(input)?;
        if size == 0 {
            return self.end(input).map(|()| None);
        }
        let block = Block { bytes: (size & !UNCOMPRESSED) as usize, is_packed: size & UNCOMPRESSED == 0 };
        if block.bytes > self.max_block_bytes {
            return Err(corrupt("a block is larger than the header allows"));
        }
        Ok(Some(block))
    }

    /// Reads and compares the checksum of a block, if the frame has them.
    fn check(&self, stored: &[u8], input: &mut dyn BufRead) -> io::Result<()> {
        if self.has(Self::BLOCK_CHECKSUMS) && number(input)? != XxHash32::oneshot(0, stored) {
            return Err(corrupt("the checksum of a block is wrong"));
        }
        Ok(())
    }

    /// Decompresses a block. `before` ends with the bytes of the frame before it. Returns how many bytes it has.
    fn unpack(
        &mut self,
        block: &Block,
        stored: &[u8],
        before: &[u8],
        output: &mut [u8],
    ) -> Result<usize, DecompressError> {
        let window_bytes = if self.has(Self::INDEPENDENT) { 0 } else { before.len().min(WINDOW_BYTES) };
        let window = &before[before.len() - window_bytes..];
        let bytes = if block.is_packed {
            decompress_into_with_dict(stored, output, window)?
        } else {
            let (expected, actual) = (stored.len(), output.len());
            let room =
                output.get_mut(..expected).ok_or(DecompressError::OutputTooSmall { expected, actual })?;
            room.copy_from_slice(stored);
            expected
        };
        self.given_bytes += bytes as u64;
        if self.has(Self::CONTENT_CHECKSUM) {
            self.content.write(&output[..bytes]);
        }
        Ok(bytes)
    }

    fn end(&mut self, input: &mut dyn BufRead) -> io::Result<()> {
        if self.has(Self::CONTENT_CHECKSUM) && number(input)? != self.content.finish_32() {
            return Err(corrupt("the checksum of the content is wrong"));
        }
        match self.expected_bytes {
            Some(expected) if expected != self.given_bytes => {
                Err(corrupt("the content has another size than the header says"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads that many bytes. Takes no more memory than there is input, whatever a block claims to have.
fn read_bytes(input: &mut dyn BufRead, bytes: usize, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    while into.len() < bytes {
        let available = input.fill_buf()?;
        if available.is_empty() {
            return Err(truncated());
        }
        let some = available.len().min(bytes - into.len());
        into.extend_from_slice(&available[..some]);
        input.consume(some);
    }
    Ok(())
}

fn number(input: &mut dyn BufRead) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}
