//! Private memory of whole pages.

use std::ptr::{self, NonNull};

use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::SystemInformation::{GetSystemInfo, SYSTEM_INFO};

use crate::sys::error::{Result, SysError};
use crate::sys::span::Span;

/// Of no use here: pipes take no pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

pub(crate) fn has_huge_pages() -> bool {
    false
}

/// The size of a page.
pub(crate) fn page_bytes() -> usize {
    let mut info = SYSTEM_INFO::default();
    // SAFETY: the struct is written during the call.
    unsafe { GetSystemInfo(&raw mut info) };
    info.dwPageSize as usize
}

/// Whole pages, zero at first.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the pages belong to no thread, and are written to through `&mut self`, or through `start` by whoever has no other
// reference into them.
unsafe impl Send for Mapping {}
// SAFETY: through `&self`, only the address and the length are read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least that many bytes.
    ///
    /// # Errors
    ///
    /// `ERROR_NOT_ENOUGH_MEMORY` for more than a slice may hold (`isize::MAX`), and what VirtualAlloc says.
    pub(crate) fn map(bytes: usize) -> Result<Self> {
        // So the sum below cannot overflow.
        isize::try_from(bytes).map_err(|_| SysError::NO_MEMORY)?;
        let bytes = bytes.max(1).next_multiple_of(page_bytes());
        // SAFETY: fresh pages at an address of the system's choice overlap nothing.
        let start = unsafe { VirtualAlloc(ptr::null(), bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE) };
        let start = NonNull::new(start.cast()).ok_or_else(refusal)?;
        Ok(Self { start, bytes })
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// There are no forks.
    pub(crate) fn keep_from_children(&self) {}

    /// Nothing is staged here: see [`discard`](Self::discard).
    pub(crate) unsafe fn fill(&mut self, _: usize, span: Span) -> Span {
        span
    }

    /// Pipes take no pages.
    pub(crate) fn discard(&mut self, _: usize, _: usize) -> Result<()> {
        Err(SysError::UNSUPPORTED)
    }
}

/// It calls more than its address space a wrong argument.
fn refusal() -> SysError {
    match SysError::last() {
        SysError::INVALID => SysError::NO_MEMORY,
        error => error,
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and whoever looks into them borrows from their owner.
        unsafe { VirtualFree(self.start().cast(), 0, MEM_RELEASE) };
    }
}
