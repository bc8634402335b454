//! One stream to many: every output has its own, whole, whatever the others do.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Seek, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use penstock_core::{Error, OutputReason, Tee, TeeEnd, TeeOutput, TeePolicy, engine, make_pipe};
use penstock_cpu::{Priority, SchedulingClass, ThreadPolicy};
use proptest::prelude::*;

use crate::common::{Temper, cases, drain, in_own_process, packet_pipe, pattern, unnamed_file};
use crate::eventually;

const PATIENCE: Duration = Duration::from_secs(30);

fn tee(src: impl AsFd) -> Tee {
    Tee::new(src, None).unwrap()
}

fn add(tee: &Tee, dst: impl AsFd) -> TeeOutput {
    tee.add(dst, TeePolicy::Block).unwrap()
}

fn evict_after_ms(after: u64) -> TeePolicy {
    TeePolicy::Evict { after: Duration::from_millis(after) }
}

fn fed_pipe(data: &[u8], piece_bytes: usize) -> PipeReader {
    let (reader, mut writer) = pipe().unwrap();
    let data = data.to_vec();
    // A tee that is cancelled, or has nobody left, leaves the rest to nobody.
    thread::spawn(move || data.chunks(piece_bytes).all(|piece| writer.write_all(piece).is_ok()));
    reader
}

fn drained(temper: Temper) -> (PipeWriter, JoinHandle<Vec<u8>>) {
    let (reader, writer) = pipe().unwrap();
    (writer, drain(reader, temper))
}

/// Waits for the tee's end, and fails rather than wait for ever.
fn ended(tee: &Tee) -> penstock_core::TeeReport {
    tee.wait_for(Some(PATIENCE)).expect("it comes to an end").unwrap()
}

#[test]
fn smoke_all_outputs_have_all_bytes() {
    let data = pattern(5_000_001, 1);
    let tee = tee(fed_pipe(&data, 70_000));
    let readers: Vec<_> = [Temper::Eager, Temper::Chunky(999), Temper::Slow, Temper::Chunky(70_001)]
        .map(|temper| {
            let (writer, reader) = drained(temper);
            add(&tee, &writer);
            reader
        })
        .into();
    let report = ended(&tee);
    assert_eq!((report.bytes, report.source_ended), (data.len() as u64, true));
    for (reader, output) in readers.into_iter().zip(report.outputs) {
        assert!(reader.join().unwrap() == data);
        let output = output.report();
        assert_eq!((output.end, output.bytes_delivered), (Some(TeeEnd::SourceEnded), data.len() as u64));
        assert_eq!((output.bytes_lost, output.method(), output.reason()), (0, "tee", OutputReason::APipe));
    }
}

#[test]
fn a_reader_that_splices_onward_has_all_bytes() {
    if crate::common::pv_is_missing() {
        eprintln!("skipped: pv is not installed");
        return;
    }
    let data = pattern(20 << 20, 2);
    let tee = tee(fed_pipe(&data, 1 << 20));
    let readers = [Temper::Spliced, Temper::Eager].map(|temper| {
        let (writer, reader) = drained(temper);
        add(&tee, &writer);
        reader
    });
    ended(&tee);
    readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() == data));
}

#[test]
fn pipes_that_large_pieces_go_through_are_grown() {
    in_own_process("tee::pipes_that_large_pieces_go_through_are_grown", || {
        let (source, mut feed) = pipe().unwrap();
        let outputs = [(); 2].map(|()| drained(Temper::Eager));
        let tee = tee(&source);
        for (output, _) in &outputs {
            add(&tee, output);
        }
        tee.start().unwrap();
        let data = pattern(1 << 20, 1);
        for _ in 0..64 {
            feed.write_all(&data).unwrap();
        }
        for pipe in [&feed, &outputs[0].0, &outputs[1].0] {
            assert_eq!(engine::pipe_capacity(pipe.as_fd()).unwrap(), 1 << 20);
        }
        drop(feed);
        ended(&tee);
        for (output, got) in outputs {
            drop(output);
            assert_eq!(got.join().unwrap().len(), 64 << 20);
        }
    });
}

