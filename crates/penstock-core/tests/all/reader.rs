//! Readers of frames, on real pipes, files and sockets.

use std::fs::File;
use std::io::{BufRead, ErrorKind, PipeWriter, Read, Seek, Write, pipe};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use penstock_core::{ByteReader, Error, Reader, ReaderOptions, ThreadPolicy, make_pipe};
use penstock_cpu::Priority;

use crate::common::{in_own_process, pattern, unnamed_file};
use crate::eventually;

const A_MOMENT: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(20);

fn open(fd: impl AsFd, frame_bytes: usize) -> Reader {
    Reader::new(fd, &ReaderOptions::new(frame_bytes)).unwrap()
}

/// All frames, and how it ended.
fn read_all(reader: &Reader) -> (Vec<u8>, Result<(), Error>) {
    let mut got = Vec::new();
    for index in 0.. {
        match reader.read(Some(PATIENCE)) {
            Ok(Some(frame)) => {
                assert_eq!(frame.index(), index);
                got.extend_from_slice(&frame);
            }
            Ok(None) => return (got, Ok(())),
            Err(error) => return (got, Err(error)),
        }
    }
    unreachable!("the numbers do not end")
}

/// Writes in pieces of odd sizes, now and then with a pause.
fn write_oddly(mut to: impl Write + Send + 'static, bytes: Vec<u8>, seed: u64) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let sizes = pattern(1 << 12, seed);
        let mut rest = &bytes[..];
        for pair in sizes.chunks(2).cycle() {
            if rest.is_empty() {
                return;
            }
            let piece = (usize::from(pair[0]) << (pair[1] % 10)).clamp(1, rest.len());
            to.write_all(&rest[..piece]).unwrap();
            rest = &rest[piece..];
            if pair[1] % 32 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
    })
}

#[test]
fn smoke() {
    let (pipe, mut writer) = pipe().unwrap();
    let reader = open(&pipe, 3);
    writer.write_all(b"onetwo").unwrap();
    drop(writer);
    assert_eq!(read_all(&reader), (b"onetwo".to_vec(), Ok(())));
    assert_eq!(reader.read(None).unwrap().map(|frame| frame.index()), None, "the end again");
}

#[test]
fn frames_are_whole_and_in_order_however_they_are_written() {
    for seed in 1..40 {
        let dice = pattern(16, seed);
        let frame_bytes = 1 + usize::from(dice[0]) * usize::from(dice[1]);
        let frames = 1 + usize::from(dice[2]) % 50;
        let over = (usize::from(dice[3]) * frame_bytes / 256) * usize::from(dice[4] % 2);
        let bytes = pattern(frames * frame_bytes + over, seed);
        let (pipe, writer) = pipe().unwrap();
        let mut options = ReaderOptions::new(frame_bytes).depth(1 + usize::from(dice[5] % 5));
        options.capacity_bytes = dice[6].is_multiple_of(2).then_some(4096);
        let reader = Reader::new(&pipe, &options).unwrap();
        let writing = write_oddly(writer, bytes.clone(), seed);
        let (got, end) = read_all(&reader);
        writing.join().unwrap();
        assert!(got == bytes[..frames * frame_bytes], "seed {seed}: {} bytes", got.len());
        let torn = Error::Truncated { frames: frames as u64, frame_bytes, bytes_over: over };
        assert_eq!(end, if over == 0 { Ok(()) } else { Err(torn) }, "seed {seed}");
    }
}

#[test]
fn reader_reads_files_and_sockets_to_their_end() {
    let bytes = pattern(300_000, 1);
    let mut file = unnamed_file();
    file.write_all(&bytes).unwrap();
    file.rewind().unwrap();
    assert!(read_all(&open(&file, 100_000)) == (bytes.clone(), Ok(())));

    let (ours, theirs) = UnixStream::pair().unwrap();
    let reader = open(&ours, 100_000);
    let writing = write_oddly(theirs, bytes.clone(), 2);
    assert!(read_all(&reader) == (bytes, Ok(())));
    writing.join().unwrap();
}

