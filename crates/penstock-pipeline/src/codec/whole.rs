//! Whole assets into whole buffers, with contexts that are used again.

use std::io::{self, Read};

use rustix::io::Errno;
use zstd::zstd_safe::{self, DCtx};

use super::deflate::{Failed, Inflater, Wrapper};
use super::format::{Codec, GZIP_MAGIC, corrupt, truncated};
use super::members::Members;
use penstock_core::{Buffer, Pool};

/// A size in a header is trusted up to `BELIEVED_RATIO` times the input plus `BELIEVED_BYTES`, for a header may claim
/// anything. Beyond that the output grows as needed. Texts and textures are compressed 2 to 20 times.
const BELIEVED_RATIO: usize = 64;
const BELIEVED_BYTES: usize = 1 << 20;

/// How much larger the next attempt is when there was no room. Four, for an attempt throws away what the last one did.
const GROWTH: usize = 4;

/// zstd_errors.h: "this list is guaranteed stable" for these.
const DESTINATION_TOO_SMALL: usize = 70;

/// Why an asset could not be decompressed, and at which of its bytes that showed.
#[derive(Debug)]
pub(crate) enum Undecoded {
    At { byte: u64, error: io::Error },
    TooLarge,
    NoMemory(Errno),
}

/// Decompresses one asset after another. libdeflate for zlib and gzip: it needs less than half of the time of zlib-rs on assets of
/// 64 KiB (140 µs against 330: `benches/pipeline.rs`, 2-core x86-64 virtual machine, 2026-11-21), which streams are left to.
pub(crate) struct Decoder {
    inflater: Inflater,
    zstd: DCtx<'static>,
    /// How large the last asset was: the next is often like it.
    last_bytes: usize,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { inflater: Inflater::new(), zstd: DCtx::create(), last_bytes: 0 }
    }

    /// Decompresses all of an asset, of which at most `max_bytes` may come.
    pub(crate) fn decode(
        &mut self,
        codec: Codec,
        asset: &[u8],
        pool: &Pool,
        max_bytes: usize,
    ) -> Result<Buffer, Undecoded> {
        let start = &asset[..asset.len().min(4)];
        let settled = codec.settled(start).map_err(|error| Undecoded::At { byte: 0, error })?;
        let mut room = self.first_room(settled, asset).clamp(1, max_bytes.max(1));
        loop {
            let mut buffer = pool.take(room).map_err(Undecoded::NoMemory)?;
            let available = buffer.capacity().min(max_bytes);
            match self.attempt(settled, asset, &mut buffer.space_mut()[..available]) {
                Ok(bytes) => {
                    self.last_bytes = bytes;
                    buffer.set_len(bytes);
                    return Ok(buffer);
                }
                Err(Failed::NoRoom) if available == max_bytes => return Err(Undecoded::TooLarge),
                Err(Failed::NoRoom) => room = available.saturating_mul(GROWTH).min(max_bytes),
                Err(Failed::Bad) => return Err(explain(settled, asset, max_bytes)),
            }
        }
    }

    fn first_room(&self, codec: Codec, asset: &[u8]) -> usize {
        let believed = asset.len().saturating_mul(BELIEVED_RATIO).saturating_add(BELIEVED_BYTES);
        let claim = match codec {
            // RFC 1952, 2.3.1: the last four bytes are the size, if there is one member and it is below 4 GiB.
            Codec::Gzip => asset.last_chunk().copied().map(u32::from_le_bytes).map(u64::from),
            Codec::Zstd => zstd_safe::get_frame_content_size(asset).ok().flatten(),
            _ => None,
        };
        match claim {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX).min(believed),
            None => self.last_bytes.max(asset.len().saturating_mul(2)).min(believed),
        }
    }

    /// Returns how many bytes came out.
    fn attempt(&mut self, codec: Codec, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        match codec {
            Codec::Zlib => self.inflater.inflate(Wrapper::Zlib, asset, output).map(|(_, written)| written),
            Codec::Gzip => self.gunzip(asset, output),
            Codec::Zstd => self.unpack_zstd(asset, output),
            Codec::Lz4 | Codec::Auto => stream(codec, asset, output),
        }
    }

    fn gunzip(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        let (mut from, mut to) = (0, 0);
        while from == 0 || asset[from..].starts_with(&GZIP_MAGIC) {
            let (read, written) = self.inflater.inflate(Wrapper::Gzip, &asset[from..], &mut output[to..])?;
            (from, to) = (from + read, to + written);
        }
        Ok(to)
    }

    fn unpack_zstd(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        if asset.is_empty() {
            return Err(Failed::Bad);
        }
        self.zstd.decompress(output, asset).map_err(|code| {
            self.zstd = DCtx::create(); // one that has failed is of no further use
            if 0usize.wrapping_sub(code) == DESTINATION_TOO_SMALL { Failed::NoRoom } else { Failed::Bad }
        })
    }
}

/// Decompresses with the streaming decoder.
fn stream(codec: Codec, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
    let mut members = Members::new(codec, asset);
    let mut bytes = 0;
    loop {
        match members.read(&mut output[bytes..]).map_err(|_| Failed::Bad)? {
            0 if bytes == output.len() && !matches!(members.read(&mut [0]), Ok(0)) => {
                return Err(Failed::NoRoom);
            }
            0 => return Ok(bytes),
            more => bytes += more,
        }
    }
}

/// Finds out what is wrong with an asset, and where. Slow, and only taken when something is.
fn explain(codec: Codec, asset: &[u8], max_bytes: usize) -> Undecoded {
    let mut members = Members::new(codec, asset);
    let mut scratch = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match members.read(&mut scratch) {
            Ok(0) => break,
            Ok(more) => bytes += more,
            Err(error) => return Undecoded::At { byte: members.taken_bytes(), error },
        }
        if bytes > max_bytes {
            return Undecoded::TooLarge;
        }
    }
    // The fast decoder rejects input that the streaming one accepts. The stricter result counts.
    let error = if asset.is_empty() { truncated() } else { corrupt("its data are wrong") };
    Undecoded::At { byte: members.taken_bytes(), error }
}
