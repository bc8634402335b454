//! Pipelines over real files and pipes: what comes out, in what order, what of faults, and how it is left.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{cases, pattern};
use penstock_core::{Error, Writer};
use penstock_pipeline::{
    Cause, Checksum, ChecksumKind, Chunk, ChunkError, Codec, Context, Fed, Feed, Map, OnError, Options,
    Pipeline, Sink, Source, Space, Spaces, Stage,
};
use proptest::prelude::*;

/// How long a test waits for what must happen at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that is gone at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("penstock-pipeline-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn put_all(&self, assets: &[Vec<u8>]) -> Vec<PathBuf> {
        assets.iter().enumerate().map(|(number, asset)| self.put(&format!("asset-{number}"), asset)).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn deflated(plain: &[u8], mut compress: flate2::Compress) -> Vec<u8> {
    let mut packed = Vec::with_capacity(plain.len() + 1000);
    let status = compress.compress_vec(plain, &mut packed, flate2::FlushCompress::Finish).unwrap();
    assert_eq!(status, flate2::Status::StreamEnd);
    packed
}

fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Gzip => deflated(plain, flate2::Compress::new_gzip(flate2::Compression::fast(), 15)),
        Codec::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        _ => deflated(plain, flate2::Compress::new(flate2::Compression::fast(), true)),
    }
}

/// Half noise, half repetition, so that it can be compressed and no piece looks like another.
fn asset(bytes: usize, seed: u64) -> Vec<u8> {
    let mut asset = pattern(bytes, seed);
    asset.iter_mut().skip(1).step_by(2).for_each(|byte| *byte = seed as u8);
    asset
}

fn assets(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| asset(20_000 + 777 * number, number as u64)).collect()
}

fn small_depth() -> Options {
    Options::default().depth(2, 1 << 20)
}

fn skipping() -> Options {
    small_depth().on_error(OnError::Skip)
}

fn take_all(pipeline: &Pipeline) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while let Some(chunk) = pipeline.next(Some(PATIENCE)).unwrap() {
        chunks.push(chunk);
    }
    chunks
}

fn bytes_of(chunks: &[Chunk]) -> Vec<Vec<u8>> {
    chunks.iter().map(|chunk| chunk.to_vec()).collect()
}

