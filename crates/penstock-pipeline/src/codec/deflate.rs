//! zlib and gzip: whole members at once by libdeflate, streams by zlib-rs.
//!
//! Uses libdeflate's C interface directly: only its `_ex` functions tell how much of the input a member took, which the
//! usual wrapper does not pass on.

use std::io::{self, BufRead};
use std::ptr::NonNull;

use flate2::{Decompress, FlushDecompress, Status};
use libdeflate_sys as c;

use super::format::{Codec, GZIP_MAGIC, corrupt};
use super::input::Peeked;
use super::member::{Failed, Format, Member, Step, Whole, unpack};

/// RFC 1950's largest window, sufficient for every stream.
const WINDOW_BITS: u8 = 15;

/// The format of RFC 1950.
pub(super) struct Zlib;

impl Format for Zlib {
    fn codec(&self) -> Codec {
        Codec::Zlib
    }

    fn next_member(
        &self,
        _input: &mut Peeked<dyn BufRead + '_>,
        is_first: bool,
        _max_window_bytes: usize,
    ) -> io::Result<Option<Box<dyn Member>>> {
        Ok(is_first.then(|| Box::new(Decompress::new(true)) as Box<dyn Member>))
    }

    fn whole(&self) -> Box<dyn Whole> {
        Box::new(Unzlib(Inflater::new()))
    }
}

/// The format of RFC 1952.
pub(super) struct Gzip;

impl Format for Gzip {
    fn codec(&self) -> Codec {
        Codec::Gzip
    }

    fn next_member(
        &self,
        input: &mut Peeked<dyn BufRead + '_>,
        is_first: bool,
        _max_window_bytes: usize,
    ) -> io::Result<Option<Box<dyn Member>>> {
        let is_next = is_first || begins_member(input.peek(GZIP_MAGIC.len())?);
        Ok(is_next.then(|| Box::new(Decompress::new_gzip(WINDOW_BITS)) as Box<dyn Member>))
    }

    fn whole(&self) -> Box<dyn Whole> {
        Box::new(Gunzip(Inflater::new()))
    }
}

/// Whether a further member begins so. It may be cut after its first byte, which is not to be ignored then.
fn begins_member(rest: &[u8]) -> bool {
    !rest.is_empty() && GZIP_MAGIC.starts_with(&rest[..rest.len().min(GZIP_MAGIC.len())])
}

impl Member for Decompress {
    fn read(
        &mut self,
        input: &mut dyn BufRead,
        output: &mut [u8],
        has_more: &mut bool,
    ) -> io::Result<(usize, bool)> {
        unpack(input, output, has_more, |from, to| inflate(self, from, to))
    }
}

fn inflate(state: &mut Decompress, input: &[u8], output: &mut [u8]) -> io::Result<Step> {
    let before = (state.total_in(), state.total_out());
    let status = state
        .decompress(input, output, FlushDecompress::None)
        .map_err(|error| corrupt(error.message().unwrap_or("the checksum or the data are wrong")))?;
    let (taken, given) = ((state.total_in() - before.0) as usize, (state.total_out() - before.1) as usize);
    Ok(Step { taken, given, has_ended: status == Status::StreamEnd })
}

struct Unzlib(Inflater);

impl Whole for Unzlib {
    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        self.0.inflate(Wrapper::Zlib, asset, output).map(|(_, written)| written)
    }
}

struct Gunzip(Inflater);

impl Whole for Gunzip {
    /// RFC 1952, 2.3.1: the last four bytes are the size, if there is one member and it is below 4 GiB.
    fn claimed_bytes(&self, asset: &[u8]) -> Option<u64> {
        asset.last_chunk().copied().map(u32::from_le_bytes).map(u64::from)
    }

    fn decode(&mut self, asset: &[u8], output: &mut [u8]) -> Result<usize, Failed> {
        let (mut from, mut to) = (0, 0);
        while from == 0 || begins_member(&asset[from..]) {
            let (read, written) = self.0.inflate(Wrapper::Gzip, &asset[from..], &mut output[to..])?;
            (from, to) = (from + read, to + written);
        }
        Ok(to)
    }
}

/// How many bytes a complete member took of the input, and gave.
type Inflated = Result<(usize, usize), Failed>;

/// A decompressor, reusable for any number of members.
struct Inflater(NonNull<c::libdeflate_decompressor>);

// SAFETY: it is memory that only its owner reaches.
unsafe impl Send for Inflater {}

/// What surrounds the DEFLATE data of a member.
enum Wrapper {
    Zlib,
    Gzip,
}

impl Inflater {
    fn new() -> Self {
        // SAFETY: takes nothing; null stands for no memory.
        let raw = unsafe { c::libdeflate_alloc_decompressor() };
        Self(NonNull::new(raw).expect("there is memory for a decompressor (12 KiB)"))
    }

    fn inflate(&mut self, wrapper: Wrapper, input: &[u8], output: &mut [u8]) -> Inflated {
        let decompress = match wrapper {
            Wrapper::Zlib => c::libdeflate_zlib_decompress_ex,
            Wrapper::Gzip => c::libdeflate_gzip_decompress_ex,
        };
        let (mut read, mut written) = (0, 0);
        // SAFETY: the decompressor is ours, both slices are as long as they say, and the call keeps none of its pointers.
        let result = unsafe {
            let (from, to) = (input.as_ptr().cast(), output.as_mut_ptr().cast());
            decompress(self.0.as_ptr(), from, input.len(), to, output.len(), &raw mut read, &raw mut written)
        };
        match result {
            c::libdeflate_result_LIBDEFLATE_SUCCESS => Ok((read, written)),
            c::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE => Err(Failed::NoRoom),
            _ => Err(Failed::Bad),
        }
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: it came from `libdeflate_alloc_decompressor`, and is freed once.
        unsafe { c::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}
