//! LZ4 frames, after the description of the format, version 1.6.4 (lz4_Frame_format.md).
//!
//! Not `lz4_flex::frame`, which takes input that ends between two blocks for the end of the frame.

use std::hash::Hasher;
use std::io::{self, BufRead};

use lz4_flex::block::decompress_into_with_dict;
use twox_hash::XxHash32;

use super::format::{Codec, LZ4_MAGIC, corrupt, is_skippable, truncated};
use super::input::Peeked;
use super::member::{Format, Member};

/// Linked blocks refer to at most so many earlier bytes.
const WINDOW_BYTES: usize = 64 << 10;

/// Set in the size of an uncompressed block.
const UNCOMPRESSED: u32 = 1 << 31;

/// The format.
pub(super) struct Lz4;

impl Format for Lz4 {
    fn codec(&self) -> Codec {
        Codec::Lz4
    }

    fn next_member(
        &self,
        input: &mut Peeked<dyn BufRead + '_>,
        _is_first: bool,
    ) -> io::Result<Option<Box<dyn Member>>> {
        loop {
            let start = input.peek(8)?;
            if start.is_empty() {
                return Ok(None);
            }
            let magic = start.first_chunk().copied().map(u32::from_le_bytes).ok_or_else(truncated)?;
            if magic == LZ4_MAGIC {
                return Ok(Some(Box::new(Frame::begin(input)?)));
            }
            if !is_skippable(magic) {
                return Err(corrupt("it is no lz4 frame"));
            }
            let size = start[4..].first_chunk().copied().map(u32::from_le_bytes).ok_or_else(truncated)?;
            input.skip(8 + u64::from(size))?;
        }
    }
}

impl Member for Frame {
    fn read(
        &mut self,
        input: &mut dyn BufRead,
        output: &mut [u8],
        _has_more: &mut bool,
    ) -> io::Result<(usize, bool)> {
        while self.from == self.to {
            if !self.next_block(input)? {
                return Ok((0, true));
            }
        }
        let bytes = output.len().min(self.to - self.from);
        output[..bytes].copy_from_slice(&self.block[self.from..self.from + bytes]);
        self.from += bytes;
        Ok((bytes, false))
    }
}

/// A frame in progress, with a buffer of one block.
struct Frame {
    flags: u8,
    max_block_bytes: usize,
    /// Bytes of content still to come, if the frame tells.
    expected_bytes: Option<u64>,
    given_bytes: u64,
    content: XxHash32,
    packed: Vec<u8>,
    block: Vec<u8>,
    /// The part of `block` that was not returned yet.
    from: usize,
    to: usize,
    /// The bytes before `block` that a linked block may refer to.
    window: Vec<u8>,
}

impl Frame {
    const INDEPENDENT: u8 = 1 << 5;
    const BLOCK_CHECKSUMS: u8 = 1 << 4;
    const CONTENT_SIZE: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;
    const DICTIONARY: u8 = 1;

    /// Reads the header of a frame, magic number included.
    fn begin(input: &mut (impl BufRead + ?Sized)) -> io::Result<Self> {
        let _magic = number(input)?;
        let mut header = vec![0; 2];
        input.read_exact(&mut header)?;
        let (flags, sizes) = (header[0], header[1]);
        if flags >> 6 != 1 || flags & 2 != 0 || sizes & 0x8F != 0 {
            return Err(corrupt("its header has a version or a bit that lz4 does not know"));
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
            return Err(corrupt("it needs a dictionary"));
        }
        let mut checksum = [0];
        input.read_exact(&mut checksum)?;
        if (XxHash32::oneshot(0, &header) >> 8) as u8 != checksum[0] {
            return Err(corrupt("the checksum of its header is wrong"));
        }
        let max_block_bytes = match sizes >> 4 {
            4 => 64 << 10,
            5 => 256 << 10,
            6 => 1 << 20,
            7 => 4 << 20,
            _ => return Err(corrupt("its header has a size of blocks that lz4 does not know")),
        };
        Ok(Self {
            flags,
            max_block_bytes,
            expected_bytes,
            given_bytes: 0,
            content: XxHash32::with_seed(0),
            packed: Vec::new(),
            block: Vec::new(),
            from: 0,
            to: 0,
            window: Vec::new(),
        })
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Decompresses the next block. Returns false at the end of the frame.
    fn next_block(&mut self, input: &mut (impl BufRead + ?Sized)) -> io::Result<bool> {
        let size = number(input)?;
        if size == 0 {
            return self.end(input).map(|()| false);
        }
        let bytes = (size & !UNCOMPRESSED) as usize;
        if bytes > self.max_block_bytes {
            return Err(corrupt("a block is larger than its header allows"));
        }
        self.keep_window();
        self.packed.resize(bytes, 0);
        input.read_exact(&mut self.packed)?;
        if self.has(Self::BLOCK_CHECKSUMS) && number(input)? != XxHash32::oneshot(0, &self.packed) {
            return Err(corrupt("the checksum of a block is wrong"));
        }
        self.block.resize(self.max_block_bytes, 0);
        self.from = 0;
        self.to = if size & UNCOMPRESSED == 0 {
            decompress_into_with_dict(&self.packed, &mut self.block, &self.window)
                .map_err(|error| corrupt(error.to_string()))?
        } else {
            self.block[..bytes].copy_from_slice(&self.packed);
            bytes
        };
        self.given_bytes += self.to as u64;
        if self.has(Self::CONTENT_CHECKSUM) {
            self.content.write(&self.block[..self.to]);
        }
        Ok(true)
    }

    /// Keeps the end of the last block, which the next may refer to.
    fn keep_window(&mut self) {
        if self.has(Self::INDEPENDENT) {
            return;
        }
        let last = &self.block[..self.to];
        let last = &last[last.len().saturating_sub(WINDOW_BYTES)..];
        let superfluous = (self.window.len() + last.len()).saturating_sub(WINDOW_BYTES);
        self.window.drain(..superfluous);
        self.window.extend_from_slice(last);
    }

    fn end(&mut self, input: &mut (impl BufRead + ?Sized)) -> io::Result<()> {
        if self.has(Self::CONTENT_CHECKSUM) && number(input)? != self.content.finish_32() {
            return Err(corrupt("the checksum of its content is wrong"));
        }
        match self.expected_bytes {
            Some(expected) if expected != self.given_bytes => {
                Err(corrupt("its content is not as long as its header says"))
            }
            _ => Ok(()),
        }
    }
}

fn number(input: &mut (impl BufRead + ?Sized)) -> io::Result<u32> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}