fn chunk_error(error: Error) -> ChunkError {
    ChunkError::of(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

fn map(
    name: &str,
    work: impl FnMut(Chunk, &mut Context<'_>) -> Result<Option<Chunk>, Cause> + Clone + Send + Sync + 'static,
) -> Stage {
    Stage::map(name, move || Box::new(work.clone()) as Box<dyn Map>)
}

fn eventually(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn smoke() {
    let folder = Folder::new();
    let plain = assets(3);
    let paths = folder.put_all(&plain.iter().map(|plain| packed(Codec::Zlib, plain)).collect::<Vec<_>>());
    let stages = vec![Stage::decompress(Codec::Zlib), Stage::checksum(ChecksumKind::Crc32)];
    let pipeline =
        Pipeline::start(Source::files(paths.clone()), stages, Sink::iterate(), &Options::default()).unwrap();
    let chunks = take_all(&pipeline);
    assert!(bytes_of(&chunks) == plain);
    for (number, (chunk, path)) in chunks.iter().zip(&paths).enumerate() {
        assert_eq!(
            (Path::new(&**chunk.name()), chunk.offset(), chunk.index()),
            (path.as_path(), 0, number as u64)
        );
        assert_eq!(chunk.checksum(), Some(Checksum::Crc32(crc32fast::hash(&plain[number]))));
    }
    assert_eq!(pipeline.next(None).unwrap().map(|chunk| chunk.len()), None, "the end stays the end");
    assert!(pipeline.close());
    assert_eq!(pipeline.next(None).unwrap_err(), Error::Closed);
}

#[test]
fn timings_follow_each_other_and_name_the_parts() {
    let stages = vec![map("double", |chunk, context| {
        let twice = context.copy(&chunk.repeat(2))?;
        Ok(Some(chunk.with_bytes(twice)))
    })];
    let source = Source::buffers([b"ab".to_vec(), b"c".to_vec()]);
    let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
    let chunks = take_all(&pipeline);
    assert_eq!(bytes_of(&chunks), [b"abab".to_vec(), b"cc".to_vec()]);
    assert_eq!((chunks[1].offset(), &**chunks[1].name()), (2, "1".as_ref()));
    for chunk in &chunks {
        let timings = chunk.timings();
        assert_eq!(timings.iter().map(|timing| &*timing.stage).collect::<Vec<_>>(), ["feed", "double"]);
        let times: Vec<_> = timings
            .iter()
            .flat_map(|timing| [timing.queued_ns, timing.started_ns, timing.ended_ns])
            .collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn memory_goes_back_when_the_last_clone_is_dropped() {
    let source = Source::buffers([vec![7; 10_000]]);
    let pipeline = Pipeline::start(source, vec![], Sink::iterate(), &Options::default()).unwrap();
    let chunk = pipeline.next(None).unwrap().unwrap();
    let clone = chunk.clone();
    drop(chunk);
    assert_eq!(pipeline.stats().unwrap().pool_free_bytes, 0);
    drop(clone);
    assert!(pipeline.stats().unwrap().pool_free_bytes >= 10_000);
}

#[test]
fn a_chunk_outlives_its_pipeline() {
    let pipeline =
        Pipeline::start(Source::buffers([b"frame"]), vec![], Sink::iterate(), &Options::default()).unwrap();
    let chunk = pipeline.next(None).unwrap().unwrap();
    drop(pipeline);
    assert_eq!(&chunk[..], b"frame");
}

// --- against a sequential oracle ------------------------------------------------------------------------------------

/// A stage that takes its time, another one for each chunk, so that workers overtake each other.
fn dawdle(seed: u64, workers: usize) -> Stage {
    map("dawdle", move |chunk, _| {
        let pause = (chunk.index().wrapping_mul(0x9E37_79B9).wrapping_add(seed) >> 3) % 4;
        thread::sleep(Duration::from_micros(100 * pause));
        Ok(Some(chunk))
    })
    .workers(workers)
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(vec![Codec::Zlib, Codec::Gzip, Codec::Zstd, Codec::Lz4])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(40), max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn assets_come_out_as_a_plain_loop_has_them(
        sizes in prop::collection::vec(prop_oneof![0usize..300, 60_000usize..70_000, 0usize..400_000], 0..25),
        codec in codec(),
        is_auto in any::<bool>(),
        readers in 1usize..4,
        workers in 1usize..4,
        dawdlers in prop::option::of(1usize..4),
        left_out in prop::option::of(2u64..5),
        items in 1usize..5,
        bytes in prop::sample::select(vec![1usize, 70_000, 1 << 30]),
        seed in any::<u64>(),
    ) {
        let folder = Folder::new();
        let plain: Vec<_> = sizes.iter().zip(seed % 1_000_000..).map(|(&bytes, seed)| asset(bytes, seed)).collect();
        let paths = folder.put_all(&plain.iter().map(|plain| packed(codec, plain)).collect::<Vec<_>>());
        let named = if is_auto { Codec::Auto } else { codec };
        let mut stages = vec![Stage::decompress(named).workers(workers)];
        stages.extend(dawdlers.map(|workers| dawdle(seed, workers)));
        stages.extend(left_out.map(|nth| {
            map("leave out", move |chunk, _| Ok((!chunk.index().is_multiple_of(nth)).then_some(chunk))).workers(workers)
        }));
        stages.push(Stage::checksum(ChecksumKind::Xxh3).workers(workers));
        let options = Options::default().depth(items, bytes);
        let pipeline =
            Pipeline::start(Source::files(paths).workers(readers), stages, Sink::iterate(), &options).unwrap();
        let chunks = take_all(&pipeline);
        let stays = |number: usize| left_out.is_none_or(|nth| !(number as u64).is_multiple_of(nth));
        let expected: Vec<_> = plain.iter().enumerate().filter(|(number, _)| stays(*number)).collect();
        prop_assert_eq!(chunks.len(), expected.len());
        for (chunk, (number, plain)) in chunks.iter().zip(expected) {
            prop_assert_eq!(chunk.index(), number as u64);
            prop_assert!(chunk[..] == plain[..]);
            let sum = twox_hash::XxHash3_64::oneshot(plain);
            prop_assert_eq!(chunk.checksum(), Some(Checksum::Xxh3(sum)));
        }
        prop_assert!(pipeline.close());
    }

    #[test]
    fn streams_come_out_as_a_plain_loop_has_them(
        size in prop_oneof![0usize..5000, 0usize..2_000_000],
        codec in prop::option::of(codec()),
        piece_bytes in prop_oneof![100usize..5000, 60_000usize..300_000],
        is_pipe in any::<bool>(),
        items in 1usize..5,
        seed in any::<u64>(),
    ) {
        let folder = Folder::new();
        let plain = asset(size, seed);
        let stored = codec.map_or_else(|| plain.clone(), |codec| packed(codec, &plain));
        let stages = codec.into_iter().map(|_| Stage::decompress(Codec::Auto)).collect();
        let options = Options::default().depth(items, 1 << 20);
        let mut feeder = None;
        let source = if is_pipe {
            let (reader, mut writer) = pipe().unwrap();
            let source = Source::fd(&reader, piece_bytes).unwrap();
            feeder = Some(thread::spawn(move || writer.write_all(&stored).unwrap()));
            source
        } else {
            Source::file(folder.put("stream", &stored), piece_bytes)
        };
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &options).unwrap();
        let chunks = take_all(&pipeline);
        let mut offset = 0;
        for (number, chunk) in chunks.iter().enumerate() {
            prop_assert_eq!((chunk.index(), chunk.offset()), (number as u64, offset));
            prop_assert!((1..=piece_bytes).contains(&chunk.len()));
            offset += chunk.len() as u64;
        }
        prop_assert!(bytes_of(&chunks).concat() == plain);
        feeder.into_iter().for_each(|feeder| feeder.join().unwrap());
    }

    #[test]
    fn faults_stay_in_their_places(
        wrong in prop::collection::btree_set(0usize..20, 0..5),
        workers in 1usize..4,
        skips in any::<bool>(),
        codec in codec(),
    ) {
        let folder = Folder::new();
        let plain = assets(20);
        let mut stored: Vec<_> = plain.iter().map(|plain| packed(codec, plain)).collect();
        for &number in &wrong {
            let cut = stored[number].len() - 10 - number;
            stored[number].truncate(cut);
        }
        let paths = folder.put_all(&stored);
        let stages = vec![Stage::decompress(codec).workers(workers), dawdle(1, workers)];
        let options = if skips { skipping() } else { small_depth() };
        let pipeline = Pipeline::start(Source::files(paths.clone()), stages, Sink::iterate(), &options).unwrap();
        let mut got = Vec::new();
        let failure = loop {
            match pipeline.next(Some(PATIENCE)) {
                Ok(Some(chunk)) => got.push((chunk.index() as usize, chunk.to_vec())),
                Ok(None) => break None,
                Err(error) => break Some(chunk_error(error)),
            }
        };
        let end = if skips { 20 } else { wrong.first().copied().unwrap_or(20) };
        let expected: Vec<_> = (0..end).filter(|number| !wrong.contains(number)).collect();
        prop_assert_eq!(got.iter().map(|(number, _)| *number).collect::<Vec<_>>(), expected);
        prop_assert!(got.iter().all(|(number, bytes)| bytes == &plain[*number]));
        let skipped: Vec<_> = pipeline.skipped().iter().map(|error| error.index as usize).collect();
        if skips {
            prop_assert!(failure.is_none());
            prop_assert_eq!(skipped, wrong.iter().copied().collect::<Vec<_>>());
        } else {
            prop_assert_eq!(failure.map(|error| error.index as usize), wrong.first().copied());
            prop_assert!(skipped.is_empty());
        }
    }
}

// --- faults -----------------------------------------------------------------------------------------------------------

/// The failures of a pipeline over these files, each with what it is about.
fn failures(paths: Vec<PathBuf>, codec: Codec, max_chunk_bytes: usize) -> Vec<Arc<ChunkError>> {
    let options = skipping().max_chunk_bytes(max_chunk_bytes);
    let stages = vec![Stage::decompress(codec).workers(2)];
    let pipeline = Pipeline::start(Source::files(paths), stages, Sink::iterate(), &options).unwrap();
    take_all(&pipeline);
    pipeline.skipped()
}

#[test]
fn each_fault_says_what_and_where_it_is() {
    let folder = Folder::new();
    let plain = asset(200_000, 1);
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Zstd, Codec::Lz4] {
        let good = packed(codec, &plain);
        let mut corrupt = good.clone();
        let middle = corrupt.len() / 2;
        corrupt[middle..middle + 40].fill(0xFF);
        let bomb = packed(codec, &vec![0; 400_000]);
        let paths = vec![
            folder.put("good", &good),
            folder.put("truncated", &good[..good.len() - 20]),
            folder.put("corrupt", &corrupt),
            folder.0.join("missing"),
            folder.put("bomb", &bomb),
            folder.put("large", &pattern(300_001, 1)),
            folder.0.clone(),
            folder.put("empty", b""),
        ];
        let failures = failures(paths.clone(), codec, 300_000);
        let found: Vec<_> = failures.iter().map(|error| (error.index, error.cause.clone())).collect();
        let name_of = |error: &ChunkError| PathBuf::from(&*error.name);
        for error in &failures {
            assert_eq!(name_of(error), paths[error.index as usize], "{codec:?}");
        }
        match &found[..] {
            [
                (1, Cause::Truncated),
                (2, Cause::Corrupt(_)),
                (3, Cause::Io { os_error: libc::ENOENT }),
                (4, Cause::TooLarge { limit_bytes: 300_000 }),
                (5, Cause::TooLarge { limit_bytes: 300_000 }),
                (6, Cause::Io { os_error: libc::EISDIR }),
                (7, Cause::Truncated),
            ] => {}
            // Nothing in these bytes tells zstd without a checksum, or lz4, that they are wrong.
            [(1, Cause::Truncated), (3, _), ..] if matches!(codec, Codec::Zstd | Codec::Lz4) => {}
            other => panic!("{codec:?}: {other:?}"),
        }
        let truncated = &failures[0];
        assert!(truncated.offset > 0 && truncated.offset <= good.len() as u64, "{truncated}");
        assert_eq!(truncated.stage, "decompress");
    }
}

#[test]
fn irregular_file_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let fifo = folder.0.join("fifo");
    penstock_core::Fifo::create(&fifo, 0o600).unwrap();
    let failures = failures(vec![fifo, "/dev/zero".into()], Codec::Auto, 1000);
    assert_eq!(failures.len(), 2);
    assert!(
        failures.iter().all(|error| matches!(error.cause, Cause::Io { os_error: libc::EINVAL })),
        "{failures:?}"
    );
}

#[test]
fn files_without_a_size_are_read_to_their_end() {
    let pipeline =
        Pipeline::start(Source::files(["/proc/self/maps"]), vec![], Sink::iterate(), &Options::default())
            .unwrap();
    let chunk = pipeline.next(None).unwrap().unwrap();
    assert!(chunk.len() > 4096 && chunk.ends_with(b"\n"), "{} bytes", chunk.len());
}

#[test]
fn a_stream_ends_with_its_failure_whatever_is_asked_for() {
    let folder = Folder::new();
    let plain = asset(500_000, 3);
    let mut stored = packed(Codec::Gzip, &plain);
    stored.truncate(stored.len() / 2);
    let path = folder.put("stream.gz", &stored);
    let source = Source::file(&path, 10_000);
    let pipeline =
        Pipeline::start(source, vec![Stage::decompress(Codec::Gzip)], Sink::iterate(), &skipping()).unwrap();
    let got = bytes_of(&take_all(&pipeline)).concat();
    assert!(!got.is_empty() && plain.starts_with(&got), "what could be had came out");
    let skipped = pipeline.skipped();
    assert_eq!(skipped.len(), 1);
    assert!(matches!(skipped[0].cause, Cause::Truncated));
    assert_eq!((PathBuf::from(&*skipped[0].name), skipped[0].offset), (path, stored.len() as u64));
}

#[test]
fn a_missing_stream_is_one_failure() {
    for stages in [vec![], vec![Stage::decompress(Codec::Auto)]] {
        let source = Source::file("/nonexistent/stream", 1000);
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
        let error = chunk_error(pipeline.next(Some(PATIENCE)).unwrap_err());
        assert!(matches!(error.cause, Cause::Io { os_error: libc::ENOENT }));
        assert_eq!(&*error.name, "/nonexistent/stream");
        assert_eq!(chunk_error(pipeline.next(None).unwrap_err()), error);
    }
}

#[test]
fn a_stage_of_the_callers_may_fail_and_panic() {
    let stage = map("touchy", |chunk, _| match &chunk[..] {
        b"fail" => Err(Cause::failed(std::fmt::Error)),
        b"panic" => panic!("what a chunk"),
        _ => Ok(Some(chunk)),
    })
    .workers(2);
    let source = Source::buffers(["a", "fail", "b", "panic", "c"]);
    let pipeline = Pipeline::start(source, vec![stage], Sink::iterate(), &skipping()).unwrap();
    assert_eq!(bytes_of(&take_all(&pipeline)), [b"a", b"b", b"c"]);
    let skipped = pipeline.skipped();
    assert!(matches!(&skipped[0].cause, Cause::Failed(error) if error.is::<std::fmt::Error>()));
    assert!(matches!(&skipped[1].cause, Cause::Panicked(text) if text == "what a chunk"));
    assert_eq!(skipped[1].to_string(), "3, byte 6 (touchy): panicked: what a chunk");
}

#[test]
fn code_on_each_chunk_fails_with_any_error_of_the_system() {
    let stage = Stage::map_each("read", |chunk| {
        if &*chunk == b"text" {
            return Err(std::io::Error::other("no such thing").into());
        }
        let name = std::str::from_utf8(&chunk).expect("it is text");
        std::fs::File::open(format!("/proc/self/{name}"))?;
        Ok(chunk)
    });
    let source = Source::buffers(["maps", "nothing", "text"]);
    let pipeline = Pipeline::start(source, vec![stage.workers(2)], Sink::iterate(), &skipping()).unwrap();
    assert_eq!(bytes_of(&take_all(&pipeline)), [b"maps"]);
    let causes: Vec<_> = pipeline.skipped().into_iter().map(|error| error.cause.clone()).collect();
    assert!(matches!(&causes[..], [Cause::Io { os_error: libc::ENOENT }, Cause::Failed(_)]), "{causes:?}");
}

struct Failing(usize);

impl Feed for Failing {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        self.0 += 1;
        if self.0 == 3 {
            return Some(Err(Cause::failed(std::fmt::Error)));
        }
        let name = Some(OsString::from(format!("no. {}", self.0)));
        Some(context.copy(b"fed").map(|bytes| Fed { name, bytes }))
    }
}

#[test]
fn a_feed_that_fails_has_ended() {
    let pipeline = Pipeline::start(Source::feed(Failing(0)), vec![], Sink::iterate(), &skipping()).unwrap();
    let chunks = take_all(&pipeline);
    assert_eq!(chunks.iter().map(|chunk| &**chunk.name()).collect::<Vec<_>>(), ["no. 1", "no. 2"]);
    assert_eq!(pipeline.skipped().len(), 1);
}

/// Takes its time after its thread's work has returned, or while it unwinds.
fn leaves_late(body: &mut (dyn FnMut() + Send)) {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            thread::sleep(Duration::from_millis(30));
        }
    }
    let _late = Late;
    body();
}

