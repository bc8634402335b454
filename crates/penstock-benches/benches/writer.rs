//! The transports into a pipe that a thread drains with read(2), frame by frame, without Python and without FFmpeg.
//!
//! `cargo bench -p penstock-benches`. The numbers that matter to users come from `make bench`.

#![allow(missing_docs)] // of what criterion's macros make

use std::hint::black_box;
use std::io::{Read, pipe};
use std::sync::Arc;
use std::thread;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_core::{Mode, ReaderKind, Writer, WriterOptions};

/// What FFmpeg asks read(2) for is a frame; what it gets is what is in the pipe.
const READ_BYTES: usize = 1 << 20;

fn transports(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pipe");
    for (size, bytes) in [("720p", 1280 * 720 * 3), ("2160p", 3840 * 2160 * 3)] {
        group.throughput(Throughput::Bytes(bytes as u64));
        for (name, mode, reader) in [
            ("write", Mode::Write, ReaderKind::Unknown),
            ("staged", Mode::Staged, ReaderKind::Unknown),
            ("staged, reader reads", Mode::Staged, ReaderKind::Reads),
            ("zero-copy", Mode::ZeroCopy, ReaderKind::Reads),
        ] {
            let (mut source, sink) = pipe().expect("the system has a pipe left");
            let options = WriterOptions::default().mode(mode).reader(reader);
            let writer = Writer::new(&sink, &options).expect("a pipe can be written");
            drop(sink);
            let drain = thread::spawn(move || {
                let mut piece = vec![0; READ_BYTES];
                while source.read(&mut piece).expect("a pipe can be read") > 0 {
                    black_box(&piece);
                }
            });
            let frame = Arc::new(vec![130u8; bytes]);
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let ticket = writer.submit(Arc::clone(&frame), None).expect("it is open");
                    ticket.wait().expect("the drain reads all");
                });
            });
            writer.close(None).expect("the drain reads all");
            drain.join().expect("the drain ends with its pipe");
        }
    }
    group.finish();
}

criterion_group!(benches, transports);
criterion_main!(benches);
