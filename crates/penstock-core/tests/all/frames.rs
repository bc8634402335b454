//! Frames from a pipe and from a file, on each system.

use std::fs::File;
use std::io::{Write, pipe};
use std::thread;
use std::time::{Duration, Instant};

use penstock_core::{Error, Reader, ReaderOptions};

const FRAME_BYTES: usize = 100_000;

fn pattern(frames: usize) -> Vec<u8> {
    (0..frames * FRAME_BYTES).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn all_frames(reader: &Reader) -> Result<Vec<u8>, Error> {
    let mut got = Vec::new();
    while let Some(frame) = reader.read(None)? {
        got.extend_from_slice(&frame);
    }
    Ok(got)
}

#[test]
fn frames_arrive_whole_and_in_order() {
    let bytes = pattern(30);
    let (source, mut writer) = pipe().unwrap();
    let reader = Reader::new(&source, &ReaderOptions::new(FRAME_BYTES)).unwrap();
    let got = thread::scope(|scope| {
        scope.spawn(|| {
            bytes.chunks(33_333).for_each(|piece| writer.write_all(piece).unwrap());
            drop(writer);
        });
        all_frames(&reader).unwrap()
    });
    assert!(got == bytes);
}

#[test]
fn frames_of_a_file_begin_at_its_position() {
    let path = std::env::temp_dir().join(format!("penstock-frames-{}", std::process::id()));
    let bytes = pattern(3);
    std::fs::write(&path, &bytes).unwrap();
    let reader = Reader::new(File::open(&path).unwrap(), &ReaderOptions::new(FRAME_BYTES)).unwrap();
    assert!(all_frames(&reader).unwrap() == bytes);
    reader.close();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_stream_that_ends_inside_a_frame_is_truncated() {
    let (source, mut writer) = pipe().unwrap();
    let reader = Reader::new(&source, &ReaderOptions::new(FRAME_BYTES)).unwrap();
    writer.write_all(&pattern(1)[..70]).unwrap();
    drop(writer);
    let failure = all_frames(&reader).unwrap_err();
    assert_eq!(failure, Error::Truncated { frames: 0, frame_bytes: FRAME_BYTES, bytes_over: 70 });
}

#[test]
fn close_ends_the_wait_for_a_frame_whenever_it_comes() {
    for round in 0..50_u64 {
        let (source, _writer) = pipe().unwrap();
        let reader = Reader::new(&source, &ReaderOptions::new(FRAME_BYTES)).unwrap();
        thread::sleep(Duration::from_micros(round * 7919 % 900));
        let start = Instant::now();
        reader.close();
        assert_eq!(all_frames(&reader), Err(Error::Closed));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