fn contains_panics(body: &mut (dyn FnMut() + Send)) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

/// Pipelines whose output is not whole, by where a thread leaves without its work.
fn incomplete() -> Vec<(&'static str, Source, Vec<Stage>)> {
    let buffers = || Source::buffers((0..10u8).map(|number| [number; 100]));
    let paths = || (0..10).map(|number| if number < 5 { "/proc/self/maps" } else { panic!("no path") });
    let no_map = || Stage::map("none", || panic!("no map"));
    let stages = || vec![pass("a"), pass("b").workers(2)];
    vec![
        ("paths that panic", Source::files(paths()), stages()),
        ("paths that panic and unwind slowly", Source::files(paths()).within(leaves_late), stages()),
        ("paths whose panic is contained", Source::files(paths()).within(contains_panics), stages()),
        ("a source that is not run", buffers().within(|_| {}), stages()),
        ("a stage that cannot be made", buffers(), vec![no_map(), pass("b")]),
        ("a stage that unwinds slowly", buffers(), vec![pass("a"), no_map().workers(2).within(leaves_late)]),
        ("a stage that is not run", buffers(), vec![pass("a"), pass("b").workers(2).within(|_| {})]),
    ]
}

/// Also checked again and again, and for a second consumer.
#[test]
fn a_thread_that_leaves_without_its_work_is_no_end_for_those_who_take_chunks() {
    for (name, source, stages) in incomplete() {
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &skipping()).unwrap();
        let consume = || loop {
            match pipeline.next(Some(PATIENCE)) {
                Ok(Some(_)) => {}
                end => return end.map(drop),
            }
        };
        let ends =
            thread::scope(|scope| [(); 2].map(|()| scope.spawn(consume)).map(|taker| taker.join().unwrap()));
        for end in ends.into_iter().chain([consume()]) {
            assert_eq!(end, Err(Error::from_raw_os_error(libc::EIO)), "{name}");
        }
    }
}