#[test]
fn unreadable_descriptor_is_refused_at_the_call() {
    let (pipe, writer) = pipe().unwrap();
    let refused = |fd: &dyn AsFd, options: &ReaderOptions| Reader::new(fd.as_fd(), options).unwrap_err();
    let usual = ReaderOptions::new(8);
    assert_eq!(refused(&writer, &usual), Error::from_raw_os_error(libc::EBADF));
    assert_eq!(refused(&File::open("/").unwrap(), &usual), Error::from_raw_os_error(libc::EISDIR));
    assert_eq!(
        refused(&pipe, &ReaderOptions::new(isize::MAX as usize)),
        Error::from_raw_os_error(libc::ENOMEM)
    );
    let (messages, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    for error in [
        refused(&messages, &usual),
        refused(&pipe, &ReaderOptions::new(0)),
        refused(&pipe, &ReaderOptions::new(usize::MAX)),
        refused(&pipe, &usual.depth(0)),
    ] {
        assert!(matches!(error, Error::Unsuitable(_)), "{error:?}");
    }
}

#[test]
fn reset_fails_after_the_whole_frames() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let reader = open(&ours, 10);
    theirs.write_all(&[7; 25]).unwrap();
    eventually(|| reader.stats().bytes_read == 25);
    // With what it has not read, a socket's close is a reset (tcp(7)).
    (&ours).write_all(b"unread").unwrap();
    eventually(|| rustix::io::ioctl_fionread(&theirs).unwrap() == 6);
    drop(theirs);
    let (got, end) = read_all(&reader);
    assert_eq!((got, end), (vec![7; 20], Err(Error::from_raw_os_error(libc::ECONNRESET))));
    assert_eq!(reader.read(None).unwrap_err(), Error::from_raw_os_error(libc::ECONNRESET), "the same again");
}

#[test]
fn memory_is_bounded_while_nobody_takes_frames() {
    let (pipe, writer) = pipe().unwrap();
    let options = ReaderOptions::new(10_000).depth(3).capacity_bytes(4096);
    let reader = Reader::new(&pipe, &options).unwrap();
    let bytes = pattern(200_000, 3);
    let writing = write_oddly(writer, bytes.clone(), 3);
    eventually(|| reader.stats().frames_waiting == 3);
    thread::sleep(A_MOMENT);
    let stats = reader.stats();
    assert_eq!((stats.frames_read, stats.bytes_read), (3, 30_000), "{stats:?}");
    assert!(!writing.is_finished());
    assert!(read_all(&reader) == (bytes, Ok(())));
    assert!(reader.stats().worker_full >= A_MOMENT, "{:?}", reader.stats());
    writing.join().unwrap();
}

#[test]
fn a_frames_memory_is_its_own_until_it_is_dropped_and_used_again_then() {
    let (pipe, mut writer) = pipe().unwrap();
    let reader = open(&pipe, 5000);
    let kept: Vec<_> = (0..20)
        .map(|value| {
            writer.write_all(&[value; 5000]).unwrap();
            reader.read(None).unwrap().unwrap()
        })
        .collect();
    for (value, frame) in kept.iter().enumerate() {
        assert!(frame.iter().all(|byte| usize::from(*byte) == value));
    }
    drop(kept);
    let places = |writer: &mut PipeWriter| {
        writer.write_all(&[1; 5000]).unwrap();
        reader.read(None).unwrap().unwrap().buffer().start().addr()
    };
    let mut seen: Vec<_> = (0..30).map(|_| places(&mut writer)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() <= 7, "{} places for frames of which none is kept", seen.len());
}

#[test]
fn a_kept_frame_of_a_reader_that_has_ended_keeps_no_others_memory() {
    fn resident_bytes() -> usize {
        let told = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = told.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }
    let test = "reader::a_kept_frame_of_a_reader_that_has_ended_keeps_no_others_memory";
    in_own_process(test, || {
        const FRAME_BYTES: usize = 8 << 20;
        let before = resident_bytes();
        let reader = open(File::open("/dev/zero").unwrap(), FRAME_BYTES);
        let frames: Vec<_> = (0..3).map(|_| reader.read(None).unwrap()).collect();
        eventually(|| reader.stats().frames_waiting == 4);
        let kept = frames.into_iter().next();
        reader.close();
        assert!(resident_bytes() < before + 2 * FRAME_BYTES);
        drop(kept);
    });
}

