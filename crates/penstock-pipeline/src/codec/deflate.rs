//! libdeflate: whole zlib and gzip members at once.
//!
//! Uses the C interface directly: only its `_ex` functions tell how much of the input a member took, which the usual
//! wrapper does not pass on.

use std::ptr::NonNull;

use libdeflate_sys as c;

/// Why one attempt with an output of some size did not succeed.
pub(super) enum Failed {
    /// The output is too small.
    NoRoom,
    /// The asset is invalid, incomplete, or has a wrong checksum. `explain` finds out why.
    Bad,
}

/// How many bytes a complete member took of the input, and gave.
type Inflated = Result<(usize, usize), Failed>;

/// A decompressor, reusable for any number of members.
pub(crate) struct Inflater(NonNull<c::libdeflate_decompressor>);

// SAFETY: it is memory that only its owner reaches.
unsafe impl Send for Inflater {}

/// What surrounds the DEFLATE data of a member.
pub(crate) enum Wrapper {
    Zlib,
    Gzip,
}

impl Inflater {
    pub(crate) fn new() -> Self {
        // SAFETY: takes nothing; null stands for no memory.
        let raw = unsafe { c::libdeflate_alloc_decompressor() };
        Self(NonNull::new(raw).expect("there is memory for a decompressor (12 KiB)"))
    }

    pub(crate) fn inflate(&mut self, wrapper: Wrapper, input: &[u8], output: &mut [u8]) -> Inflated {
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
