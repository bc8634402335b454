//! Writers, readers, relays and tees under system calls that fail: every byte is delivered or reported.
//!
//! Each test runs in a process of its own, because the faults are the whole process's.

use std::fs::File;
use std::io::{PipeReader, Read, Seek, SeekFrom, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rustix::io::Errno;

use crate::sys::faults::{Call, Fault, Script, play};
use crate::{
    Error, Mode, Reader, ReaderKind, ReaderOptions, RelayMode, RelayOptions, Tee, TeePolicy, Writer,
    WriterOptions, process, relay, relay_in_background,
};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

/// Runs the test in a process of its own.
fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "PENSTOCK_FAULTS_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let done = command
            .args([&format!("sys::faults::tests::{name}"), "--exact", "--nocapture"])
            .env(ALONE, "1")
            .output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    test();
}

/// Runs the check for many inputs, in a process of its own.
fn check<S: Strategy>(name: &str, inputs: S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig {
        cases: 40,
        max_shrink_time: 20_000,
        failure_persistence: None,
        ..Default::default()
    };
    alone(name, || {
        let outcome = TestRunner::new(config).run(&inputs, |input| {
            let checked = check(input);
            play(None);
            checked
        });
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    });
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::None),
        2 => Just(Fault::Passing(Errno::AGAIN)),
        2 => Just(Fault::Passing(Errno::INTR)),
        1 => Just(Fault::Lacking),
        2 => prop_oneof![Just(1usize), 2usize..5000, 5000usize..300_000].prop_map(Fault::Short),
    ]
}

/// Some calls that are refused for good, as sandboxes do, and faults of all others.
fn script() -> impl Strategy<Value = Script> {
    let refusable = vec![Call::Vmsplice, Call::Splice, Call::Tee, Call::CopyFileRange, Call::SetPipeSize];
    let calls = prop::sample::subsequence(refusable, 0..=3);
    let errno = prop::sample::select(vec![Errno::PERM, Errno::NOSYS]);
    (prop::collection::vec(fault(), 0..12), calls, errno, any::<bool>(), any::<u64>()).prop_map(
        |(faults, calls, errno, vmsplice_copies, state)| Script {
            faults,
            refused: calls.into_iter().map(|call| (call, errno)).collect(),
            vmsplice_copies,
            state,
            ..Script::default()
        },
    )
}

fn data(bytes: usize, seed: u32) -> Vec<u8> {
    (seed..).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).take(bytes).collect()
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![0usize..5000, 60_000usize..70_000, 200_000usize..900_000], 1..4)
}

fn drain(mut from: PipeReader) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut got = Vec::new();
        from.read_to_end(&mut got).unwrap();
        got
    })
}

fn feed(mut to: impl Write + Send + 'static, data: &[u8]) {
    let data = data.to_vec();
    thread::spawn(move || to.write_all(&data)); // a relay that fails leaves the rest
}