#[test]
fn frames_are_an_io_read_and_what_is_left_over_comes_before_the_error() {
    for over in [0, 3] {
        let (pipe, writer) = pipe().unwrap();
        let bytes = pattern(20 * 1000 + over, 5);
        let writing = write_oddly(writer, bytes.clone(), 5);
        let reader = open(&pipe, 1000);
        let mut input = ByteReader::new(&reader);
        let mut got = input.fill_buf().unwrap()[..10].to_vec();
        input.consume(10);
        let end = input.read_to_end(&mut got);
        let end = end.map_err(|error| (error.kind(), error.downcast::<Error>().unwrap()));
        writing.join().unwrap();
        assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
        let torn = Error::Truncated { frames: 20, frame_bytes: 1000, bytes_over: over };
        let is_whole = over == 0;
        assert_eq!(end, if is_whole { Ok(bytes.len() - 10) } else { Err((ErrorKind::UnexpectedEof, torn)) });
        assert_eq!(input.read(&mut [0]).is_ok(), is_whole, "the same again");
    }
}

/// The read(2)s of this process, if the kernel counts them.
fn reads() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/io").ok()?;
    told.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok())
}

#[test]
fn small_frames_are_read_together() {
    in_own_process("reader::small_frames_are_read_together", || {
        for depth in [4, 64] {
            let (pipe, mut writer) = make_pipe(Some(1 << 20)).unwrap();
            let bytes = pattern(1 << 20, 9);
            writer.write_all(&bytes).unwrap();
            drop(writer);
            let before = reads();
            let reader = Reader::new(&pipe, &ReaderOptions::new(64).depth(depth)).unwrap();
            assert!(read_all(&reader) == (bytes, Ok(())));
            let frames = (1 << 20) / 64;
            if let (Some(before), Some(after)) = (before, reads()) {
                assert!(after - before < frames * 2 / 3, "{} reads for {frames} frames", after - before);
            }
        }
    });
}

#[test]
fn a_timeout_loses_nothing() {
    let (pipe, mut writer) = pipe().unwrap();
    let reader = open(&pipe, 6);
    writer.write_all(b"half").unwrap();
    eventually(|| reader.stats().bytes_read == 4);
    let error = reader.read(Some(A_MOMENT)).unwrap_err();
    assert!(matches!(error, Error::Stalled { bytes_pending: 2, .. }), "{error:?}");
    writer.write_all(b"ed").unwrap();
    assert_eq!(&**reader.read(None).unwrap().as_ref().unwrap(), b"halfed");
    assert!(reader.stats().caller_blocked > Duration::ZERO);
    assert!(reader.stats().worker_blocked > Duration::ZERO);
}

#[test]
fn latest_is_whole_and_newer_than_the_frames_that_waited() {
    let (pipe, mut writer) = pipe().unwrap();
    let options = ReaderOptions::new(4).depth(2);
    let reader = Reader::new(&pipe, &options).unwrap();
    // Two wait, and the worker leaves the third in the pipe.
    writer.write_all(b"0000111122223333444").unwrap();
    eventually(|| reader.stats().frames_waiting == 2);
    let late = thread::spawn(move || {
        thread::sleep(A_MOMENT);
        writer.write_all(b"4").unwrap();
        writer
    });
    let latest = reader.latest(Some(PATIENCE)).unwrap().unwrap();
    assert_eq!((&*latest, latest.index()), (&b"4444"[..], 4));
    let mut writer = late.join().unwrap();
    assert_eq!(reader.stats().frames_dropped, 4);

    // Live, the source never waits.
    for value in 0..100 {
        writer.write_all(&[value; 4]).unwrap();
    }
    eventually(|| reader.stats().frames_read == 105);
    assert_eq!(reader.stats().frames_waiting, 2);
    let latest = reader.latest(None).unwrap().unwrap();
    assert_eq!((&*latest, latest.index()), (&[99; 4][..], 104));

    // In order again.
    assert!(matches!(reader.read(Some(Duration::ZERO)), Err(Error::Stalled { .. })));
    let dropped = reader.stats().frames_dropped;
    for value in 0..4 {
        writer.write_all(&[value; 4]).unwrap();
    }
    drop(writer);
    thread::sleep(A_MOMENT);
    assert_eq!(reader.stats().frames_dropped, dropped, "the worker waits for room");
    for index in 105..109 {
        assert_eq!(reader.read(None).unwrap().unwrap().index(), index);
    }
    assert!(reader.latest(None).unwrap().is_none());
    let stats = reader.stats();
    assert_eq!(stats.frames_read, stats.frames_delivered + stats.frames_dropped);
}

