//! Writes whose bytes are made on the way, on real pipes.

use std::io::{self, PipeReader, Read, Write, pipe};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use penstock_core::{ByteWriter, Error, Mode, ReaderKind, Transform, Transport, Writer, WriterOptions};

use crate::common::{Temper, drain, pattern};
use crate::eventually;

/// Every byte of two becomes one: their sum. In steps of 1,000 bytes of output.
#[derive(Debug)]
struct Halve {
    output_bytes: usize,
    made_steps: AtomicUsize,
}

const STEP_BYTES: usize = 1000;

impl Halve {
    fn new(output_bytes: usize) -> Arc<Self> {
        Arc::new(Self { output_bytes, made_steps: AtomicUsize::new(0) })
    }

    fn of(input: &[u8]) -> Vec<u8> {
        input.chunks(2).map(|pair| pair[0].wrapping_add(pair[1])).collect()
    }
}

impl Transform for Halve {
    fn input_bytes(&self) -> usize {
        2 * self.output_bytes
    }
    fn output_bytes(&self) -> usize {
        self.output_bytes
    }
    fn steps(&self) -> usize {
        self.output_bytes.div_ceil(STEP_BYTES)
    }
    fn apply(&self, step: usize, input: &[u8], output: &mut [u8]) {
        assert_eq!((input.len(), output.len()), (2 * self.output_bytes, self.output_bytes));
        let (start, end) = (step * STEP_BYTES, ((step + 1) * STEP_BYTES).min(self.output_bytes));
        output[start..end].copy_from_slice(&Self::of(&input[2 * start..2 * end]));
        self.made_steps.fetch_add(1, Ordering::Relaxed);
    }
}

fn open(pipe: impl AsFd, transform: &Arc<Halve>, mode: Mode, reader: ReaderKind) -> Writer {
    let options = WriterOptions::default().mode(mode).reader(reader).transform(transform.clone());
    Writer::new(pipe, &options).unwrap()
}

fn read_all(mut reader: PipeReader, pause: Duration) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let (mut got, mut piece) = (Vec::new(), vec![0; 100_000]);
        loop {
            thread::sleep(pause);
            match reader.read(&mut piece).unwrap() {
                0 => return got,
                bytes => got.extend_from_slice(&piece[..bytes]),
            }
        }
    })
}

#[test]
fn transformed_bytes_are_delivered_in_every_mode_and_at_every_pace() {
    for output_bytes in [1, 999, 70_000, 500_001] {
        let frames: Vec<_> = (0..5).map(|seed| pattern(2 * output_bytes, seed)).collect();
        let expected: Vec<_> = frames.iter().flat_map(|frame| Halve::of(frame)).collect();
        for mode in [Mode::Auto, Mode::Write, Mode::Staged, Mode::ZeroCopy] {
            for (known, pause) in [
                (ReaderKind::Reads, Duration::ZERO),
                (ReaderKind::Reads, Duration::from_millis(1)),
                (ReaderKind::Unknown, Duration::ZERO),
            ] {
                let (source, pipe) = pipe().unwrap();
                let transform = Halve::new(output_bytes);
                let writer = open(&pipe, &transform, mode, known);
                drop(pipe);
                let got = read_all(source, pause);
                for frame in &frames {
                    writer.submit(frame.clone(), None).unwrap();
                }
                writer.close(None).unwrap();
                assert!(got.join().unwrap() == expected, "{mode:?} {known:?} {output_bytes}");
                assert_eq!(writer.stats().accepted_bytes, 5 * output_bytes as u64);
                assert_eq!(
                    transform.made_steps.load(Ordering::Relaxed),
                    5 * transform.steps(),
                    "each step once"
                );
            }
        }
    }
}

#[test]
fn the_pages_of_a_conversion_go_into_the_pipe_themselves() {
    let (source, pipe) = pipe().unwrap();
    let writer = open(&pipe, &Halve::new(1 << 20), Mode::Auto, ReaderKind::Reads);
    drop(pipe);
    let got = drain(source, Temper::Eager);
    writer.submit(vec![1; 2 << 20], None).unwrap().wait().unwrap();
    assert_eq!(writer.stats().choice.unwrap().0, Transport::ZeroCopy);
    writer.close(None).unwrap();
    assert!(writer.stats().transforming > Duration::ZERO && writer.stats().worker_busy > Duration::ZERO);
    assert!(got.join().unwrap() == vec![2; 1 << 20]);
}

