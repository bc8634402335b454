//! Page-aligned memory that is reused, in size classes.

use std::fmt;
use std::mem;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::error::Error;
use crate::memory::region::Region;
use crate::sync::generation::fork_generation;
use crate::sync::lock;
use crate::sys::SysError;
use crate::sys::memory::{Mapping, page_bytes};

/// Up to 256 PiB with pages of 4 KiB, and 4 EiB with pages of 64 KiB: more than an address space holds.
const CLASSES: usize = 47;

/// The class of the smallest memory that holds `bytes`.
fn class_of(bytes: usize, page_bytes: usize) -> usize {
    let pages = bytes.saturating_sub(page_bytes).div_ceil(page_bytes).max(1);
    (pages.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

/// The smallest class holds a page and one more, each further class twice as much and one page more. That page is for
/// the byte that a read asks for beyond a file's size: without it, a file of 64 KiB would take memory of 128. These are
/// whole pages, so a mapping is of the class for which it was made.
fn bytes_of(class: usize, page_bytes: usize) -> usize {
    (page_bytes << class) + page_bytes
}

/// Hands out [`Buffer`]s, and keeps returned ones for reuse, up to a limit.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    free: Mutex<Free>,
    /// Shared with other pools. Relaxed: nothing else is published with the number.
    kept_bytes: Arc<AtomicUsize>,
    /// Of all that share it.
    keep_bytes: usize,
    /// Kept whatever the others keep.
    own_bytes: usize,
    /// Of each class.
    keep_pieces: usize,
    generation: u32,
}

struct Free {
    classes: [Vec<Mapping>; CLASSES],
    bytes: usize,
    /// Whether nobody will ask for memory again.
    is_over: bool,
}

impl Pool {
    /// Creates a pool that keeps at most `keep_bytes` of unused memory.
    #[must_use]
    pub fn new(keep_bytes: usize) -> Self {
        Self::sharing(Arc::default(), keep_bytes, 0, usize::MAX)
    }

    /// Creates a pool for buffers of any sizes, which keeps at most `keep_pieces` unused ones of about the same size. All pools that
    /// share `kept_bytes` keep at most `keep_bytes` together, and `own_bytes` each.
    pub(crate) fn sharing(
        kept_bytes: Arc<AtomicUsize>,
        keep_bytes: usize,
        own_bytes: usize,
        keep_pieces: usize,
    ) -> Self {
        let free = Mutex::new(Free { classes: [const { Vec::new() }; CLASSES], bytes: 0, is_over: false });
        let generation = fork_generation();
        Self(Arc::new(Shared { free, kept_bytes, keep_bytes, own_bytes, keep_pieces, generation }))
    }

    /// Creates a pool for buffers of `slot_bytes`, which keeps at most `keep_slots` unused ones.
    #[must_use]
    pub fn of_slots(slot_bytes: usize, keep_slots: usize) -> Self {
        let slot_bytes = bytes_of(class_of(slot_bytes, page_bytes()), page_bytes()).max(slot_bytes);
        Self::new(slot_bytes.saturating_mul(keep_slots))
    }

    /// Returns memory for at least `bytes` bytes. Its content is whatever the last user left.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: `ENOMEM`, as mmap(2) says.
    pub fn take(&self, bytes: usize) -> Result<Buffer, Error> {
        self.buffer(bytes).map_err(Error::of_system)
    }

    /// The same, for code that goes on with the error number.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, SysError> {
        let class = class_of(bytes, page_bytes());
        let pages = match self.0.reuse(class) {
            Some(pages) => pages,
            None => Mapping::map(bytes_of(class, page_bytes()).max(bytes))?,
        };
        Ok(Buffer { memory: Backing::Pooled { pages: Some(pages), pool: self.clone() }, bytes })
    }

    /// Frees what is unused, and keeps nothing from now on.
    pub fn keep_nothing(&self) {
        self.0.free_unused(|free| free.is_over = true);
    }

    /// Frees what is unused.
    pub(crate) fn free_unused(&self) {
        self.0.free_unused(|_| {});
    }

    /// Bytes of unused memory that the pool keeps.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        if self.0.is_inherited() { 0 } else { lock(&self.0.free).bytes }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("free_bytes", &self.free_bytes()).finish()
    }
}

impl Shared {
    /// Whether it was made before a fork, by the parent, whose threads may have held the lock.
    fn is_inherited(&self) -> bool {
        self.generation != fork_generation()
    }