#[test]
fn a_thread_that_leaves_without_its_work_is_no_end_for_a_writer() {
    for (name, source, stages) in incomplete() {
        let (mut reader, end) = pipe().unwrap();
        let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
        drop(end);
        let pipeline = Pipeline::start(source, stages, Sink::writer(writer), &skipping()).unwrap();
        let drained = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        assert_eq!(pipeline.wait(Some(PATIENCE)), Err(Error::from_raw_os_error(libc::EIO)), "{name}");
        assert_eq!(pipeline.wait(Some(PATIENCE)), Err(Error::from_raw_os_error(libc::EIO)), "{name}, again");
        drop(pipeline);
        drained.join().unwrap().unwrap();
    }
}

#[test]
fn a_thread_that_leaves_without_its_work_is_no_end_for_the_callers_memory() {
    for (name, source, stages) in incomplete() {
        let spaces: Vec<_> = (0..20).map(|_| Own(Arc::new(Mutex::new(vec![0; 1 << 20])))).collect();
        let sink = Sink::spaces(Row(spaces.into_iter()));
        let pipeline = Pipeline::start(source, stages, sink, &skipping()).unwrap();
        let end =
            std::iter::repeat_with(|| pipeline.next(Some(PATIENCE))).find(|end| !matches!(end, Ok(Some(_))));
        assert_eq!(end.unwrap().unwrap_err(), Error::from_raw_os_error(libc::EIO), "{name}");
    }
}

