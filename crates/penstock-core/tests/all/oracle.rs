//! Whatever goes in comes out: against a plain loop of writes, over random sizes, readers, capacities and transports.

use std::io::pipe;
use std::sync::{Arc, Mutex};

use crate::common::{Temper, cases, drain, pattern, plain_writes, pv_is_missing};
use penstock_core::{Mode, ReaderKind, Region, Ticket, Writer, WriterOptions};
use proptest::prelude::*;

const MAX_FRAME_BYTES: usize = 20 << 20;

/// Memory that its owner overwrites as soon as it may.
struct Reused(Mutex<Vec<u8>>);

// SAFETY: the vector is never resized, and `overwrite` is called only when the stream has let go.
unsafe impl Region for Shared {
    fn as_ptr(&self) -> *const u8 {
        self.0.0.lock().unwrap().as_ptr()
    }
    fn len(&self) -> usize {
        self.0.0.lock().unwrap().len()
    }
}

#[derive(Clone)]
struct Shared(Arc<Reused>);

fn overwrite(shared: &Shared, ticket: &Ticket) {
    ticket.wait().expect("the reader reads all");
    assert_eq!(Arc::strong_count(&shared.0), 1, "a ticket ends after its memory was let go");
    shared.0.0.lock().unwrap().fill(0xEE);
}

fn temper() -> impl Strategy<Value = Temper> {
    prop_oneof![
        Just(Temper::Eager),
        (1usize..200_000).prop_map(Temper::Chunky),
        Just(Temper::Slow),
        Just(Temper::Spliced),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Auto), Just(Mode::Write), Just(Mode::Staged), Just(Mode::ZeroCopy)]
}

/// Mostly small, now and then as large as they come, and the edges.
fn frame_bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..10_000,
        4 => 10_000usize..1_500_000,
        1 => 1_500_000usize..=MAX_FRAME_BYTES,
        1 => prop::sample::select(vec![0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, (2 << 20) + 1]),
    ]
}

fn copies_what_it_reads(temper: Temper) -> bool {
    !matches!(temper, Temper::Spliced)
}

fn run(frames: &[Vec<u8>], temper: Temper, modes: &[Mode], reads: bool, capacity_bytes: usize) -> Vec<u8> {
    let (reader, writer_end) = pipe().unwrap();
    let options = WriterOptions::default().capacity_bytes(capacity_bytes);
    let writers: Vec<_> = modes
        .iter()
        .map(|&mode| {
            let mode =
                if mode == Mode::ZeroCopy && !copies_what_it_reads(temper) { Mode::Staged } else { mode };
            let reader =
                if reads && copies_what_it_reads(temper) { ReaderKind::Reads } else { ReaderKind::Unknown };
            Writer::new(&writer_end, &options.clone().mode(mode).reader(reader)).unwrap()
        })
        .collect();
    drop(writer_end);
    let got = drain(reader, temper);
    let mut in_flight = Vec::new();
    for (frame, writer) in frames.iter().zip(writers.iter().cycle()) {
        let shared = Shared(Arc::new(Reused(Mutex::new(frame.clone()))));
        let ticket = writer.submit(shared.clone(), None).unwrap();
        in_flight.push((shared, ticket));
        if in_flight.len() > 3 {
            let (shared, ticket) = in_flight.remove(0);
            overwrite(&shared, &ticket);
        }
    }
    in_flight.iter().for_each(|(shared, ticket)| overwrite(shared, ticket));
    for writer in &writers {
        writer.close(None).unwrap();
    }
    got.join().unwrap()
}

fn reference(frames: &[Vec<u8>]) -> Vec<u8> {
    let (reader, writer_end) = pipe().unwrap();
    let got = drain(reader, Temper::Eager);
    plain_writes(writer_end, frames);
    got.join().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(60), max_shrink_iters: 30, ..ProptestConfig::default() })]

    #[test]
    fn every_transport_delivers_the_same_bytes_as_a_plain_loop(
        sizes in prop::collection::vec(frame_bytes(), 1..8),
        temper in temper(),
        modes in prop::collection::vec(mode(), 1..3),
        reads in any::<bool>(),
        capacity_bytes in prop::sample::select(vec![4096usize, 16 << 10, 64 << 10, 256 << 10, 1 << 20]),
        seed in any::<u64>(),
    ) {
        let temper = match temper {
            Temper::Spliced if pv_is_missing() => Temper::Slow,
            // A byte at a time takes for ever over megabytes.
            Temper::Chunky(bytes) if sizes.iter().sum::<usize>() / bytes > 20_000 => Temper::Chunky(1000),
            temper => temper,
        };
        let frames: Vec<_> = sizes.iter().zip(seed % 1_000_000..).map(|(&bytes, seed)| pattern(bytes, seed)).collect();
        let got = run(&frames, temper, &modes, reads, capacity_bytes);
        // Compared as a whole first: a diff of megabytes helps nobody.
        prop_assert!(got == reference(&frames), "{} bytes came out of {}", got.len(), sizes.iter().sum::<usize>());
    }
}

/// Pages in flight are never written again, also where the reader looks at them late.
#[test]
fn staged_frames_survive_a_reader_that_splices_onward() {
    if pv_is_missing() {
        eprintln!("skipped: pv is not installed");
        return;
    }
    let frames: Vec<_> = (0..40).map(|seed| pattern(3_000_001 + 777 * seed as usize, seed)).collect();
    let got = run(&frames, Temper::Spliced, &[Mode::Staged], false, 1 << 20);
    assert!(got == frames.concat());
}