#[test]
fn at_the_end_the_latest_is_the_last_and_then_the_end() {
    let (pipe, mut writer) = pipe().unwrap();
    writer.write_all(b"0000111122").unwrap();
    drop(writer);
    let reader = open(&pipe, 4);
    let latest = reader.latest(None).unwrap().unwrap();
    assert_eq!((&*latest, latest.index()), (&b"1111"[..], 1));
    let torn = Error::Truncated { frames: 2, frame_bytes: 4, bytes_over: 2 };
    assert_eq!(reader.latest(None).unwrap_err(), torn);
}

#[test]
fn close_wakes_waiting_callers_and_closes_the_descriptor_at_once() {
    let (pipe, mut writer) = pipe().unwrap();
    let reader = Arc::new(open(&pipe, 4));
    drop(pipe);
    let waiting = thread::spawn({
        let reader = Arc::clone(&reader);
        move || reader.read(None)
    });
    thread::sleep(A_MOMENT);
    reader.close();
    assert_eq!(waiting.join().unwrap().unwrap_err(), Error::Closed);
    assert!(reader.is_closed());
    let error = writer.write_all(b"nobody").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(reader.read(None).unwrap_err(), Error::Closed);
    reader.close();
}

#[test]
fn a_drop_ends_a_worker_wherever_it_is() {
    let (pipe, mut writer) = pipe().unwrap();
    let full = open(&pipe, 4);
    writer.write_all(&[0; 4000]).unwrap();
    eventually(|| full.stats().frames_waiting == 4);
    drop(full);
    let inside_a_frame = open(&pipe, 1 << 20);
    eventually(|| inside_a_frame.stats().bytes_read > 0);
    drop(inside_a_frame);
    drop(pipe);
    eventually(|| writer.write_all(b"nobody").is_err());
}

#[test]
fn end_of_stream_closes_the_descriptor_and_its_number_can_be_reused() {
    let (pipe, mut writer) = pipe().unwrap();
    let number = pipe.as_raw_fd();
    let reader = open(&pipe, 4);
    drop(pipe);
    let other = File::open("/dev/zero").unwrap();
    writer.write_all(b"ours").unwrap();
    drop(writer);
    assert_eq!(read_all(&reader), (b"ours".to_vec(), Ok(())), "whatever {number} is: {other:?}");
}

#[test]
fn pipe_grows_unless_a_capacity_is_given() {
    let (pipe, _writer) = pipe().unwrap();
    let small = ReaderOptions::new(4).capacity_bytes(8192);
    assert_eq!(Reader::new(&pipe, &small).unwrap().stats().capacity_bytes, Some(8192));
    assert_eq!(open(unnamed_file(), 4).stats().capacity_bytes, None);
    let (pipe, _writer) = std::io::pipe().unwrap();
    assert!(open(&pipe, 4).stats().capacity_bytes > Some(64 << 10));
}

#[test]
fn a_policy_is_applied_to_the_worker() {
    let (pipe, _writer) = pipe().unwrap();
    let policy = ThreadPolicy::default().priority(Priority::BelowNormal);
    let options = ReaderOptions::new(4).policy(policy);
    let reader = Reader::new(&pipe, &options).unwrap();
    eventually(|| reader.stats().policy.is_some());
    assert_eq!(reader.stats().policy.unwrap().nice, 5);
}

#[test]
fn many_readers_run_at_once() {
    let readers: Vec<_> = (0..20)
        .map(|seed| {
            let (pipe, writer) = pipe().unwrap();
            let bytes = pattern(50_000, seed);
            (open(&pipe, 1000), write_oddly(writer, bytes.clone(), seed), bytes)
        })
        .collect();
    for (reader, writing, bytes) in readers {
        assert!(read_all(&reader) == (bytes, Ok(())));
        writing.join().unwrap();
    }
}