#[test]
fn a_failure_that_ends_the_pipeline_is_told_to_every_consumer_and_every_time() {
    for round in 0..100 {
        let mut paths = vec!["/proc/self/maps"; round % 5];
        paths.extend(["/nonexistent/first", "/proc/self/maps", "/nonexistent/second", "/proc/self/maps"]);
        let source = Source::files(paths).workers(1 + round % 3);
        let pipeline =
            Pipeline::start(source, vec![pass("a").workers(2)], Sink::iterate(), &small_depth()).unwrap();
        let consume = || loop {
            match pipeline.next(Some(PATIENCE)) {
                Ok(Some(chunk)) => assert!(chunk.index() < (round % 5) as u64, "it came after the failure"),
                Ok(None) => panic!("a clean end"),
                Err(error) => return chunk_error(error).name,
            }
        };
        let names =
            thread::scope(|scope| [(); 3].map(|()| scope.spawn(consume)).map(|taker| taker.join().unwrap()));
        for name in names.into_iter().chain([consume()]) {
            assert_eq!(&*name, "/nonexistent/first");
        }
        assert!(pipeline.close());
        assert_eq!(pipeline.next(None).unwrap_err(), Error::Closed);
    }
}

/// The source says how much it gave: what a close cuts off must not be reported as everything.
#[test]
fn a_close_is_no_end_for_a_writer() {
    for _ in 0..200 {
        let (mut reader, end) = pipe().unwrap();
        let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
        drop(end);
        let drained = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let stages = (0..6).map(|_| pass("a")).collect();
        let pipeline = Pipeline::start(endless(), stages, Sink::writer(writer), &small_depth()).unwrap();
        assert!(eventually(|| pipeline.stats().unwrap().stages[7].bytes_out > 0));
        assert!(pipeline.close());
        assert_eq!(pipeline.wait(Some(PATIENCE)), Err(Error::Closed));
        drained.join().unwrap().unwrap();
    }
}

#[test]
fn parts_that_make_no_sense_together_are_refused() {
    let refused = |source: Source, stages: Vec<Stage>, options: Options| {
        let refused = Pipeline::start(source, stages, Sink::iterate(), &options);
        assert!(matches!(refused, Err(Error::Unsuitable(_))), "{refused:?}");
    };
    let file = || Source::file("/dev/null", 10);
    refused(file(), vec![Stage::decompress(Codec::Zlib).workers(2)], Options::default());
    refused(file().workers(2), vec![], Options::default());
    refused(Source::file("/dev/null", 0), vec![], Options::default());
    refused(file(), vec![Stage::checksum(ChecksumKind::Xxh3).workers(0)], Options::default());
    refused(file(), vec![], Options::default().max_chunk_bytes(9));
    refused(file(), vec![], Options::default().depth(0, 1));
    let (reader, writer) = pipe().unwrap();
    assert_eq!(Source::fd(&writer, 10).err(), Some(Error::from_raw_os_error(libc::EBADF)));
    drop(reader);
    let (messages, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    assert!(matches!(Source::fd(&messages, 10), Err(Error::Unsuitable(_))));
}

// --- backpressure and memory --------------------------------------------------------------------------------------------

/// Counts what it has given.
struct Counting(Arc<AtomicUsize>, usize);

impl Feed for Counting {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        if self.0.load(Ordering::Relaxed) == self.1 {
            return None;
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(context.take(60_000).map(|bytes| Fed { name: None, bytes }))
    }
}

fn pass(name: &str) -> Stage {
    map(name, |chunk, _| Ok(Some(chunk)))
}

#[test]
fn the_source_waits_for_the_consumer() {
    let given = Arc::new(AtomicUsize::new(0));
    let stages = vec![pass("a"), pass("b").workers(2)];
    let options = Options::default().depth(3, 1 << 30);
    let source = Source::feed(Counting(Arc::clone(&given), 10_000));
    let pipeline = Pipeline::start(source, stages, Sink::iterate(), &options).unwrap();
    // Three queues of three, and what the source and three workers hold: 13. Those who wait for room are woken when a queue is
    // half empty, so that it may be a little less.
    assert!(eventually(|| given.load(Ordering::Relaxed) >= 9));
    thread::sleep(Duration::from_millis(50));
    assert!(given.load(Ordering::Relaxed) <= 13, "{given:?}");
    pipeline.next(None).unwrap();
    let stats = pipeline.stats().unwrap();
    assert!(stats.stages.iter().all(|stage| stage.queue_items <= 3), "{stats:?}");
}

#[test]
fn worker_that_drops_everything_does_not_run_ahead_of_a_slow_worker() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (release, gate) = mpsc::channel::<()>();
    let (gate, counter) = (Arc::new(Mutex::new(gate)), Arc::clone(&seen));
    let stage = map("leave out", move |chunk, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        if chunk.index() == 0 {
            let _ = gate.lock().unwrap().recv();
        }
        Ok(None)
    });
    let pipeline =
        Pipeline::start(endless(), vec![stage.workers(2)], Sink::iterate(), &small_depth()).unwrap();
    assert!(eventually(|| seen.load(Ordering::Relaxed) >= 2));
    thread::sleep(Duration::from_millis(50));
    assert!(seen.load(Ordering::Relaxed) <= 4, "{seen:?}");
    drop(release);
    assert!(eventually(|| seen.load(Ordering::Relaxed) >= 100));
    assert!(pipeline.close());
}