#[test]
fn callers_memory_is_free_once_converted_even_if_nobody_reads() {
    let (source, pipe) = pipe().unwrap();
    let writer = open(&pipe, &Halve::new(3 << 20), Mode::Auto, ReaderKind::Reads);
    drop(pipe);
    let frames: Vec<_> = (0..3).map(|seed| Arc::new(pattern(6 << 20, seed))).collect();
    for frame in &frames {
        writer.submit(Arc::clone(frame), None).unwrap();
    }
    eventually(|| Arc::strong_count(&frames[0]) == 1 && Arc::strong_count(&frames[1]) == 1);
    assert_eq!(Arc::strong_count(&frames[2]), 2, "one ahead, and not more: memory is bounded");
    let got = read_all(source, Duration::ZERO);
    writer.close(None).unwrap();
    let expected: Vec<_> = frames.iter().flat_map(|frame| Halve::of(frame)).collect();
    assert!(got.join().unwrap() == expected);
}

#[cfg(feature = "pixels")]
#[test]
fn pixel_conversions_are_transforms() {
    use penstock_pixels::{Conversion, ConversionOptions, PixelFormat};
    let options = ConversionOptions::new(PixelFormat::Rgb24, PixelFormat::Yuv420p, 640, 360);
    let conversion = Conversion::new(&options).unwrap();
    let frame = pattern(conversion.input_bytes(), 3);
    let mut expected = vec![0; conversion.output_bytes()];
    conversion.convert(&frame, &mut expected);
    let (source, pipe) = pipe().unwrap();
    let options = WriterOptions::default().transform(Arc::new(conversion));
    let writer = Writer::new(&pipe, &options).unwrap();
    drop(pipe);
    let got = drain(source, Temper::Eager);
    writer.submit(frame, None).unwrap();
    writer.close(None).unwrap();
    assert!(got.join().unwrap() == expected);
}

#[test]
fn a_write_of_another_size_is_refused_and_comes_back() {
    let (_source, pipe) = pipe().unwrap();
    let writer = open(&pipe, &Halve::new(10), Mode::Auto, ReaderKind::Reads);
    for bytes in [0, 10, 19, 21] {
        let rejected = writer.submit(vec![0; bytes], None).unwrap_err();
        assert!(matches!(rejected.error, Error::Unsuitable(_)), "{:?}", rejected.error);
        assert_eq!(rejected.region.len(), bytes);
    }
    assert!(matches!(writer.submit_transformed(vec![0; 20], None).unwrap_err().error, Error::Unsuitable(_)));
    assert_eq!(writer.stats().accepted_items, 0);
}