/// Pieces of one byte would soon fill the pipe that nobody reads: it holds no more than 16 pieces.
#[test]
fn after_a_small_piece_come_large_ones() {
    let [source, busy, idle] = [(); 3].map(|()| make_pipe(Some(64 << 10)).unwrap());
    let (mut feed, mut filler) = (source.1, busy.1);
    filler.write_all(&pattern(64 << 10, 1)).unwrap();
    let tee = tee(source.0);
    add(&tee, &filler);
    let idle_output = add(&tee, &idle.1);
    tee.start().unwrap();
    feed.write_all(&pattern(1, 2)).unwrap();
    eventually(|| idle_output.report().bytes_delivered == 1);
    feed.write_all(&pattern(30_000, 3)).unwrap();
    drop((feed, filler));
    drain(busy.0, Temper::Eager);
    eventually(|| idle_output.report().bytes_delivered == 30_001);
}

/// What an output is, in the random cases.
#[derive(Clone, Copy, Debug)]
enum Taker {
    Pipe {
        capacity: Option<usize>,
        reads: usize,
    },
    Socket {
        reads: usize,
    },
    File {
        appends: bool,
    },
    /// Its reader goes away after so many bytes.
    Mortal {
        after: usize,
    },
}

enum Arrived {
    Later(JoinHandle<Vec<u8>>),
    InFile(File),
    Prefix,
}

fn open_taker(taker: Taker) -> (OwnedFd, Arrived) {
    let read = |mut from: Box<dyn Read + Send>, piece_bytes: usize| {
        thread::spawn(move || {
            let mut got = Vec::new();
            let mut piece = vec![0; piece_bytes];
            loop {
                match from.read(&mut piece).unwrap() {
                    0 => return got,
                    bytes => got.extend_from_slice(&piece[..bytes]),
                }
            }
        })
    };
    match taker {
        Taker::Pipe { capacity, reads } => {
            let (reader, writer) = make_pipe(capacity).unwrap();
            (writer.into(), Arrived::Later(read(Box::new(reader), reads)))
        }
        Taker::Socket { reads } => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (ours.into(), Arrived::Later(read(Box::new(theirs), reads)))
        }
        Taker::File { appends } => {
            let file = unnamed_file();
            let flags = if appends { rustix::fs::OFlags::APPEND } else { rustix::fs::OFlags::empty() };
            rustix::fs::fcntl_setfl(&file, flags).unwrap();
            (file.try_clone().unwrap().into(), Arrived::InFile(file))
        }
        Taker::Mortal { after } => {
            let (mut reader, writer) = pipe().unwrap();
            thread::spawn(move || reader.read_exact(&mut vec![0; after]));
            (writer.into(), Arrived::Prefix)
        }
    }
}

