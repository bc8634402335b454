//! Relays against plain loops, without Python: a file into a pipe that a thread drains, other pairs, and tees to many readers.
//!
//! `cargo bench -p penstock-benches --bench relay`. The rivals are what a careful program would write by hand: a loop of read(2) and
//! write(2), of splice(2) into the pipe as it comes, and of splice(2) in pieces into a pipe that was made larger.

#![allow(missing_docs)] // of what criterion's macros make

use std::fs::File;
use std::hint::black_box;
use std::io::{PipeReader, Read, Seek, Write, pipe};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_core::{RelayOptions, Tee, TeePolicy, relay};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

/// What the drain reads, and the tuned loop splices, at once: see `src/relay/splice.rs`.
const PIECE_BYTES: usize = 256 << 10;
const LARGE_PIPE_BYTES: usize = 1 << 20;

const SIZES: [(&str, usize); 10] = [
    ("16 KiB", 16 << 10),
    ("32 KiB", 32 << 10),
    ("64 KiB", 64 << 10),
    ("128 KiB", 128 << 10),
    ("256 KiB", 256 << 10),
    ("512 KiB", 512 << 10),
    ("1 MiB", 1 << 20),
    ("10 MiB", 10 << 20),
    ("100 MiB", 100 << 20),
    ("1 GiB", 1 << 30),
];

/// Reads a pipe or socket to its end on a thread of its own.
fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while from.read(&mut piece).expect("it can be read") > 0 {
            black_box(&piece);
        }
    })
}

/// A file in memory.
fn file_of(bytes: usize) -> File {
    let folder = "/dev/shm";
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let mut file = File::from(rustix::fs::open(folder, flags, mode).expect("shared memory takes a file"));
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|index| (index % 251) as u8).collect();
    let mut left = bytes;
    while left > 0 {
        let wanted = left.min(piece.len());
        file.write_all(&piece[..wanted]).expect("shared memory has room");
        left -= wanted;
    }
    file
}

fn from_start(bytes: usize) -> RelayOptions {
    RelayOptions::default().offset(0).count(bytes as u64)
}

fn by_relay(file: &File, to: impl AsFd, bytes: usize) {
    let relayed = relay(file, to, &from_start(bytes)).expect("the drain reads all");
    assert_eq!(relayed.bytes, bytes as u64);
}

fn by_read_and_write(mut file: &File, to: impl AsFd, buffer: &mut [u8], bytes: usize) {
    file.rewind().expect("files can be rewound");
    let mut moved = 0;
    while moved < bytes {
        let got = file.read(buffer).expect("files can be read");
        let mut rest = &buffer[..got];
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(to.as_fd(), rest).expect("the drain reads all")..];
        }
        moved += got;
    }
}

fn by_splice(file: &File, to: impl AsFd, piece_bytes: usize, bytes: usize) {
    let mut offset = 0;
    while offset < bytes as u64 {
        let at_most = piece_bytes.min(bytes - offset as usize);
        splice(file, Some(&mut offset), to.as_fd(), None, at_most, SpliceFlags::empty())
            .expect("the drain reads all");
    }
}

fn file_to_pipe(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("file to pipe");
    for (name, bytes) in SIZES {
        configure(&mut group, bytes);
        let file = file_of(bytes);
        let mut buffer = vec![0; bytes.min(PIECE_BYTES)];
        on_pipe(&mut group, "relay", name, None, |to| by_relay(&file, to, bytes));
        on_pipe(&mut group, "read and write", name, None, |to| {
            by_read_and_write(&file, to, &mut buffer, bytes);
        });
        on_pipe(&mut group, "splice", name, None, |to| by_splice(&file, to, usize::MAX >> 1, bytes));
        on_pipe(&mut group, "splice, tuned", name, Some(LARGE_PIPE_BYTES), |to| {
            by_splice(&file, to, PIECE_BYTES, bytes);
        });
    }
    group.finish();
}

