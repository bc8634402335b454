//! Whole assets into whole buffers, with contexts that are used again.

use std::io::{self, Read};

use super::format::{Codec, corrupt, truncated};
use super::input::Peeked;
use super::member::{Failed, Whole};
use super::members::Members;
use super::table::format_of;
use penstock_core::{Buffer, Error, Pool};

/// A size in a header is trusted up to `BELIEVED_RATIO` times the input plus `BELIEVED_BYTES`, for a header may claim
/// anything. Beyond that the output grows as needed. Texts and textures are compressed 2 to 20 times.
const BELIEVED_RATIO: usize = 64;
const BELIEVED_BYTES: usize = 1 << 20;

/// How much larger the output of the next attempt is. Guessed: large, because each attempt starts from the beginning.
const GROWTH: usize = 4;

/// Why an asset could not be decompressed, and at which of its bytes that showed.
#[derive(Debug)]
pub(crate) enum Undecoded {
    At { byte: u64, error: io::Error },
    TooLarge,
    NoMemory(Error),
}

/// Decompresses one asset after another. libdeflate for zlib and gzip: it needs less than half of the time of zlib-rs on assets of
/// 64 KiB (140 µs against 330: `benches/pipeline.rs`, 2-core x86-64 virtual machine, 2026-11-21), which streams are left to.
#[derive(Default)]
pub(crate) struct Decoder {
    /// One of each format that came.
    contexts: Vec<(Codec, Box<dyn Whole>)>,
    /// How large the last asset was: the next is often like it.
    last_bytes: usize,
}

impl Decoder {
    /// Decompresses all of an asset, of which at most `max_bytes` may come.
    pub(crate) fn decode(
        &mut self,
        codec: Codec,
        asset: &[u8],
        pool: &Pool,
        max_bytes: usize,
    ) -> Result<Buffer, Undecoded> {
        let at_start = |error| Undecoded::At { byte: 0, error };
        if asset.is_empty() {
            return Err(at_start(truncated()));
        }
        let settled = Peeked::new(asset).codec(codec).map_err(at_start)?;
        let last_bytes = self.last_bytes;
        let whole = self.context(settled).map_err(at_start)?;
        let mut room = first_room(whole.claimed_bytes(asset), last_bytes, asset).clamp(1, max_bytes.max(1));
        loop {
            let mut buffer = pool.take(room).map_err(Undecoded::NoMemory)?;
            let available = buffer.capacity().min(max_bytes);
            match whole.decode(asset, &mut buffer.space_mut()[..available]) {
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

    fn context(&mut self, codec: Codec) -> io::Result<&mut dyn Whole> {
        let index = match self.contexts.iter().position(|(of, _)| *of == codec) {
            Some(index) => index,
            None => {
                self.contexts.push((codec, format_of(codec)?.whole()));
                self.contexts.len() - 1
            }
        };
        Ok(&mut *self.contexts[index].1)
    }
}

fn first_room(claim: Option<u64>, last_bytes: usize, asset: &[u8]) -> usize {
    let believed = asset.len().saturating_mul(BELIEVED_RATIO).saturating_add(BELIEVED_BYTES);
    match claim {
        Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX).min(believed),
        None => last_bytes.max(asset.len().saturating_mul(2)).min(believed),
    }
}

/// The fast decoder rejects input that the streaming one accepts. The stricter result counts.
pub(crate) const STRICTER: &str = "the data are wrong";

/// Finds out what is wrong with an asset, and where. Slow, and only taken when something is.
fn explain(codec: Codec, asset: &[u8], max_bytes: usize) -> Undecoded {
    let mut members = Members::new(codec, asset, max_bytes);
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
    Undecoded::At { byte: members.taken_bytes(), error: corrupt(STRICTER) }
}