    fn reuse(&self, class: usize) -> Option<Mapping> {
        if self.is_inherited() {
            return None;
        }
        let mut free = lock(&self.free);
        let pages = free.classes[class].pop()?;
        free.bytes -= pages.bytes();
        self.kept_bytes.fetch_sub(pages.bytes(), Relaxed);
        Some(pages)
    }

    fn free_unused(&self, change: impl FnOnce(&mut Free)) {
        if self.is_inherited() {
            return;
        }
        let mut free = lock(&self.free);
        change(&mut free);
        let unused = mem::replace(&mut free.classes, [const { Vec::new() }; CLASSES]);
        self.kept_bytes.fetch_sub(mem::take(&mut free.bytes), Relaxed);
        drop(free);
        drop(unused); // not under the lock: munmap(2) of much memory takes long
    }

    fn give_back(&self, pages: Mapping) {
        if self.is_inherited() {
            return; // unmapped, here and in all that follows
        }
        let mut free = lock(&self.free);
        let class = class_of(pages.bytes(), page_bytes());
        let bytes = pages.bytes();
        if free.is_over || free.classes[class].len() >= self.keep_pieces {
            return;
        }
        let others_and_own = self.kept_bytes.fetch_add(bytes, Relaxed) + bytes;
        if others_and_own > self.keep_bytes && free.bytes + bytes > self.own_bytes {
            self.kept_bytes.fetch_sub(bytes, Relaxed);
            return;
        }
        free.bytes += bytes;
        free.classes[class].push(pages);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.free_unused(|_| {}); // of which those that share the account must know
    }
}

/// Writable memory of a caller.
///
/// # Safety
///
/// All of [`Region`'s contract](Region#safety), with `as_mut_ptr` for `as_ptr`, while a [`Buffer`] owns the value. And the bytes are
/// writable, and nobody else reads them either.
pub unsafe trait Space: Send + Sync + 'static {
    /// The first byte.
    fn as_mut_ptr(&self) -> *mut u8;
    /// The size in bytes.
    fn len(&self) -> usize;
    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

enum Backing {
    /// None only while it is being dropped.
    Pooled {
        pages: Option<Mapping>,
        pool: Pool,
    },
    Foreign(Box<dyn Space>),
}

/// Bytes in memory of a [`Pool`], which gets it back when the buffer is dropped, or in memory of a caller.
pub struct Buffer {
    memory: Backing,
    bytes: usize,
}

impl Buffer {
    /// Wraps memory of a caller, which never enters a pool.
    #[must_use]
    pub fn foreign(space: Box<dyn Space>) -> Self {
        let bytes = space.len();
        Self { memory: Backing::Foreign(space), bytes }
    }

    /// The first byte, for callers that synchronize access themselves.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        match &self.memory {
            Backing::Pooled { pages, .. } => pages.as_ref().expect("only the drop takes it").start(),
            Backing::Foreign(space) => space.as_mut_ptr(),
        }
    }

    /// The number of bytes in use. Unlike the slice's, it forms no reference to them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether no byte is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes that it can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Backing::Pooled { pages, .. } => pages.as_ref().expect("only the drop takes it").bytes(),
            Backing::Foreign(space) => space.len(),
        }
    }

    /// Sets the number of bytes in use.
    ///
    /// # Panics
    ///
    /// If `bytes` is more than the capacity.
    pub fn set_len(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity(), "a buffer holds no more than its capacity");
        self.bytes = bytes;
    }

    /// Appends the bytes, if it can hold them. Whether it can.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let (start, end) = (self.bytes, self.bytes + bytes.len());
        let has_room = end <= self.capacity();
        if has_room {
            self.bytes = end;
            self[start..].copy_from_slice(bytes);
        }
        has_room
    }

    /// All of its memory, also what is not in use.
    pub fn space_mut(&mut self) -> &mut [u8] {
        // SAFETY: a mapping is initialized (fresh pages are zero), as long as that, and ours alone; so are a caller's bytes, as
        // `Space` promises.
        unsafe { slice::from_raw_parts_mut(self.start(), self.capacity()) }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as in `space_mut`, and the bytes that count lie in it.
        unsafe { slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        &mut self.space_mut()[..bytes]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes).field("capacity", &self.capacity()).finish()
    }
}

