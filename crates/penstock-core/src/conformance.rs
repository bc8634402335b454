//! Tests for memory of your own kind: call them from your test suite.

use std::io::{Read, pipe};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::memory::region::Region;
use crate::memory::transform::Transform;
use crate::writer::handle::{Writer, WriterOptions};
use crate::writer::transport::choice::Mode;

/// Tests a [`Region`]: it stays in place when it is moved, every [`Mode`] and a [`Transform`] write its bytes into a pipe, and the
/// stream drops it once, before the ticket ends.
///
/// `make` returns regions that hold the bytes `expected`. A test cannot see whether somebody writes to them meanwhile.
///
/// ```
/// penstock_core::conformance::check_region(|| b"frame".to_vec(), b"frame");
/// ```
///
/// # Panics
///
/// If the region or the stream does not keep its promise.
pub fn check_region<R: Region>(make: impl Fn() -> R, expected: &[u8]) {
    check_place(make(), expected);
    for mode in [Mode::Auto, Mode::Write, Mode::Staged, Mode::ZeroCopy] {
        check_write(make(), WriterOptions::default().mode(mode), expected);
    }
    let transform = Arc::new(Identity(expected.len()));
    check_write(make(), WriterOptions::default().transform(transform), expected);
}

/// Moves the region to the heap and to another thread, which drops it.
fn check_place<R: Region>(region: R, expected: &[u8]) {
    let place = (region.as_ptr().addr(), region.len());
    assert_ne!(place.0, 0, "the address is null");
    let boxed: Box<dyn Region> = Box::new(region);
    let other_thread = thread::spawn(move || {
        let bytes = Vec::from(bytes_of(&*boxed));
        (bytes, (boxed.as_ptr().addr(), boxed.len()))
    });
    let (bytes, moved) = other_thread.join().expect("its drop does not panic");
    assert_eq!(moved, place, "the address and the length change when the value moves");
    assert!(bytes == expected, "the region holds other bytes");
}

fn bytes_of(region: &dyn Region) -> &[u8] {
    // SAFETY: the region's contract.
    unsafe { slice::from_raw_parts(region.as_ptr(), region.len()) }
}

fn check_write<R: Region>(region: R, options: WriterOptions, expected: &[u8]) {
    let (mut reader, end) = pipe().expect("there are descriptors left");
    let writer = Writer::new(&end, &options).expect("a pipe can be written to");
    drop(end);
    let arrived = thread::spawn(move || {
        let mut arrived = Vec::new();
        reader.read_to_end(&mut arrived).map(|_| arrived)
    });
    let drops = Arc::new(AtomicUsize::new(0));
    let watched = Watched { region, drops: Arc::clone(&drops) };
    let ticket = writer.submit(watched, None).expect("the writer takes the region");
    ticket.wait().expect("the reader reads all");
    // Relaxed: the ticket's end comes after the drop.
    assert_eq!(drops.load(Ordering::Relaxed), 1, "{options:?}: the ticket ends after one drop");
    writer.close(None).expect("all is written");
    let arrived = arrived.join().expect("it does not panic").expect("a pipe can be read");
    assert!(arrived == expected, "{options:?}: other bytes arrived");
}

/// Counts its drops.
struct Watched<R> {
    region: R,
    drops: Arc<AtomicUsize>,
}

// SAFETY: the inner region keeps the promise, also when it is moved with this one.
unsafe impl<R: Region> Region for Watched<R> {
    fn as_ptr(&self) -> *const u8 {
        self.region.as_ptr()
    }
    fn len(&self) -> usize {
        self.region.len()
    }
}

impl<R> Drop for Watched<R> {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads all of so many bytes, and changes none.
#[derive(Debug)]
struct Identity(usize);

impl Transform for Identity {
    fn input_bytes(&self) -> usize {
        self.0
    }
    fn output_bytes(&self) -> usize {
        self.0
    }
    fn steps(&self) -> usize {
        1
    }
    fn apply(&self, _step: usize, input: &[u8], output: &mut [u8]) {
        output.copy_from_slice(input);
    }
}