fn unnamed_file() -> File {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(std::env::temp_dir(), flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap()
        .into()
}

/// Bytes that a failure says were delivered, and that it says were lost.
fn counts(error: &Error) -> Result<(u64, u64), TestCaseError> {
    match error {
        Error::Broken { bytes_delivered, bytes_lost, .. } | Error::Io { bytes_delivered, bytes_lost, .. } => {
            Ok((*bytes_delivered, *bytes_lost))
        }
        error => Err(TestCaseError::fail(format!("{error:?}"))),
    }
}

#[test]
fn a_writer_delivers_or_reports() {
    let mode = prop::sample::select(vec![Mode::Auto, Mode::Write, Mode::Staged, Mode::ZeroCopy]);
    let inputs = (script(), mode, any::<bool>(), sizes());
    check("a_writer_delivers_or_reports", inputs, |(script, mode, reads, sizes)| {
        let (reader, pipe) = pipe().unwrap();
        let got = drain(reader);
        let reader = if reads { ReaderKind::Reads } else { ReaderKind::Unknown };
        play(Some(script));
        let Ok(writer) = Writer::new(&pipe, &WriterOptions::default().mode(mode).reader(reader)) else {
            return Ok(()); // there was no descriptor for it
        };
        drop(pipe);
        let (mut accepted, mut tickets) = (Vec::new(), Vec::new());
        for (frame, seed) in sizes.iter().map(|bytes| data(*bytes, 7)).zip(0u32..) {
            let frame: Vec<_> = frame.iter().map(|byte| byte ^ seed as u8).collect();
            if let Ok(ticket) = writer.submit(frame.clone(), PATIENCE) {
                accepted.extend_from_slice(&frame);
                tickets.push(ticket);
            }
        }
        let closed = writer.close(PATIENCE);
        let outcomes: Vec<_> = tickets.iter().map(|ticket| ticket.wait_for(PATIENCE).unwrap()).collect();
        drop(writer);
        let got = got.join().unwrap();
        match closed {
            Ok(()) => {
                prop_assert!(outcomes.iter().all(Result::is_ok));
                prop_assert!(got == accepted);
            }
            Err(error) => {
                let (delivered, lost) = counts(&error)?;
                prop_assert_eq!(delivered + lost, accepted.len() as u64);
                prop_assert!(got == accepted[..delivered as usize], "{} of {}", got.len(), delivered);
            }
        }
        Ok(())
    });
}

#[derive(Clone, Copy, Debug)]
enum End {
    Pipe,
    File,
    Socket,
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Pipe, End::File, End::Socket])
}

/// Something to read the bytes from, and what shows later how much was taken.
fn source(end: End, data: &[u8]) -> (OwnedFd, Option<File>) {
    match end {
        End::Pipe => {
            let (reader, writer) = pipe().unwrap();
            feed(writer, data);
            (reader.into(), None)
        }
        End::Socket => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            feed(theirs, data);
            (ours.into(), None)
        }
        End::File => {
            let mut file = unnamed_file();
            file.write_all(data).unwrap();
            file.rewind().unwrap();
            (file.try_clone().unwrap().into(), Some(file))
        }
    }
}

/// Something to write to, and what gives all that came.
fn destination(end: End) -> (OwnedFd, JoinHandle<Vec<u8>>, Option<File>) {
    match end {
        End::Pipe => {
            let (reader, writer) = pipe().unwrap();
            (writer.into(), drain(reader), None)
        }
        End::Socket => {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let got = thread::spawn(move || {
                let mut got = Vec::new();
                theirs.read_to_end(&mut got).unwrap();
                got
            });
            (ours.into(), got, None)
        }
        End::File => {
            let file = unnamed_file();
            (file.try_clone().unwrap().into(), thread::spawn(Vec::new), Some(file))
        }
    }
}

fn arrived(got: JoinHandle<Vec<u8>>, file: Option<File>) -> Vec<u8> {
    let mut all = got.join().unwrap();
    if let Some(mut file) = file {
        file.rewind().unwrap();
        file.read_to_end(&mut all).unwrap();
    }
    all
}

#[test]
fn a_relay_delivers_or_reports() {
    let mode = prop::sample::select(vec![RelayMode::Auto, RelayMode::ReadWrite]);
    let inputs = (script(), mode, end(), end(), 0usize..900_000);
    check("a_relay_delivers_or_reports", inputs, |(script, mode, from, to, bytes)| {
        let data = data(bytes, 1);
        let (src, file) = source(from, &data);
        let (dst, got, to_file) = destination(to);
        play(Some(script));
        let outcome = relay(&src, &dst, &RelayOptions { mode, timeout: PATIENCE, ..RelayOptions::default() });
        play(None);
        drop(dst);
        let got = arrived(got, to_file);
        let (delivered, lost) = match &outcome {
            Ok(relayed) => {
                prop_assert_eq!(relayed.bytes, bytes as u64, "{:?}", outcome);
                (relayed.bytes, 0)
            }
            Err(error) => counts(&error.error)?,
        };
        prop_assert!(got == data[..delivered as usize], "{} of {:?}", got.len(), outcome);
        // What was neither delivered nor lost is where it was.
        let mut rest = Vec::new();
        match file {
            Some(mut file) => {
                prop_assert_eq!((file.stream_position().unwrap(), lost), (delivered, 0));
                file.seek(SeekFrom::Start(delivered)).unwrap();
                file.read_to_end(&mut rest).unwrap();
            }
            None => {
                File::from(src).read_to_end(&mut rest).unwrap();
            }
        }
        prop_assert!(rest == data[(delivered + lost) as usize..], "{} are left of {:?}", rest.len(), outcome);
        Ok(())
    });
}