fn any_taker() -> impl Strategy<Value = Taker> {
    let capacity = prop_oneof![Just(None), Just(Some(4096)), Just(Some(1 << 18))];
    let reads = prop_oneof![500usize..5000, 60_000usize..300_000];
    prop_oneof![
        4 => (capacity, reads.clone()).prop_map(|(capacity, reads)| Taker::Pipe { capacity, reads }),
        1 => reads.prop_map(|reads| Taker::Socket { reads }),
        1 => any::<bool>().prop_map(|appends| Taker::File { appends }),
        1 => (0usize..300_000).prop_map(|after| Taker::Mortal { after }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_output_that_lives_has_the_whole_stream(
        bytes in prop_oneof![0usize..20_000, 60_000usize..600_000],
        fed in prop_oneof![300usize..5000, 60_000usize..300_000],
        is_file in any::<bool>(),
        takers in prop::collection::vec(any_taker(), 1..6),
    ) {
        let data = pattern(bytes, 3);
        let tee = if is_file {
            let mut file = unnamed_file();
            file.write_all(&data).unwrap();
            file.rewind().unwrap();
            tee(file)
        } else {
            tee(fed_pipe(&data, fed))
        };
        let arrived: Vec<_> = takers.iter().map(|taker| {
            let (dst, arrived) = open_taker(*taker);
            (add(&tee, &dst), arrived)
        }).collect();
        ended(&tee);
        for (taker, (output, arrived)) in takers.iter().zip(arrived) {
            let report = output.report();
            let got = match arrived {
                Arrived::Later(reader) => reader.join().unwrap(),
                Arrived::InFile(mut file) => {
                    let mut got = Vec::new();
                    file.rewind().unwrap();
                    file.read_to_end(&mut got).unwrap();
                    got
                }
                Arrived::Prefix => {
                    prop_assert!(report.bytes_delivered + report.bytes_lost <= bytes as u64);
                    prop_assert!(matches!(report.end, Some(TeeEnd::Broken | TeeEnd::SourceEnded)));
                    continue;
                }
            };
            prop_assert!(got == data, "{:?}: {} of {} bytes", taker, got.len(), bytes);
            prop_assert_eq!(report.end, Some(TeeEnd::SourceEnded));
            prop_assert_eq!(report.bytes_delivered, bytes as u64);
        }
    }
}

#[test]
fn gone_reader_neither_stops_nor_shortens_another_output() {
    let data = pattern(8 << 20, 4);
    let tee = tee(fed_pipe(&data, 1 << 18));
    let (alive, reader) = drained(Temper::Eager);
    let lives = add(&tee, &alive);
    drop(alive);
    let mortals = [pipe().unwrap(), packet_pipe()].map(|(mut mortal, dying)| {
        thread::spawn(move || mortal.read_exact(&mut vec![0; 1 << 20]).unwrap());
        add(&tee, &dying)
    });
    ended(&tee);
    assert!(reader.join().unwrap() == data);
    assert_eq!(lives.report().end, Some(TeeEnd::SourceEnded));
    for report in mortals.map(|dies| dies.report()) {
        assert_eq!((report.end, report.bytes_delivered), (Some(TeeEnd::Broken), 1 << 20));
        let Some(Error::Broken { bytes_delivered, bytes_lost, .. }) = report.error else {
            panic!("{report:?}")
        };
        assert_eq!((bytes_delivered, bytes_lost), (report.bytes_delivered, report.bytes_lost));
    }
}

#[test]
fn source_keeps_its_bytes_if_no_output_is_left() {
    let (reader, mut writer) = pipe().unwrap();
    let tee = tee(&reader);
    let (theirs, dying) = pipe().unwrap();
    add(&tee, &dying);
    tee.start().unwrap();
    drop(theirs);
    let report = ended(&tee);
    assert_eq!((report.bytes, report.source_ended), (0, false));
    writer.write_all(b"frame").unwrap();
    let mut got = [0; 5];
    (&reader).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"frame");
    let refused = tee.add(&dying, TeePolicy::Block).unwrap_err();
    assert_eq!(refused, Error::Closed);
}

#[test]
fn stalled_output_is_evicted_and_the_others_continue() {
    let data = pattern(8 << 20, 5);
    let tee = tee(fed_pipe(&data, 1 << 18));
    let (alive, reader) = drained(Temper::Eager);
    let (stuck, stalled) = pipe().unwrap();
    let (silent, socket) = UnixStream::pair().unwrap();
    let lives = add(&tee, &alive);
    let evicted = [&OwnedFd::from(stalled), &OwnedFd::from(socket)]
        .map(|dst| tee.add(dst, evict_after_ms(50)).unwrap());
    drop(alive);
    ended(&tee);
    assert!(reader.join().unwrap() == data);
    assert_eq!(lives.report().end, Some(TeeEnd::SourceEnded));
    for output in evicted {
        let report = output.report();
        assert_eq!(report.end, Some(TeeEnd::Evicted));
        let Some(Error::Stalled { waited, bytes_pending }) = report.error else { panic!("{report:?}") };
        assert!(waited >= Duration::from_millis(50) && bytes_pending > 0, "{waited:?} {bytes_pending}");
        assert!(report.bytes_delivered > 0 && report.bytes_delivered < data.len() as u64);
    }
    drop((stuck, silent));
}

#[test]
fn slow_output_is_not_evicted() {
    let data = pattern(300_000, 6);
    let tee = tee(fed_pipe(&data, 1 << 18));
    let (mut reader, writer) = make_pipe(Some(4096)).unwrap();
    let slow = tee.add(&writer, evict_after_ms(300)).unwrap();
    drop(writer);
    let got = thread::spawn(move || {
        let mut got = Vec::new();
        let mut piece = [0; 1500];
        // A read frees no page of the pipe at first, and is progress all the same.
        loop {
            thread::sleep(Duration::from_millis(if got.len() < 9000 { 100 } else { 1 }));
            match reader.read(&mut piece).unwrap() {
                0 => return got,
                bytes => got.extend_from_slice(&piece[..bytes]),
            }
        }
    });
    ended(&tee);
    assert!(got.join().unwrap() == data);
    assert_eq!(slow.report().end, Some(TeeEnd::SourceEnded));
}

#[test]
fn every_output_waits_for_a_blocking_output() {
    let data = pattern(4 << 20, 7);
    let tee = tee(fed_pipe(&data, 1 << 18));
    let (eager, reader) = drained(Temper::Eager);
    let (mut late, blocking) = pipe().unwrap();
    let (quick, blocks) = (add(&tee, &eager), add(&tee, &blocking));
    drop((eager, blocking));
    tee.start().unwrap();
    eventually(|| quick.report().bytes_delivered >= 1 << 20);
    assert_eq!(tee.wait_for(Some(Duration::from_millis(50))).map(|_| ()), None);
    assert!(quick.report().bytes_delivered < data.len() as u64, "it is held back");
    assert_eq!(blocks.report().end, None);
    let mut got = Vec::new();
    late.read_to_end(&mut got).unwrap();
    assert!(got == data && reader.join().unwrap() == data);
}

#[test]
fn late_output_gets_the_bytes_after_it_was_added() {
    let (reader, mut writer) = pipe().unwrap();
    let tee = tee(&reader);
    let (first, mut all) = pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let (second, mut some) = pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    add(&tee, &first);
    tee.start().unwrap();
    writer.write_all(b"before, ").unwrap();
    all.read_exact(&mut [0; 8]).unwrap();
    let late = add(&tee, &second);
    eventually(|| late.report().start == 8);
    writer.write_all(b"after").unwrap();
    drop((writer, first, second));
    ended(&tee);
    let (mut rest, mut tail) = (String::new(), String::new());
    all.read_to_string(&mut rest).unwrap();
    some.read_to_string(&mut tail).unwrap();
    assert_eq!((rest.as_str(), tail.as_str()), ("after", "after"));
}

#[test]
fn added_and_removed_outputs_get_whole_runs_of_the_stream() {
    let data = pattern(20 << 20, 8);
    let tee = tee(fed_pipe(&data, 1 << 18));
    let (steady, reader) = drained(Temper::Chunky(100_000));
    let stays = add(&tee, &steady);
    drop(steady);
    tee.start().unwrap();
    let mut visitors = Vec::new();
    while stays.report().end.is_none() && visitors.len() < 200 {
        let (writer, reader) = drained(Temper::Chunky(30_000));
        match tee.add(&writer, TeePolicy::Block) {
            Ok(output) => visitors.push((output.clone(), reader)),
            Err(error) => assert_eq!(error, Error::Closed),
        }
        drop(writer);
        thread::sleep(Duration::from_micros(200));
        if let Some((output, _)) = visitors.iter().rev().nth(2) {
            tee.remove(output);
        }
    }
    ended(&tee);
    assert!(reader.join().unwrap() == data);
    for (output, reader) in visitors {
        let report = output.report();
        let got = reader.join().unwrap();
        assert!(matches!(report.end, Some(TeeEnd::Removed | TeeEnd::SourceEnded)), "{report:?}");
        assert_eq!(report.bytes_delivered, got.len() as u64);
        let start = report.start as usize;
        assert!(data[start..start + got.len()] == got, "not the run that begins at {start}");
    }
}

#[test]
fn removed_output_keeps_the_bytes_it_had_taken() {
    let (reader, mut writer) = pipe().unwrap();
    let tee = tee(&reader);
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    let mut copy = unnamed_file();
    let (socket, file) = (add(&tee, &ours), add(&tee, &copy));
    drop(ours);
    tee.start().unwrap();
    writer.write_all(b"both").unwrap();
    eventually(|| file.report().bytes_delivered == 4 && socket.report().bytes_delivered == 4);
    tee.remove(&socket);
    eventually(|| socket.report().end == Some(TeeEnd::Removed));
    writer.write_all(b", one").unwrap();
    drop(writer);
    ended(&tee);
    let (mut first, mut second) = (String::new(), String::new());
    theirs.read_to_string(&mut first).unwrap();
    copy.rewind().unwrap();
    copy.read_to_string(&mut second).unwrap();
    assert_eq!((first.as_str(), second.as_str()), ("both", "both, one"));
    assert_eq!((file.report().method(), file.report().reason()), ("tee, splice", OutputReason::NotAPipe));
}

#[test]
fn a_full_disk_ends_one_output_only() {
    let data = pattern(1 << 20, 9);
    let tee = tee(fed_pipe(&data, 1 << 16));
    let (alive, reader) = drained(Temper::Eager);
    let full = File::options().write(true).open("/dev/full").unwrap();
    add(&tee, &alive);
    let fails = add(&tee, &full);
    drop(alive);
    ended(&tee);
    assert!(reader.join().unwrap() == data);
    let report = fails.report();
    assert_eq!((report.end, report.bytes_delivered), (Some(TeeEnd::Failed), 0));
    assert!(report.bytes_lost > 0 && matches!(report.error, Some(Error::Io { .. })), "{report:?}");
}

#[test]
fn a_tee_to_nobody_ends_at_once_and_takes_nothing() {
    let report = ended(&tee(fed_pipe(b"frame", 5)));
    assert_eq!((report.bytes, report.source_ended), (0, false));
}

#[test]
fn neither_the_source_nor_an_output_is_added_twice() {
    let (reader, writer) = pipe().unwrap();
    let tee = tee(&reader);
    let refused = tee.add(&writer, TeePolicy::Block).unwrap_err();
    assert!(matches!(refused, Error::Unsuitable(_)), "{refused:?}");
    let (_theirs, ours) = pipe().unwrap();
    add(&tee, &ours);
    let refused = tee.add(ours.try_clone().unwrap(), TeePolicy::Block).unwrap_err();
    assert!(matches!(refused, Error::Unsuitable(_)), "{refused:?}");
}

#[test]
fn cancelled_tee_ends_and_reports_it() {
    let (reader, _writer) = pipe().unwrap();
    let tee = tee(&reader);
    let (theirs, ours) = pipe().unwrap();
    let output = add(&tee, &ours);
    tee.start().unwrap();
    tee.cancel();
    let failure = tee.wait_for(Some(PATIENCE)).expect("it ends").unwrap_err();
    assert_eq!(failure, Error::Aborted { bytes_lost: 0 });
    assert_eq!(output.report().end, Some(TeeEnd::Cancelled));
    drop((ours, theirs));
}

#[test]
fn threads_that_wait_for_an_unstarted_tee_start_it_once() {
    for _ in 0..200 {
        let (writer, reader) = drained(Temper::Eager);
        let tee = tee(fed_pipe(b"frame", 5));
        add(&tee, writer);
        thread::scope(|scope| {
            let waits: Vec<_> = (0..3).map(|_| scope.spawn(|| ended(&tee).bytes)).collect();
            assert!(waits.into_iter().all(|wait| wait.join().unwrap() == 5));
        });
        assert_eq!(reader.join().unwrap(), b"frame");
    }
}

#[test]
fn the_policy_of_a_tee_can_be_read() {
    let policy = ThreadPolicy::default().priority(Priority::Lowest);
    let (reader, writer) = pipe().unwrap();
    let tee = Tee::new(&reader, Some(policy)).unwrap();
    assert_eq!(tee.applied_policy(), None);
    drop(writer);
    tee.wait().unwrap();
    assert_eq!(tee.applied_policy().unwrap().scheduling_class, SchedulingClass::Other);
}