#[test]
fn memory_is_the_same_for_few_and_for_many_chunks() {
    let peak = |count: usize| {
        let options = Options::default().depth(4, 1 << 20);
        let source = Source::feed(Counting(Arc::default(), count));
        let pipeline =
            Pipeline::start(source, vec![pass("a"), pass("b")], Sink::iterate(), &options).unwrap();
        for _ in 0..count {
            assert!(pipeline.next(None).unwrap().is_some());
        }
        let free_bytes = pipeline.stats().unwrap().pool_free_bytes;
        assert!(pipeline.next(None).unwrap().is_none());
        assert_eq!(
            pipeline.stats().unwrap().pool_free_bytes,
            0,
            "it has ended, and nobody asks for memory again"
        );
        free_bytes
    };
    // All memory is free after the last chunk: what is kept is what was ever in use at once, or the pool's limit. Three queues of
    // four, what the source, two stages and we hold.
    let slab_bytes = 69_632;
    assert!(peak(100) <= 16 * slab_bytes);
    assert!(peak(20_000) <= 16 * slab_bytes);
}

// --- leaving early --------------------------------------------------------------------------------------------------------

fn endless() -> Source {
    Source::buffers(std::iter::repeat_with(|| vec![1u8; 1000]))
}

#[test]
fn pipeline_can_be_dropped_at_any_stage() {
    let (_writer_stays, reader) = {
        let (reader, writer) = pipe().unwrap();
        (writer, reader)
    };
    let blocked = || Source::fd(&reader, 1000).unwrap();
    let slow = || {
        map("slow", |chunk, _| {
            thread::sleep(Duration::from_millis(100));
            Ok(Some(chunk))
        })
    };
    let folder = Folder::new();
    let path = folder.put("asset", &packed(Codec::Zlib, &asset(50_000, 1)));
    let files = || Source::files(std::iter::repeat_n(path.clone(), 1_000_000)).workers(2);
    let cases: Vec<(&str, Source, Vec<Stage>)> = vec![
        ("a source that waits", blocked(), vec![]),
        ("a stream that waits", blocked(), vec![Stage::decompress(Codec::Gzip)]),
        ("a full sink", endless(), vec![pass("a"), pass("b").workers(3)]),
        ("a slow stage", endless(), vec![slow()]),
        ("several slow workers", endless(), vec![pass("a"), slow().workers(3), pass("b")]),
        ("readers and decoders", files(), vec![Stage::decompress(Codec::Auto).workers(2)]),
    ];
    for (name, source, stages) in cases {
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &small_depth()).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(pipeline.close(), "{name}");
        assert!(pipeline.close(), "{name}, again");
    }
}

#[test]
fn close_wakes_a_caller_that_waits_for_a_chunk() {
    let (reader, _writer) = pipe().unwrap();
    let source = Source::fd(&reader, 1000).unwrap();
    let pipeline = Pipeline::start(source, vec![], Sink::iterate(), &Options::default()).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pipeline.next(None));
        thread::sleep(Duration::from_millis(20));
        assert!(pipeline.close());
        assert_eq!(waiter.join().unwrap().unwrap_err(), Error::Closed);
    });
}

#[test]
fn close_within_gives_up_on_a_stage_that_does_not_return() {
    let (release, gate) = mpsc::channel::<()>();
    let (enter, entered) = mpsc::channel();
    let gate = Arc::new(Mutex::new(gate));
    let stuck = map("stuck", move |chunk, _| {
        let _ = enter.send(());
        let _ = gate.lock().unwrap().recv();
        Ok(Some(chunk))
    });
    let pipeline = Pipeline::start(endless(), vec![stuck], Sink::iterate(), &small_depth()).unwrap();
    entered.recv().unwrap();
    assert!(!pipeline.close_within(Duration::from_millis(50)));
    drop(release);
    assert!(pipeline.close_within(Duration::MAX), "it has ended with its call");
}

#[test]
fn failure_does_not_wait_for_the_rest_of_the_source() {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(b"this is no gzip").unwrap();
    let source = Source::fd(&reader, 1000).unwrap();
    let stages = vec![Stage::decompress(Codec::Gzip)];
    let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
    // The pipe is still open.
    let error = chunk_error(pipeline.next(Some(PATIENCE)).unwrap_err());
    assert!(matches!(error.cause, Cause::Corrupt(_)), "{error}");
    assert!(pipeline.close());
}