#[test]
fn a_tee_delivers_or_reports() {
    let inputs = (script(), end(), prop::collection::vec(end(), 1..4), 0usize..900_000);
    check("a_tee_delivers_or_reports", inputs, |(script, from, to, bytes)| {
        let data = data(bytes, 1);
        let (src, _file) = source(from, &data);
        play(Some(script));
        let Ok(tee) = Tee::new(&src, None) else { return Ok(()) };
        let mut outputs = Vec::new();
        for end in to {
            let (dst, got, file) = destination(end);
            if let Ok(output) = tee.add(&dst, TeePolicy::Block) {
                outputs.push((output, got, file));
            }
        }
        let outcome = tee.wait_for(PATIENCE).expect("it comes to an end");
        for (output, got, file) in outputs {
            let report = output.report();
            let got = arrived(got, file);
            prop_assert!(got == data[..report.bytes_delivered as usize], "{} of {report:?}", got.len());
            let is_told = report.error.is_some() || outcome.is_err();
            // Where the system refuses calls for good, others do the work.
            prop_assert!(
                !matches!(report.error, Some(Error::Io { os_error: libc::EPERM | libc::ENOSYS, .. })),
                "{report:?}"
            );
            prop_assert!(got.len() == bytes || is_told, "{} of {report:?} {outcome:?}", got.len());
        }
        Ok(())
    });
}