#[test]
fn an_io_write_takes_one_whole_input_at_a_time() {
    let (source, pipe) = pipe().unwrap();
    let mut output = ByteWriter::new(open(&pipe, &Halve::new(1000), Mode::Auto, ReaderKind::Reads));
    drop(pipe);
    let frames = pattern(3 * 2000, 5);
    output.write_all(&frames).unwrap();
    assert_eq!(output.write(&frames[..1999]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    drop(output);
    assert!(read_all(source, Duration::ZERO).join().unwrap() == Halve::of(&frames));
}

#[test]
fn a_write_that_is_given_up_while_it_is_made_ahead_ends_and_frees_its_memory() {
    let (mut source, pipe) = pipe().unwrap();
    let first = open(&pipe, &Halve::new(2 << 20), Mode::Auto, ReaderKind::Reads);
    let second = open(&pipe, &Halve::new(1 << 20), Mode::Auto, ReaderKind::Reads);
    let frame = Arc::new(pattern(4 << 20, 1));
    let ahead = Arc::new(pattern(2 << 20, 2));
    first.submit(Arc::clone(&frame), None).unwrap();
    let given_up = second.submit(Arc::clone(&ahead), None).unwrap();
    eventually(|| Arc::strong_count(&ahead) == 1);
    second.abort();
    assert_eq!(given_up.wait(), Err(Error::Aborted { bytes_lost: 1 << 20 }));
    drop(pipe);
    let mut got = vec![0; 2 << 20];
    source.read_exact(&mut got).unwrap();
    assert!(got == Halve::of(&frame));
    first.close(None).unwrap();
    assert_eq!(source.read(&mut [0]).unwrap(), 0, "nothing of the second");
}

#[test]
fn loss_is_counted_in_output_bytes_when_the_reader_goes_away() {
    let (source, pipe) = pipe().unwrap();
    let writer = open(&pipe, &Halve::new(4 << 20), Mode::Auto, ReaderKind::Reads);
    drop(pipe);
    let ticket = writer.submit(vec![1; 8 << 20], None).unwrap();
    drop(source);
    let Err(Error::Broken { bytes_delivered, bytes_lost, .. }) = ticket.wait() else { panic!("{ticket:?}") };
    assert_eq!((bytes_delivered, bytes_lost), (0, 4 << 20));
}

/// Fails as a defect of a caller's code does.
#[derive(Debug)]
struct Panics;

impl Transform for Panics {
    fn input_bytes(&self) -> usize {
        10
    }
    fn output_bytes(&self) -> usize {
        10
    }
    fn steps(&self) -> usize {
        1
    }
    fn apply(&self, _: usize, _: &[u8], _: &mut [u8]) {
        std::panic::resume_unwind(Box::new(())); // says nothing on stderr
    }
}

#[test]
fn a_transform_that_panics_leaves_pages_in_the_pipe_to_their_reader() {
    // The pipe holds all of the first frame, and a part of the second, during which the panic comes.
    for frame_bytes in [300_000, 5 << 20] {
        let (mut source, pipe) = pipe().unwrap();
        let frame = Arc::new(pattern(frame_bytes, 3));
        let writer = Writer::new(&pipe, &WriterOptions::default().mode(Mode::ZeroCopy)).unwrap();
        let panics = Writer::new(&pipe, &WriterOptions::default().transform(Arc::new(Panics))).unwrap();
        let ticket = writer.submit(Arc::clone(&frame), None).unwrap();
        let failed = panics.submit(vec![0; 10], None).unwrap();
        let unread = || rustix::io::ioctl_fionread(&source).unwrap();
        eventually(|| unread() >= 300_000);
        assert_eq!(ticket.wait_for(Some(Duration::from_millis(100))), None, "they are in the pipe");
        assert_eq!(Arc::strong_count(&frame), 2);
        let delivered = unread();
        let mut got = vec![0; delivered as usize];
        source.read_exact(&mut got).unwrap();
        assert!(frame.starts_with(&got));
        let bytes_lost = frame_bytes as u64 + 10 - delivered;
        let failure = Error::Io { os_error: libc::EIO, bytes_delivered: delivered, bytes_lost };
        assert_eq!(failed.wait(), Err(failure.clone()));
        let is_whole = delivered == frame_bytes as u64;
        assert_eq!(ticket.wait(), if is_whole { Ok(()) } else { Err(failure) });
        assert_eq!(Arc::strong_count(&frame), 1);
    }
}

#[test]
fn a_write_that_comes_while_the_worker_waits_for_room_is_transformed_meanwhile() {
    let (_source, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().mode(Mode::Write)).unwrap();
    let halve = Halve::new(1);
    let options = WriterOptions::default().transform(Arc::<Halve>::clone(&halve));
    let blocked = writer.submit(vec![1; 4 << 20], None).unwrap();
    assert_eq!(blocked.wait_for(Some(Duration::from_millis(100))), None, "the worker sleeps by now");
    let transforming = Writer::new(&pipe, &options).unwrap();
    transforming.submit(vec![1; 2], None).unwrap();
    eventually(|| halve.made_steps.load(Ordering::Relaxed) == 1);
    transforming.abort();
    writer.abort();
}

#[test]
fn a_transform_that_panics_counts_what_a_reader_that_is_gone_has_not_read() {
    let (source, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().mode(Mode::Write)).unwrap();
    let panics = Writer::new(&pipe, &WriterOptions::default().transform(Arc::new(Panics))).unwrap();
    writer.submit(vec![1; 1000], None).unwrap().wait().unwrap();
    drop(source);
    let failure = Error::Io { os_error: libc::EIO, bytes_delivered: 0, bytes_lost: 1010 };
    assert_eq!(panics.submit(vec![0; 10], None).unwrap().wait(), Err(failure));
}