// --- latency, readiness, statistics ---------------------------------------------------------------------------------------

#[test]
fn available_data_is_passed_on_before_the_source_waits() {
    let (reader, mut writer) = pipe().unwrap();
    let source = Source::fd(&reader, 1 << 20).unwrap();
    let stages = vec![Stage::decompress(Codec::Zstd), pass("a")];
    let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
    for round in 0..5u8 {
        writer.write_all(&packed(Codec::Zstd, &[round; 100])).unwrap();
        let chunk = pipeline.next(Some(PATIENCE)).unwrap().unwrap();
        assert_eq!(&chunk[..], [round; 100]);
    }
    assert!(matches!(pipeline.next(Some(Duration::ZERO)), Err(Error::Stalled { .. })));
    drop(writer);
    assert!(pipeline.next(Some(PATIENCE)).unwrap().is_none());
}

#[test]
fn all_that_came_is_given_out_however_small_the_pieces_are() {
    for codec in [Codec::Zlib, Codec::Gzip, Codec::Zstd, Codec::Lz4] {
        let (reader, mut writer) = pipe().unwrap();
        let source = Source::fd(&reader, 100).unwrap();
        let stages = vec![Stage::decompress(codec)];
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
        let plain = vec![7; 10_000];
        writer.write_all(&packed(codec, &plain)).unwrap();
        let mut bytes = 0;
        while bytes < plain.len() {
            bytes += pipeline.next(Some(PATIENCE)).unwrap().expect("the pipe is still open").len();
        }
        assert!(matches!(pipeline.next(Some(Duration::ZERO)), Err(Error::Stalled { .. })));
    }
}

#[test]
fn a_ticket_tells_when_there_is_something() {
    let (reader, mut writer) = pipe().unwrap();
    let source = Source::fd(&reader, 1000).unwrap();
    let pipeline = Pipeline::start(source, vec![], Sink::iterate(), &Options::default()).unwrap();
    let ready = pipeline.ready();
    assert_eq!(ready.outcome(), None);
    writer.write_all(b"x").unwrap();
    ready.wait().unwrap();
    assert_eq!(&pipeline.next(Some(Duration::ZERO)).unwrap().unwrap()[..], b"x");
    let ready = pipeline.ready();
    drop(writer);
    ready.wait().unwrap();
    assert!(pipeline.next(Some(Duration::ZERO)).unwrap().is_none());
    assert_eq!(pipeline.ready().outcome(), Some(Ok(())));
}

#[test]
fn statistics_count_everything_and_name_who_is_slow() {
    let slow = map("slow", |chunk, context| {
        context.waited_for_lock(Duration::from_nanos(500));
        thread::sleep(Duration::from_millis(2));
        Ok(Some(chunk))
    });
    let source = Source::buffers(vec![[1u8; 1000]; 30]);
    let pipeline =
        Pipeline::start(source, vec![pass("quick"), slow, pass("slow")], Sink::iterate(), &small_depth())
            .unwrap();
    assert_eq!(take_all(&pipeline).len(), 30);
    let stats = pipeline.stats().unwrap();
    let names: Vec<_> = stats.stages.iter().map(|stage| &*stage.name).collect();
    assert_eq!(names, ["feed", "quick", "slow", "slow", "consumer"]);
    for stage in &stats.stages {
        assert_eq!(stage.work.count, 30, "{stage:?}");
        assert!(stage.work.min_ns <= stage.work.p50_ns && stage.work.p50_ns <= stage.work.p99_ns);
    }
    let slow = &stats.stages[2];
    assert_eq!((slow.bytes_in, slow.bytes_out, slow.lock.count), (30_000, 30_000, 30));
    assert!(slow.work.min_ns >= 1_900_000, "{slow:?}");
    assert_eq!(stats.end_to_end.count, 30);
    assert!(stats.end_to_end.max_ns >= slow.work.max_ns / 2);
    assert_eq!(stats.bottleneck().map(|part| &*part.name), Some("slow"));
    assert!(stats.stages[1].output_blocked_ns > stats.stages[2].output_blocked_ns, "the quick one waits");
}

// --- sinks ------------------------------------------------------------------------------------------------------------------

#[test]
fn a_writer_gets_every_byte_in_order() {
    let folder = Folder::new();
    let plain = assets(40);
    let paths = folder.put_all(&plain.iter().map(|plain| packed(Codec::Zstd, plain)).collect::<Vec<_>>());
    let (mut reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
    drop(end);
    let got = thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).map(|_| got)
    });
    let stages = vec![Stage::decompress(Codec::Zstd).workers(2)];
    let pipeline =
        Pipeline::start(Source::files(paths), stages, Sink::writer(writer), &small_depth()).unwrap();
    assert!(matches!(pipeline.next(None), Err(Error::Unsuitable(_))));
    pipeline.wait(Some(PATIENCE)).unwrap();
    assert!(got.join().unwrap().unwrap() == plain.concat());
    let stats = pipeline.stats().unwrap();
    assert_eq!((stats.end_to_end.count, stats.stages[2].work.count), (40, 40));
    pipeline.wait(None).unwrap();
}