#[test]
fn a_reader_gives_all_or_reports() {
    let inputs = (script(), end(), 1usize..200_000, 0usize..10);
    check("a_reader_gives_all_or_reports", inputs, |(script, from, frame_bytes, frames)| {
        let data = data(frame_bytes * frames, 1);
        let (src, _file) = source(from, &data);
        play(Some(script));
        let Ok(reader) = Reader::new(&src, &ReaderOptions::new(frame_bytes)) else { return Ok(()) };
        let mut got = Vec::new();
        let outcome = loop {
            match reader.read(PATIENCE) {
                Ok(Some(frame)) => got.extend_from_slice(&frame),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        prop_assert!(got == data[..got.len()]);
        prop_assert!(got.len() == data.len() || outcome.is_err(), "{} of {}", got.len(), data.len());
        prop_assert!(!matches!(outcome, Err(Error::Stalled { .. } | Error::Truncated { .. })), "{outcome:?}");
        Ok(())
    });
}

/// As ENOSPC of a write-back, which network file systems report at the close.
#[test]
fn a_close_that_fails_is_a_failure_of_what_was_written() {
    check("a_close_that_fails_is_a_failure_of_what_was_written", Just(()), |()| {
        let lost = |bytes_lost| Error::Io { os_error: libc::ENOSPC, bytes_delivered: 0, bytes_lost };
        let refused = vec![(Call::Close, Errno::NOSPC)];
        play(Some(Script { refused, ..Script::default() }));

        let writer = Writer::new(unnamed_file(), &WriterOptions::default()).unwrap();
        writer.submit(vec![1; 600], None).unwrap().wait().unwrap();
        writer.submit(vec![1; 400], None).unwrap();
        prop_assert_eq!(writer.close(None), Err(lost(1000)));
        prop_assert_eq!(process::take_unreported_bytes(), 0);

        let writer = Writer::new(unnamed_file(), &WriterOptions::default()).unwrap();
        writer.submit(vec![1; 500], None).unwrap().wait().unwrap();
        drop(writer);
        let reported = std::iter::repeat_with(process::take_unreported_bytes);
        let reported = reported.inspect(|_| thread::sleep(Duration::from_millis(1))).find(|bytes| *bytes > 0);
        prop_assert_eq!(reported, Some(500), "the exit of the program reports it");

        let ticket = process::pipe(vec![1; 700], unnamed_file(), Mode::Auto, None).unwrap();
        prop_assert_eq!(ticket.wait(), Err(lost(700)));
        prop_assert_eq!(process::sync(None), Ok(()), "the ticket has reported it");
        process::pipe(vec![1; 800], unnamed_file(), Mode::Auto, None).unwrap();
        let failure = process::SyncError { first: lost(800), others: vec![] };
        prop_assert_eq!(process::sync(None), Err(failure));
        prop_assert_eq!(process::sync(None), Ok(()), "it was reported");

        let (source, mut producer) = pipe().unwrap();
        producer.write_all(&[1; 300]).unwrap();
        drop(producer);
        let relay = relay_in_background(&source, unnamed_file(), &RelayOptions::default(), None).unwrap();
        prop_assert_eq!(relay.wait().map_err(|failure| failure.error), Err(lost(300)));

        let (source, mut producer) = pipe().unwrap();
        producer.write_all(&[1; 300]).unwrap();
        drop(producer);
        let tee = Tee::new(&source, None).unwrap();
        let output = tee.add(unnamed_file(), TeePolicy::Block).unwrap();
        tee.wait().unwrap();
        let report = output.report();
        prop_assert_eq!((report.bytes_delivered, report.error), (0, Some(lost(300))));
        Ok(())
    });
}

/// Linux has closed the descriptor all the same, and goes on with what was written.
#[test]
fn interrupted_close_counts_as_closed() {
    check("interrupted_close_counts_as_closed", Just(()), |()| {
        let refused = vec![(Call::Close, Errno::INTR)];
        play(Some(Script { refused, ..Script::default() }));
        let writer = Writer::new(unnamed_file(), &WriterOptions::default()).unwrap();
        writer.submit(vec![1; 600], None).unwrap();
        prop_assert_eq!(writer.close(None), Ok(()));
        let ticket = process::pipe(vec![1; 700], unnamed_file(), Mode::Auto, None).unwrap();
        prop_assert_eq!(ticket.wait(), Ok(()));
        Ok(())
    });
}

/// Waits until so many files are open that have no name.
fn wait_until_closed(files: usize) {
    let is_open = |fd: &std::path::PathBuf| {
        std::fs::read_link(fd).is_ok_and(|target| target.to_string_lossy().ends_with("(deleted)"))
    };
    let count = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
        fds.filter(is_open).count()
    };
    while count() > files {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Python's interpreter, for instance, stands still until a destructor returns.
#[test]
fn drop_does_not_wait_for_a_slow_close_but_the_end_of_the_program_does() {
    let name = "drop_does_not_wait_for_a_slow_close_but_the_end_of_the_program_does";
    alone(name, || {
        let writer = || {
            let writer = Writer::new(unnamed_file(), &WriterOptions::default()).unwrap();
            writer.submit(vec![1; 600], None).unwrap().wait().unwrap();
            writer
        };
        let (dropped, aborted) = (writer(), writer());
        let relay = crate::Relay::new(unnamed_file(), unnamed_file(), &RelayOptions::default()).unwrap();
        let tee = Tee::new(unnamed_file(), None).unwrap();
        tee.add(unnamed_file(), TeePolicy::Block).unwrap();

        play(Some(Script { holds_closes: true, ..Script::default() }));
        let (done, is_done) = std::sync::mpsc::channel();
        thread::spawn(move || {
            drop(dropped);
            aborted.abort_now();
            drop((relay, tee));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(PATIENCE.unwrap()).expect("no drop waits");

        // SAFETY: the child only ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: it runs nothing of ours.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: the child is ours, and nobody else waits for it.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);

        let (ending, has_ended) = std::sync::mpsc::channel();
        thread::spawn(move || ending.send(process::drain_tasks(Duration::from_secs(10), || true)));
        assert!(has_ended.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
        play(None);
        assert_eq!(has_ended.recv(), Ok(0));
        wait_until_closed(0);
    });
}
