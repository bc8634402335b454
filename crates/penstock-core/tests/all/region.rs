//! What every region of ours promises.

use std::sync::Arc;

use crate::common::pattern;
use penstock_core::conformance::check_region;
use penstock_core::{Buffer, Pool, Region, Space};

/// Nothing, a part of a page, and more than a pipe holds.
const SIZES: [usize; 3] = [0, 1000, STATIC.len()];

static STATIC: [u8; 3_000_000] = [7; 3_000_000];

#[test]
fn vectors_boxes_and_static_bytes_conform() {
    for bytes in SIZES {
        let content = pattern(bytes, 1);
        check_region(|| content.clone(), &content);
        check_region(|| Box::new(content.clone()), &content);
        check_region(|| content.clone().into_boxed_slice(), &content);
        check_region(|| &STATIC[..bytes], &STATIC[..bytes]);
    }
}

#[test]
fn shared_memory_conforms() {
    for bytes in SIZES {
        let content = pattern(bytes, 2);
        let (vector, slice) = (Arc::new(content.clone()), Arc::<[u8]>::from(&*content));
        check_region(|| Arc::clone(&vector), &content);
        check_region(|| Arc::clone(&slice), &content);
        assert_eq!((Arc::strong_count(&vector), Arc::strong_count(&slice)), (1, 1));
    }
}

#[cfg(feature = "bytes")]
#[test]
fn bytes_conform() {
    for bytes in SIZES {
        let content = pattern(bytes, 4);
        let shared = bytes::Bytes::from(content.clone());
        check_region(|| shared.clone(), &content);
        check_region(|| shared.slice(bytes / 2..), &content[bytes / 2..]);
        assert!(shared.is_unique() || bytes == 0);
        check_region(|| bytes::Bytes::from_static(&STATIC[..bytes]), &STATIC[..bytes]);
    }
}

#[test]
fn buffers_conform() {
    let pool = Pool::new(16 << 20);
    for bytes in SIZES {
        let content = pattern(bytes, 3);
        let filled = |mut buffer: Buffer| {
            buffer.copy_from_slice(&content);
            buffer
        };
        check_region(|| filled(pool.take(bytes).unwrap()), &content);
        check_region(|| Arc::new(filled(pool.take(bytes).unwrap())), &content);
        check_region(|| filled(Buffer::foreign(Box::new(Own(pool.take(bytes).unwrap())))), &content);
    }
}

/// A caller's memory.
struct Own(Buffer);

// SAFETY: the buffer is reachable through this value only, and keeps its mapping.
unsafe impl Space for Own {
    fn as_mut_ptr(&self) -> *mut u8 {
        self.0.start()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Bytes that move with the value.
struct Inline([u8; 8]);

// SAFETY: it breaks the contract, and does so only where nothing keeps the address over a move.
unsafe impl Region for Inline {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[test]
#[should_panic(expected = "change when the value moves")]
fn a_region_that_moves_does_not_conform() {
    check_region(|| Inline([7; 8]), &[7; 8]);
}

#[test]
#[should_panic(expected = "the region holds other bytes")]
fn a_region_of_other_bytes_does_not_conform() {
    check_region(|| vec![7; 8], &[8; 8]);
}