fn configure(group: &mut BenchmarkGroup<'_, WallTime>, bytes: usize) {
    group.throughput(Throughput::Bytes(bytes as u64));
    group.sample_size(if bytes >= 100 << 20 { 10 } else { 30 });
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(if bytes >= 100 << 20 { 3 } else { 1 }));
}

fn on_pipe(
    group: &mut BenchmarkGroup<'_, WallTime>,
    method: &str,
    size: &str,
    capacity_bytes: Option<usize>,
    mut method_once: impl FnMut(&std::io::PipeWriter),
) {
    let (reader, writer) = pipe().expect("the system has a pipe left");
    if let Some(bytes) = capacity_bytes {
        fcntl_setpipe_size(&writer, bytes).expect("a pipe of that size is granted");
    }
    let drained = drain(reader);
    group.bench_function(BenchmarkId::new(method, size), |bencher| bencher.iter(|| method_once(&writer)));
    drop(writer);
    drained.join().expect("the drain ends with its pipe");
}

fn other_pairs(criterion: &mut Criterion) {
    const BYTES: usize = 10 << 20;
    let mut group = criterion.benchmark_group("10 MiB");
    configure(&mut group, BYTES);
    let mut buffer = vec![0; PIECE_BYTES];
    let file = file_of(BYTES);

    let (ours, theirs) = UnixStream::pair().expect("the system has a socket left");
    let drained = drain(theirs);
    group.bench_function("file to socket/relay", |bencher| {
        bencher.iter(|| by_relay(&file, &ours, BYTES));
    });
    group.bench_function("file to socket/read and write", |bencher| {
        bencher.iter(|| by_read_and_write(&file, &ours, &mut buffer, BYTES));
    });
    drop(ours);
    drained.join().expect("the drain ends with its socket");

    let source = endless_pipe();
    let mut copy = file_of(0);
    let count = RelayOptions::default().count(BYTES as u64);
    group.bench_function("pipe to file/relay", |bencher| {
        bencher.iter(|| {
            copy.rewind().expect("files can be rewound");
            relay(&source, &copy, &count).expect("the file takes all")
        });
    });
    let (reader, writer) = pipe().expect("the system has a pipe left");
    let drained = drain(reader);
    group.bench_function("pipe to pipe/relay", |bencher| {
        bencher.iter(|| relay(&source, &writer, &count).expect("the drain reads all"));
    });
    drop(writer);
    drained.join().expect("the drain ends with its pipe");
    group.finish();
}

/// A large pipe that a thread keeps full.
fn endless_pipe() -> PipeReader {
    let (reader, mut writer) = pipe().expect("the system has a pipe left");
    fcntl_setpipe_size(&writer, LARGE_PIPE_BYTES).expect("a pipe of that size is granted");
    thread::spawn(move || {
        let piece = vec![130; PIECE_BYTES];
        while writer.write_all(&piece).is_ok() {}
    });
    reader
}

fn tee_to_many(criterion: &mut Criterion) {
    const BYTES: usize = 100 << 20;
    let mut group = criterion.benchmark_group("tee, 100 MiB");
    configure(&mut group, BYTES);
    let file = file_of(BYTES);
    for readers in [1, 2, 4, 8] {
        group.bench_function(BenchmarkId::from_parameter(readers), |bencher| {
            bencher.iter(|| {
                (&file).rewind().expect("files can be rewound");
                let tee = Tee::new(&file, None).expect("a file can be read");
                let drains: Vec<_> = (0..readers)
                    .map(|_| {
                        let (reader, writer) = pipe().expect("the system has a pipe left");
                        tee.add(&writer, TeePolicy::Block).expect("a pipe can be written");
                        drain(reader)
                    })
                    .collect();
                assert_eq!(tee.wait().expect("a file can be read").bytes, BYTES as u64);
                drains.into_iter().for_each(|drain| drain.join().expect("it ends with its pipe"));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, file_to_pipe, other_pairs, tee_to_many);
criterion_main!(benches);
