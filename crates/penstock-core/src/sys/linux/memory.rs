//! Private anonymous memory.

use std::ptr::{self, NonNull};
use std::sync::LazyLock;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::sys::error::{Result, SysError};
use crate::sys::faults::{Call, pass};
use crate::sys::span::Span;

/// A huge page on x86-64, and on most others where one exists.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The size of a normal page.
pub(crate) fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether the kernel backs memory with huge pages when it is asked to, for this process too: prctl(2) can refuse them.
pub(crate) fn has_huge_pages() -> bool {
    /// The system's setting, read once: it hardly ever changes, and each short-lived worker would read it.
    static IS_ON: LazyLock<bool> = LazyLock::new(|| {
        std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .is_ok_and(|modes| !modes.contains("[never]"))
    });
    const NONE: libc::c_ulong = 0;
    // SAFETY: it touches no memory.
    let is_refused = unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, NONE, NONE, NONE, NONE) } == 1;
    !is_refused && *IS_ON
}

/// A private anonymous mapping of whole normal pages, zero at first; aligned to huge pages where it holds one.
#[derive(Debug)]
pub(crate) struct Mapping {
    mapping: *mut u8,
    mapping_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread, and is written to through `&mut self`, or through `start` by whoever has no other
// reference into it.
unsafe impl Send for Mapping {}
// SAFETY: through `&self`, only the address and the length are read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least that many bytes; no memory is taken before it is touched.
    ///
    /// # Errors
    ///
    /// `ENOMEM` for more than a slice may hold (`isize::MAX`), and whenever mmap(2) says so.
    pub(crate) fn map(bytes: usize) -> Result<Self> {
        pass(Call::Map, 0)?;
        // So the two sums below cannot overflow: they add less than a huge page each.
        isize::try_from(bytes).map_err(|_| SysError::NO_MEMORY)?;
        let bytes = bytes.max(1).next_multiple_of(page_bytes());
        let alignment = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { page_bytes() };
        let mapping_bytes = bytes + alignment - page_bytes(); // so that an aligned start lies within
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let mapping =
            unsafe { mmap_anonymous(ptr::null_mut(), mapping_bytes, protection, MapFlags::PRIVATE) }?;
        let mapping = mapping.cast::<u8>();
        // SAFETY: the mapping is longer by what the alignment may take, so the aligned start lies in it.
        let start = unsafe { mapping.add(mapping.align_offset(alignment)) };
        if alignment == HUGE_PAGE_BYTES {
            // SAFETY: the range is ours. Advice only: a kernel without huge pages refuses, and nothing is lost.
            let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
        }
        let start = NonNull::new(start).expect("the kernel maps nothing at address 0");
        Ok(Self { mapping, mapping_bytes, start, bytes })
    }

    /// Keeps the pages from children of forks, which would hold on to what they contain. Only for memory that no child reads.
    pub(crate) fn keep_from_children(&self) {
        // SAFETY: the range is ours. Advice only: nothing depends on it.
        let _ = unsafe { madvise(self.start().cast(), self.bytes, Advice::LinuxDontFork) };
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies the span to that offset; the answer is where it lies now.
    ///
    /// # Safety
    ///
    /// The span's memory is readable, and nobody reads the mapping's bytes from `offset` on any more.
    pub(crate) unsafe fn fill(&mut self, offset: usize, span: Span) -> Span {
        assert!(
            offset.checked_add(span.len()).is_some_and(|end| end <= self.bytes),
            "a copy stays in its mapping"
        );
        // SAFETY: the span is readable by the contract above. The range was checked to lie in the mapping, which no span that is
        // copied there is of: its owner has the only address.
        unsafe {
            let target = self.start().add(offset);
            ptr::copy_nonoverlapping(span.as_ptr(), target, span.len());
            Span::at(target, span.len())
        }
    }

    /// Discards the pages of a range: whoever else holds them keeps them, and the next access gets fresh ones.
    pub(crate) fn discard(&mut self, offset: usize, bytes: usize) -> Result<()> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.bytes),
            "a range stays in its mapping"
        );
        // SAFETY: the range was checked to lie in our private mapping, into which nobody has a reference now.
        Ok(unsafe { madvise(self.start().add(offset).cast(), bytes, Advice::LinuxDontNeed) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whoever looks into it borrows from its owner, and pages that a pipe still holds
        // stay with the pipe.
        let _ = unsafe { munmap(self.mapping.cast(), self.mapping_bytes) };
    }
}
