//! What a pipeline costs by itself, and its decompressors against others.
//!
//! `cargo bench -p penstock-benches --bench pipeline`. The numbers that matter to users come from `make bench-pipeline`.

#![allow(missing_docs)] // of what criterion's macros make

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use penstock_pipeline::{
    Cause, Chunk, Codec, Context, Fed, Feed, Map, Options, Pipeline, Sink, Source, Stage,
};

const CHUNK_BYTES: usize = 64 << 10;

/// Gives chunks without doing anything for them.
struct Idle(u64);

impl Feed for Idle {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        self.0 = self.0.checked_sub(1)?;
        Some(context.take(CHUNK_BYTES).map(|bytes| Fed { name: None, bytes }))
    }
}

fn pass(workers: usize) -> Stage {
    let pass = |chunk: Chunk, _: &mut Context<'_>| Ok(Some(chunk));
    Stage::map("pass", move || Box::new(pass) as Box<dyn Map>).workers(workers)
}

fn drain(source: Source, stages: Vec<Stage>) -> Duration {
    let begin = Instant::now();
    let pipeline =
        Pipeline::start(source, stages, Sink::iterate(), &Options::default()).expect("threads can be had");
    while let Some(chunk) = pipeline.next(None).expect("nothing fails") {
        black_box(&chunk);
    }
    begin.elapsed()
}

/// The time of a chunk through stages that do nothing: divided by the number of hand-overs, the cost of one.
fn overhead(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("overhead per chunk");
    for (stages, workers) in [(0, 1), (1, 1), (3, 1), (7, 1), (1, 2), (3, 2)] {
        let id = BenchmarkId::new(format!("{workers} workers"), format!("{stages} stages"));
        group.bench_function(id, |bencher| {
            bencher.iter_custom(|chunks| {
                drain(Source::feed(Idle(chunks)), (0..stages).map(|_| pass(workers)).collect())
            });
        });
    }
    group.finish();
}

/// Numbers in text, as assets that are worth compressing are; 3 to 4 times smaller when they are.
fn plain(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut text = String::new();
    while text.len() < CHUNK_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text += &format!("v {:.4} {:.4}\n", (state >> 40) as f64 / 1e4, (state >> 60) as f64 / 10.0);
    }
    text.truncate(CHUNK_BYTES);
    text.into_bytes()
}

fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Zstd => zstd::bulk::compress(plain, 3).expect("it fits"),
        _ => {
            let mut packed = Vec::with_capacity(2 * plain.len());
            flate2::Compress::new(flate2::Compression::default(), true)
                .compress_vec(plain, &mut packed, flate2::FlushCompress::Finish)
                .expect("it fits");
            packed
        }
    }
}

/// One asset after another, without a pipeline.
fn codecs(criterion: &mut Criterion) {
    let plain = plain(1);
    let (deflated, zstd_packed) = (packed(Codec::Zlib, &plain), packed(Codec::Zstd, &plain));
    let mut output = vec![0; 2 * CHUNK_BYTES];
    let mut group = criterion.benchmark_group("decompress 64 KiB");
    group.throughput(Throughput::Bytes(CHUNK_BYTES as u64));
    group.bench_function("zlib-rs", |bencher| {
        let mut state = flate2::Decompress::new(true);
        bencher.iter(|| {
            state.reset(true);
            state.decompress(&deflated, &mut output, flate2::FlushDecompress::Finish).expect("it is right")
        });
    });
    group.bench_function("zstd", |bencher| {
        let mut context = zstd::zstd_safe::DCtx::create();
        bencher.iter(|| context.decompress(&mut output[..], &zstd_packed).expect("it is right"));
    });
    group.finish();
}

/// Files from the page cache through a decompressor on two threads.
fn assets(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("penstock-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("the folder for temporary files takes one");
    let mut group = criterion.benchmark_group("2000 assets of 64 KiB");
    group.sample_size(10).throughput(Throughput::Bytes(2000 * CHUNK_BYTES as u64));
    for codec in [Codec::Zlib, Codec::Zstd] {
        let paths: Vec<PathBuf> = (0..2000).map(|number| folder.join(number.to_string())).collect();
        for (path, seed) in paths.iter().zip(1..) {
            fs::write(path, packed(codec, &plain(seed))).expect("there is room");
        }
        for workers in [1, 2] {
            let id = BenchmarkId::new(codec.name(), format!("{workers} workers"));
            group.bench_function(id, |bencher| {
                bencher.iter_custom(|rounds| {
                    let stage = || vec![Stage::decompress(codec).workers(workers)];
                    (0..rounds).map(|_| drain(Source::files(paths.clone()), stage())).sum()
                });
            });
        }
    }
    group.finish();
    fs::remove_dir_all(&folder).expect("it is ours");
}

criterion_group!(benches, overhead, codecs, assets);
criterion_main!(benches);
