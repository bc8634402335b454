//! Input that can be inspected before it is consumed, and that counts what was consumed.

use std::io::{self, BufRead, Read};

use super::format::{Codec, corrupt, is_skippable, truncated};

/// The most bytes that a format needs to see: the longest header of a zstd frame.
const LOOK_BYTES: usize = 18;

/// A reader whose next few bytes can be inspected, even if they arrive one by one.
pub(crate) struct Peeked<R: ?Sized> {
    ahead: [u8; LOOK_BYTES],
    /// The part of `ahead` that is not consumed yet.
    from: usize,
    to: usize,
    /// Bytes consumed so far.
    pub(super) taken_bytes: u64,
    /// Last, so that it can be a trait object.
    pub(super) inner: R,
}

impl<R: BufRead> Peeked<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { ahead: [0; LOOK_BYTES], from: 0, to: 0, taken_bytes: 0, inner }
    }
}

impl<R: BufRead + ?Sized> Peeked<R> {
    /// Returns the next bytes; fewer than `bytes` only at the end.
    pub(crate) fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        self.ahead.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        while self.to < bytes {
            let more = self.inner.fill_buf()?;
            if more.is_empty() {
                break;
            }
            let some = more.len().min(bytes - self.to);
            self.ahead[self.to..self.to + some].copy_from_slice(&more[..some]);
            self.inner.consume(some);
            self.to += some;
        }
        Ok(&self.ahead[..self.to.min(bytes)])
    }

    /// The codec of the input: the named one; for `Auto`, what the next bytes show, which may begin with skippable frames of zstd
    /// or lz4. If nothing else follows them, they count as zstd's, whose tool writes them.
    pub(super) fn codec(&mut self, named: Codec) -> io::Result<Codec> {
        if named != Codec::Auto {
            return Ok(named);
        }
        self.skip_skippable()?;
        let may_be_any = self.taken_bytes == 0;
        let start = self.peek(4)?;
        match Codec::of_start(start) {
            Some(codec) if may_be_any || codec == Codec::Lz4 => Ok(codec),
            _ if !may_be_any => Ok(Codec::Zstd),
            _ if start.is_empty() => Err(truncated()),
            _ => Err(corrupt("the data are neither zlib, gzip, zstd nor lz4")),
        }
    }

    fn skip_skippable(&mut self) -> io::Result<()> {
        while let Some(&[a, b, c, d, e, f, g, h]) = self.peek(8)?.first_chunk()
            && is_skippable(u32::from_le_bytes([a, b, c, d]))
        {
            skip(self, 8 + u64::from(u32::from_le_bytes([e, f, g, h])))?;
        }
        Ok(())
    }
}

/// Skips that many bytes; an error if there are fewer.
pub(super) fn skip(input: &mut (impl BufRead + ?Sized), bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut input.take(bytes), &mut io::sink())?;
    if skipped == bytes { Ok(()) } else { Err(truncated()) }
}

impl<R: BufRead + ?Sized> BufRead for Peeked<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.from < self.to { Ok(&self.ahead[self.from..self.to]) } else { self.inner.fill_buf() }
    }

    fn consume(&mut self, bytes: usize) {
        self.taken_bytes += bytes as u64;
        if self.from < self.to {
            self.from += bytes;
        } else {
            self.inner.consume(bytes);
        }
    }
}

impl<R: BufRead + ?Sized> Read for Peeked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(buffer)?;
        self.consume(bytes);
        Ok(bytes)
    }
}