#[test]
fn chunks_before_a_failure_are_written() {
    let (mut reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
    drop(end);
    let stage = map("touchy", |chunk, _| {
        if &chunk[..] == b"b" { Err(Error::from_raw_os_error(libc::EIO).into()) } else { Ok(Some(chunk)) }
    });
    let source = Source::buffers(["a", "b", "c"]);
    let pipeline = Pipeline::start(source, vec![stage], Sink::writer(writer), &Options::default()).unwrap();
    assert_eq!(chunk_error(pipeline.wait(Some(PATIENCE)).unwrap_err()).index, 1);
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"a");
}

#[test]
fn a_writer_that_nobody_reads_can_be_left() {
    let (_reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
    let pipeline = Pipeline::start(endless(), vec![], Sink::writer(writer), &small_depth()).unwrap();
    assert!(matches!(pipeline.wait(Some(Duration::from_millis(50))), Err(Error::Stalled { .. })));
    assert!(pipeline.close());
    assert_eq!(pipeline.wait(Some(PATIENCE)), Err(Error::Closed));
}

#[test]
fn a_writer_whose_reader_is_gone_ends_the_pipeline() {
    let (reader, end) = pipe().unwrap();
    let writer = Writer::new(&end, &penstock_core::WriterOptions::default()).unwrap();
    drop(reader);
    let pipeline = Pipeline::start(endless(), vec![pass("a")], Sink::writer(writer), &small_depth()).unwrap();
    assert!(matches!(pipeline.wait(Some(PATIENCE)), Err(Error::Broken { .. })));
    assert!(pipeline.close());
}

/// Memory that a test looks at afterwards.
#[derive(Clone)]
struct Own(Arc<Mutex<Vec<u8>>>);

// SAFETY: the vector is never resized, and nobody touches it before the pipeline is gone.
unsafe impl Space for Own {
    fn as_mut_ptr(&self) -> *mut u8 {
        self.0.lock().unwrap().as_mut_ptr()
    }
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

struct Row(std::vec::IntoIter<Own>);

impl Spaces for Row {
    fn next(&mut self, _: &mut Context<'_>) -> Option<Result<Box<dyn Space>, Cause>> {
        self.0.next().map(|own| Ok(Box::new(own) as Box<dyn Space>))
    }
}

#[test]
fn callers_memory_is_filled_until_it_is_used_up() {
    let spaces: Vec<_> = (0..3).map(|_| Own(Arc::new(Mutex::new(vec![0; 8])))).collect();
    let sink = Sink::spaces(Row(spaces.clone().into_iter()));
    let source = Source::buffers((0..1_000_000).map(|number: u32| number.to_le_bytes()));
    let pipeline = Pipeline::start(source, vec![pass("a")], sink, &small_depth()).unwrap();
    let chunks = take_all(&pipeline);
    assert_eq!(bytes_of(&chunks), [0u32, 1, 2].map(|number| number.to_le_bytes().to_vec()));
    for (chunk, space) in chunks.iter().zip(&spaces) {
        assert_eq!(chunk.as_ptr(), space.as_mut_ptr());
    }
    assert!(pipeline.close());
}

#[test]
fn chunk_too_large_for_the_callers_memory_is_a_failure() {
    let spaces = vec![Own(Arc::new(Mutex::new(vec![0; 3]))), Own(Arc::new(Mutex::new(vec![0; 3])))];
    let sink = Sink::spaces(Row(spaces.into_iter()));
    let pipeline = Pipeline::start(Source::buffers(["abcd", "ef"]), vec![], sink, &skipping()).unwrap();
    assert_eq!(bytes_of(&take_all(&pipeline)), [b"ef"]);
    assert!(matches!(pipeline.skipped()[0].cause, Cause::TooLarge { limit_bytes: 3 }));
}

#[test]
fn several_callers_share_the_chunks_and_all_come_to_the_end() {
    for _ in 0..50 {
        let source = Source::buffers((0..20u8).map(|number| [number]));
        let pipeline = Pipeline::start(source, vec![pass("a")], Sink::iterate(), &small_depth()).unwrap();
        let mut got: Vec<_> = thread::scope(|scope| {
            let takers: Vec<_> = (0..3).map(|_| scope.spawn(|| bytes_of(&take_all(&pipeline)))).collect();
            takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
        });
        got.sort_unstable();
        assert_eq!(got, (0..20u8).map(|number| vec![number]).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_comes_after_the_chunk_that_finished_its_stage() {
    for is_last in [true, false] {
        let later = AtomicUsize::new(0);
        let work = move |chunk: Chunk, context: &mut Context<'_>, later: &AtomicUsize| match chunk.index() {
            0..10 => Ok(Some(chunk)),
            10 => {
                assert!(eventually(|| later.load(Ordering::Relaxed) >= 3), "the other workers go on");
                thread::sleep(Duration::from_millis(20)); // until they wait to pass theirs on, or have
                context.finish();
                Ok(Some(chunk))
            }
            index => {
                later.fetch_add(1, Ordering::Relaxed);
                if index == 12 { Err(Cause::TooLarge { limit_bytes: 1 }) } else { Ok(Some(chunk)) }
            }
        };
        let later = Arc::new(later);
        let finishing = map("some", move |chunk, context| work(chunk, context, &later)).workers(4);
        let behind = map("all", |chunk, _| Ok(Some(chunk)));
        let stages = if is_last { vec![finishing] } else { vec![finishing, behind] };
        let source = Source::buffers((0..1000).map(|_| vec![1; 100]));
        let pipeline = Pipeline::start(source, stages, Sink::iterate(), &Options::default()).unwrap();
        let indices: Vec<_> = take_all(&pipeline).iter().map(Chunk::index).collect();
        assert!(indices.into_iter().eq(0..=10));
    }
}