// SAFETY: the memory is mapped, initialized, and stays where it is until the buffer is dropped. Whoever owns or shares the buffer
// keeps others from changing it; what is written through `start` is its caller's to synchronize.
unsafe impl Region for Buffer {
    fn as_ptr(&self) -> *const u8 {
        self.start()
    }
    fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Backing::Pooled { pages, pool } = &mut self.memory
            && let Some(pages) = pages.take()
        {
            pool.0.give_back(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_reuses_returned_memory() {
        let pool = Pool::new(1 << 20);
        let mut buffer = pool.take(10_000).unwrap();
        assert_eq!((buffer.len(), buffer.as_ptr().addr() % 4096), (10_000, 0));
        buffer.fill(7);
        let place = buffer.as_ptr();
        drop(buffer);
        assert!(pool.free_bytes() >= 10_000);
        let again = pool.take(9_000).unwrap();
        assert_eq!((again.as_ptr(), again[0], pool.free_bytes()), (place, 7, 0));
    }

    #[test]
    fn pool_keeps_no_more_than_its_limit() {
        let pool = Pool::new(100_000);
        let buffers: Vec<_> = (0..40).map(|_| pool.take(10_000).unwrap()).collect();
        drop(buffers);
        assert!((1..=100_000).contains(&pool.free_bytes()), "{pool:?}");
    }

    #[test]
    fn a_pool_that_is_to_keep_nothing_gives_back_what_it_has_and_what_comes() {
        let pool = Pool::new(1 << 20);
        let [first, second] = [(); 2].map(|()| pool.take(10_000).unwrap());
        drop(first);
        pool.keep_nothing();
        assert_eq!(pool.free_bytes(), 0);
        drop(second);
        assert_eq!((pool.free_bytes(), pool.take(10_000).unwrap().len()), (0, 10_000));
    }

    #[test]
    fn pool_keeps_few_buffers_of_each_size() {
        let pool = Pool::sharing(Arc::default(), 1 << 20, 0, 3);
        let buffers: Vec<_> =
            [5000, 50_000].iter().cycle().take(40).map(|bytes| pool.take(*bytes).unwrap()).collect();
        let pieces: usize = buffers[..6].iter().map(Buffer::capacity).sum();
        drop(buffers);
        assert_eq!(pool.free_bytes(), pieces);
    }

    #[test]
    fn pools_that_share_an_account_keep_so_much_together_and_a_little_each() {
        let kept = Arc::default();
        let [first, second] = [(); 2].map(|()| Pool::sharing(Arc::clone(&kept), 280_000, 20_000, 9));
        drop([100_000; 3].map(|bytes| first.take(bytes).unwrap()));
        let full = first.free_bytes();
        assert!((200_000..=280_000).contains(&full), "two of the three, {full}");
        drop([100_000, 17_000, 10_000].map(|bytes| second.take(bytes).unwrap()));
        assert!((10_000..=20_000).contains(&second.free_bytes()), "{second:?}");
        first.free_unused();
        drop(second.take(100_000).unwrap());
        assert!(second.free_bytes() >= 110_000, "{second:?}");
        drop((first, second));
        assert_eq!(kept.load(Relaxed), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri gives up at so much memory")]
    fn pool_refuses_sizes_beyond_any_address_space() {
        let (pool, most) = (Pool::new(0), isize::MAX as usize);
        for bytes in [1 << 60, most - 1, most, most + 1, usize::MAX - 4095, usize::MAX - 1, usize::MAX] {
            assert_eq!(pool.buffer(bytes).unwrap_err(), SysError::NO_MEMORY, "{bytes} bytes");
        }
    }

    #[test]
    fn every_size_has_a_class_that_holds_it_and_finds_it_again() {
        let sizes = [0, 1, 4096, 8192, 8193, 65_536, 65_537, 69_632, 69_633, 1 << 20, (1 << 20) + 1, 1 << 40];
        for (page, bytes) in
            [4 << 10, 16 << 10, 64 << 10].into_iter().flat_map(|page| sizes.map(|b| (page, b)))
        {
            let class = class_of(bytes, page);
            let mapped = bytes_of(class, page).next_multiple_of(page); // as `Mapping::map` rounds it
            assert!(mapped >= bytes, "{bytes} bytes, pages of {page}");
            assert_eq!(class_of(mapped, page), class, "{bytes} bytes, pages of {page}");
            assert!(class == 0 || bytes_of(class - 1, page) < bytes, "{bytes} bytes, pages of {page}");
        }
        assert!(bytes_of(CLASSES - 1, 64 << 10) > 1 << 57, "and it is no overflow");
        assert!(
            bytes_of(class_of(65_537, 4096), 4096) < 80_000,
            "a file of 64 KiB and its end do not take twice as much"
        );
    }
}
