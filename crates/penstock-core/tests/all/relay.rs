//! Relays between all kinds of ends, against a plain loop of reads and writes, and through every fault they must survive.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use penstock_core::{
    Error, Method, MethodReason, Relay, RelayError, RelayMode, RelayOptions, RelayReport, engine, make_pipe,
    relay, relay_in_background,
};
use penstock_cpu::{Priority, ThreadPolicy};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use crate::common::{cases, close_last_reader, in_own_process, packet_pipe, pattern, unnamed_file};

/// What a source or a destination can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    File,
    AppendingFile,
    Pipe,
    UnixSocket,
    TcpSocket,
}

const SOURCES: [End; 4] = [End::File, End::Pipe, End::UnixSocket, End::TcpSocket];
const DESTINATIONS: [End; 5] = [End::File, End::AppendingFile, End::Pipe, End::UnixSocket, End::TcpSocket];

/// How the bytes get from one to the other.
#[derive(Clone, Copy, Debug)]
enum How {
    Blocking,
    InSlices,
    PieceByPiece,
    InBackground,
}

#[derive(Clone, Debug)]
struct Case {
    source: End,
    destination: End,
    how: How,
    options: RelayOptions,
    bytes: usize,
    capacities: [Option<usize>; 2],
    fed_bytes: usize,
    drained_bytes: usize,
    non_blocking: [bool; 2],
    is_interrupted: bool,
}

/// What came of a case: everything that an observer can tell.
#[derive(Debug, PartialEq)]
struct Outcome {
    relayed: u64,
    arrived: Vec<u8>,
    left: Vec<u8>,
}

fn smoke(source: End, destination: End) -> Case {
    Case {
        source,
        destination,
        how: How::Blocking,
        options: RelayOptions::default(),
        bytes: 3_000_001,
        capacities: [None, None],
        fed_bytes: 70_000,
        drained_bytes: 50_000,
        non_blocking: [false, false],
        is_interrupted: false,
    }
}

/// The source with its bytes, and who feeds them.
fn source(case: &Case, data: &[u8]) -> (OwnedFd, Option<JoinHandle<()>>) {
    let data = data.to_vec();
    let fed_bytes = case.fed_bytes;
    let feed = move |mut to: Box<dyn Write + Send>| {
        thread::spawn(move || data.chunks(fed_bytes).for_each(|piece| to.write_all(piece).unwrap()))
    };
    match case.source {
        End::File | End::AppendingFile => {
            let mut file = unnamed_file();
            file.write_all(&pattern(case.bytes, 1)).unwrap();
            file.rewind().unwrap();
            (file.into(), None)
        }
        End::Pipe => {
            let (reader, writer) = make_pipe(case.capacities[0]).unwrap();
            (reader.into(), Some(feed(Box::new(writer))))
        }
        End::UnixSocket => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (ours.into(), Some(feed(Box::new(theirs))))
        }
        End::TcpSocket => {
            let (ours, theirs) = tcp_pair();
            (ours.into(), Some(feed(Box::new(theirs))))
        }
    }
}

/// The receiver's window is small, so each packet has its overhead for few bytes.
fn tcp_pair_of_small_packets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

type Drain = Box<dyn FnOnce() -> Vec<u8>>;

/// The destination, and how to learn what arrived there once it is closed.
fn destination(case: &Case) -> (OwnedFd, Drain) {
    let drained_bytes = case.drained_bytes;
    let drain = move |from: Box<dyn Read + Send>| {
        let reader = thread::spawn(move || read_all(from, drained_bytes));
        Box::new(move || reader.join().unwrap()) as Drain
    };
    match case.destination {
        End::File | End::AppendingFile => {
            let file = unnamed_file();
            if case.destination == End::AppendingFile {
                rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND).unwrap();
            }
            let mut again = file.try_clone().unwrap();
            let look = move || {
                let mut got = Vec::new();
                again.rewind().unwrap();
                again.read_to_end(&mut got).unwrap();
                got
            };
            (file.into(), Box::new(look))
        }
        End::Pipe => {
            let (reader, writer) = make_pipe(case.capacities[1]).unwrap();
            (writer.into(), drain(Box::new(reader)))
        }
        End::UnixSocket => {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (ours.into(), drain(Box::new(theirs)))
        }
        End::TcpSocket => {
            let (ours, theirs) = tcp_pair();
            (ours.into(), drain(Box::new(theirs)))
        }
    }
}

fn read_all(mut from: impl Read, piece_bytes: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = vec![0; piece_bytes];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return got,
            Ok(bytes) => got.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn set_non_blocking(fd: &OwnedFd, is_non_blocking: bool) {
    rustix::io::ioctl_fionbio(fd, is_non_blocking).unwrap();
}

/// Runs a case by the given mover and looks at everything afterwards.
fn run(case: &Case, mover: impl FnOnce(&OwnedFd, &OwnedFd) -> u64) -> Outcome {
    let data = pattern(case.bytes, 1);
    let (src, feeder) = source(case, &data);
    let (dst, arrived) = destination(case);
    for (fd, is_non_blocking) in [&src, &dst].into_iter().zip(case.non_blocking) {
        set_non_blocking(fd, is_non_blocking);
    }
    let relayed = mover(&src, &dst);
    set_non_blocking(&src, false);
    drop(dst);
    let left = read_all(File::from(src), 1 << 20);
    if let Some(feeder) = feeder {
        feeder.join().unwrap();
    }
    Outcome { relayed, arrived: arrived(), left }
}

fn by_penstock(case: &Case) -> Outcome {
    run(case, |src, dst| {
        let storm = case.is_interrupted.then(Storm::begin);
        let relayed = match case.how {
            How::Blocking => relay(src, dst, &case.options),
            How::InSlices => in_slices(src, dst, &case.options),
            How::PieceByPiece => piece_by_piece(src, dst, &case.options),
            How::InBackground => relay_in_background(src, dst, &case.options, None).unwrap().wait(),
        };
        drop(storm);
        relayed.unwrap().bytes
    })
}

fn in_slices(src: &OwnedFd, dst: &OwnedFd, options: &RelayOptions) -> Result<RelayReport, RelayError> {
    let mut relay = Relay::new(src, dst, options)?;
    loop {
        if let Some(outcome) = relay.run(Some(Duration::from_micros(50))) {
            return outcome;
        }
    }
}

fn piece_by_piece(src: &OwnedFd, dst: &OwnedFd, options: &RelayOptions) -> Result<RelayReport, RelayError> {
    let mut relay = Relay::new(src, dst, options)?;
    for piece in 1.. {
        let wanted = piece * 7777;
        let relayed = loop {
            if let Some(outcome) = relay.run_to(wanted, None) {
                break outcome?;
            }
        };
        assert!(relayed.bytes <= wanted);
        if relayed.bytes < wanted {
            break;
        }
    }
    relay.close()
}

/// The oracle: read(2) and write(2), waiting where they would block.
fn by_hand(case: &Case) -> Outcome {
    run(case, |src, dst| {
        let mut left = case.options.count.unwrap_or(u64::MAX);
        let mut moved = 0;
        let mut piece = vec![0; 10_000];
        let mut offset = case.options.offset;
        while left > 0 {
            let wanted = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            let got = match offset {
                Some(offset) => rustix::io::pread(src, &mut piece[..wanted], offset).unwrap(),
                None => patiently(src, PollFlags::IN, || rustix::io::read(src, &mut piece[..wanted])),
            };
            let mut rest = &piece[..got];
            while !rest.is_empty() {
                rest = &rest[patiently(dst, PollFlags::OUT, || rustix::io::write(dst, rest))..];
            }
            offset = offset.map(|offset| offset + got as u64);
            moved += got as u64;
            left -= got as u64;
            if got == 0 {
                break;
            }
        }
        moved
    })
}

fn patiently(fd: &OwnedFd, events: PollFlags, mut call: impl FnMut() -> rustix::io::Result<usize>) -> usize {
    loop {
        match call() {
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(fd, events)], None).unwrap();
            }
            answer => return answer.unwrap(),
        }
    }
}

/// Signals that interrupt the calling thread's system calls while it lives.
struct Storm {
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<()>>,
}

extern "C" fn do_nothing(_signal: i32) {}

impl Storm {
    fn begin() -> Self {
        // SAFETY: the handler does nothing, the struct is filled as sigaction(2) wants it: without SA_RESTART.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = do_nothing as extern "C" fn(i32) as usize;
            libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
        }
        // SAFETY: names the calling thread.
        let target = unsafe { libc::pthread_self() };
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let sender = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                // SAFETY: the target joins this thread before it ends.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                thread::sleep(Duration::from_micros(100));
            }
        });
        Self { is_over, sender: Some(sender) }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.sender.take().unwrap().join().unwrap();
    }
}

#[test]
fn smoke_every_pair_of_kinds_moves_every_byte() {
    for source in SOURCES {
        for destination in DESTINATIONS {
            let case = smoke(source, destination);
            let outcome = by_penstock(&case);
            assert_eq!(outcome.relayed, case.bytes as u64, "{case:?}");
            assert!(outcome.arrived == pattern(case.bytes, 1), "{case:?}: other bytes arrived");
            assert!(outcome.left.is_empty(), "{case:?}");
        }
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    let capacity = prop_oneof![Just(None), Just(Some(4096)), Just(Some(65_536)), Just(Some(1 << 20))];
    let piece = prop_oneof![1usize..200, 4000usize..5000, 60_000usize..300_000];
    let bytes = prop_oneof![3 => 0usize..20_000, 1 => 60_000usize..400_000];
    let count = prop_oneof![
        2 => Just(None),
        2 => (0u64..20_000).prop_map(Some),
        1 => (0u64..500_000).prop_map(Some),
        1 => Just(Some(u64::MAX)),
    ];
    let how = prop::sample::select(&[How::Blocking, How::InSlices, How::PieceByPiece, How::InBackground][..]);
    let mode = prop_oneof![4 => Just(RelayMode::Auto), 1 => Just(RelayMode::ReadWrite)];
    let ends = (prop::sample::select(&SOURCES[..]), prop::sample::select(&DESTINATIONS[..]));
    let offset = prop_oneof![Just(None), (0u64..500_000).prop_map(Some)];
    let sizes = (bytes, [capacity.clone(), capacity], [piece.clone(), piece]);
    let flags = (any::<[bool; 2]>(), prop::bool::weighted(0.3));
    (ends, how, mode, count, offset, sizes, flags).prop_map(
        |((source, destination), how, mode, count, offset, sizes, flags)| {
            let (bytes, capacities, [fed_bytes, drained_bytes]) = sizes;
            let offset = if source == End::File { offset } else { None };
            let mut options = to_end().mode(mode);
            (options.count, options.offset) = (count, offset);
            let (non_blocking, is_interrupted) = flags;
            Case {
                source,
                destination,
                how,
                options,
                bytes,
                capacities,
                fed_bytes: fed_bytes.max(bytes / 1000 + 1),
                drained_bytes: drained_bytes.max(bytes / 1000 + 1),
                non_blocking,
                is_interrupted,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(3000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_case_ends_as_the_plain_loop_does(case in any_case()) {
        let (ours, plain) = (by_penstock(&case), by_hand(&case));
        prop_assert_eq!(ours.relayed, plain.relayed);
        prop_assert!(ours.arrived == plain.arrived, "other bytes arrived: {} for {}", ours.arrived.len(), plain.arrived.len());
        prop_assert!(ours.left == plain.left, "other bytes are left: {} for {}", ours.left.len(), plain.left.len());
    }
}

fn to_end() -> RelayOptions {
    RelayOptions::default()
}

fn file_of(data: &[u8]) -> File {
    let mut file = unnamed_file();
    file.write_all(data).unwrap();
    file.rewind().unwrap();
    file
}

fn filled_pipe(data: &[u8]) -> PipeReader {
    let (reader, mut writer) = pipe().unwrap();
    let data = data.to_vec();
    thread::spawn(move || writer.write_all(&data));
    reader
}

fn drained_pipe() -> (PipeWriter, JoinHandle<Vec<u8>>) {
    let (reader, writer) = pipe().unwrap();
    (writer, thread::spawn(move || read_all(reader, 1 << 18)))
}

fn position(mut file: &File) -> u64 {
    file.stream_position().unwrap()
}

#[test]
fn the_method_is_the_best_that_the_pair_allows() {
    let method = |source, destination, mode| {
        let case = smoke(source, destination);
        let (src, feeder) = source_of(&case);
        let (dst, arrived) = self::destination(&case);
        let relayed = relay(&src, &dst, &to_end().mode(mode)).unwrap();
        drop(dst);
        arrived();
        feeder.map(JoinHandle::join);
        (relayed.method, relayed.reason)
    };
    use End::{AppendingFile, File, Pipe, TcpSocket, UnixSocket};
    use RelayMode::{Auto, ReadWrite};
    assert_eq!(method(File, Pipe, Auto), (Method::Splice, MethodReason::APipe));
    assert_eq!(method(Pipe, Pipe, Auto), (Method::Splice, MethodReason::APipe));
    assert_eq!(method(Pipe, TcpSocket, Auto), (Method::Splice, MethodReason::APipe));
    assert_eq!(method(File, TcpSocket, Auto), (Method::SendFile, MethodReason::SourceIsFile));
    assert_eq!(method(UnixSocket, File, Auto), (Method::SpliceThroughPipe, MethodReason::NeitherIsPipe));
    assert_eq!(method(TcpSocket, UnixSocket, Auto), (Method::SpliceThroughPipe, MethodReason::NeitherIsPipe));
    assert_eq!(method(Pipe, AppendingFile, Auto), (Method::ReadWrite, MethodReason::Appends));
    assert_eq!(method(Pipe, Pipe, ReadWrite), (Method::ReadWrite, MethodReason::Asked));
    let (copied, reason) = method(File, File, Auto);
    assert!(
        (copied, reason) == (Method::CopyFileRange, MethodReason::BothAreFiles) || copied == Method::SendFile,
        "{copied:?} {reason:?}"
    );
}

fn source_of(case: &Case) -> (OwnedFd, Option<JoinHandle<()>>) {
    source(case, &pattern(case.bytes, 1))
}

#[test]
fn a_source_that_ends_early_is_no_error() {
    let (writer, arrived) = drained_pipe();
    let relayed = relay(filled_pipe(b"short"), &writer, &to_end().count(1000)).unwrap();
    drop(writer);
    assert_eq!((relayed.bytes, relayed.source_ended), (5, true));
    assert_eq!(arrived.join().unwrap(), b"short");
}

#[test]
fn a_reader_that_goes_is_an_error_with_the_bytes_and_no_signal() {
    let test = "relay::a_reader_that_goes_is_an_error_with_the_bytes_and_no_signal";
    in_own_process(test, || {
        // SAFETY: no other test runs in this process. By default, SIGPIPE ends it, which must not happen.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        a_reader_goes(pipe().unwrap());
        a_reader_goes(packet_pipe());
    });
}

fn a_reader_goes((mut reader, writer): (PipeReader, PipeWriter)) {
    let taken = thread::spawn(move || {
        let mut piece = vec![0; 24 << 12];
        reader.read_exact(&mut piece).unwrap();
    });
    let file = file_of(&pattern(8 << 20, 2));
    let failure = relay(&file, &writer, &to_end()).unwrap_err();
    taken.join().unwrap();
    let Error::Broken { os_error, bytes_delivered, bytes_lost } = failure.error else {
        panic!("{failure:?}")
    };
    assert_eq!(os_error, libc::EPIPE);
    assert_eq!(bytes_delivered, 24 << 12);
    assert_eq!(bytes_delivered + bytes_lost, failure.relayed.bytes);
    assert_eq!(position(&file), failure.relayed.bytes);
}

#[test]
fn pending_signal_stays_pending() {
    // SAFETY: all sets are initialized by sigemptyset before they are used.
    unsafe {
        let mut set = std::mem::zeroed();
        let mut pending = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE);
        let (reader, writer) = pipe().unwrap();
        close_last_reader(reader, &writer);
        assert!(relay(file_of(b"frame"), &writer, &to_end()).is_err());
        libc::sigpending(&mut pending);
        assert_eq!(libc::sigismember(&pending, libc::SIGPIPE), 1);
    }
}

#[test]
fn a_dead_reader_is_noticed_while_the_source_is_quiet() {
    let (quiet, _kept_open) = pipe().unwrap();
    let (reader, writer) = pipe().unwrap();
    let relay = thread::spawn(move || relay(quiet, writer, &to_end()));
    drop(reader);
    let failure = relay.join().unwrap().unwrap_err();
    assert!(matches!(failure.error, Error::Broken { bytes_delivered: 0, bytes_lost: 0, .. }), "{failure:?}");
}

#[test]
fn a_stalled_destination_is_an_error_and_nothing_is_lost() {
    let options = to_end().timeout(Duration::from_millis(30));
    let data = pattern(6 << 20, 3);
    for destination in [End::Pipe, End::UnixSocket, End::TcpSocket] {
        let case = smoke(End::File, destination);
        let file = file_of(&data);
        let (dst, mut theirs): (OwnedFd, Box<dyn Read>) = match case.destination {
            End::Pipe => pipe().map(|(reader, writer)| (writer.into(), Box::new(reader) as _)).unwrap(),
            End::UnixSocket => {
                UnixStream::pair().map(|(ours, theirs)| (ours.into(), Box::new(theirs) as _)).unwrap()
            }
            _ => {
                let (ours, theirs) = tcp_pair();
                (ours.into(), Box::new(theirs))
            }
        };
        let failure = relay(&file, &dst, &options).unwrap_err();
        let Error::Stalled { bytes_pending, .. } = failure.error else { panic!("{failure:?}") };
        let moved = failure.relayed.bytes;
        assert!(moved > 0 && moved < data.len() as u64);
        assert_eq!(bytes_pending, data.len() as u64 - moved);
        assert_eq!(position(&file), moved, "what was not moved is still to be read");
        // Whoever goes on from there loses nothing and repeats nothing.
        let rest = thread::spawn(move || relay(&file, &dst, &to_end()).unwrap().bytes);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert_eq!(rest.join().unwrap(), data.len() as u64 - moved);
        assert!(got == data, "{destination:?}");
    }
}

/// A reader that takes odd amounts and then nothing: a piece that did not fit would wait in the kernel, where no timeout ends it.
#[test]
fn relay_of_a_file_to_a_full_socket_times_out_instead_of_blocking() {
    let (data, tcp, narrow) = (pattern(8 << 20, 5), tcp_pair(), tcp_pair_of_small_packets());
    let pairs: [(OwnedFd, OwnedFd); 3] = [
        UnixStream::pair().map(|(ours, theirs)| (ours.into(), theirs.into())).unwrap(),
        (tcp.0.into(), tcp.1.into()),
        (narrow.0.into(), narrow.1.into()),
    ];
    for (ours, theirs) in pairs {
        let (done, stalls) = mpsc::channel();
        let file = file_of(&data);
        thread::spawn(move || {
            for round in 0..60 {
                let options = to_end().offset(round * 1357).timeout(Duration::from_millis(20));
                done.send(relay(&file, &ours, &options).unwrap_err().error).unwrap();
                rustix::io::read(&theirs, &mut vec![0; 5_000 * (round as usize % 50)][..]).unwrap();
            }
        });
        for round in 0..60 {
            let stall = stalls.recv_timeout(Duration::from_secs(10)).expect("it waits in the kernel");
            assert!(matches!(stall, Error::Stalled { .. }), "{round} {stall:?}");
        }
    }
}

#[test]
fn a_stalled_socket_loses_nothing_that_came_from_a_pipe() {
    let data = pattern(6 << 20, 4);
    let reader = filled_pipe(&data);
    let (ours, mut theirs) = tcp_pair();
    let options = to_end().timeout(Duration::from_millis(30));
    let failure = relay(&reader, &ours, &options).unwrap_err();
    assert!(matches!(failure.error, Error::Stalled { .. }), "{failure:?}");
    let rest = thread::spawn(move || {
        relay(&reader, &ours, &to_end()).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    rest.join().unwrap();
    assert!(got == data);
}

#[test]
fn a_full_destination_does_not_keep_the_end_of_the_source_from_being_seen() {
    let options = to_end().timeout(Duration::from_secs(30));
    for source in [End::File, End::Pipe, End::UnixSocket] {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        while (&ours).write(&[0; 4096]).is_ok() {}
        let case = Case { bytes: 0, ..smoke(source, End::UnixSocket) };
        let (src, feeder) = source_of(&case);
        feeder.map(JoinHandle::join);
        let relayed = relay(&src, &ours, &options).unwrap();
        assert_eq!((relayed.bytes, relayed.source_ended), (0, true), "{source:?}");
    }
}

#[test]
fn a_quiet_source_is_a_stall_too() {
    let (quiet, _kept_open) = pipe().unwrap();
    let options = to_end().timeout(Duration::from_millis(20));
    let failure = relay(quiet, unnamed_file(), &options).unwrap_err();
    assert!(matches!(failure.error, Error::Stalled { bytes_pending: 0, .. }), "{failure:?}");
}

#[test]
fn relay_of_no_bytes_ends_at_once() {
    let (quiet, _kept_open) = pipe().unwrap();
    let none = to_end().count(0);
    assert_eq!(relay(quiet, unnamed_file(), &none).unwrap().bytes, 0);
    let ended = relay(unnamed_file(), unnamed_file(), &to_end()).unwrap();
    assert_eq!((ended.bytes, ended.source_ended), (0, true));
}

#[test]
fn an_offset_leaves_the_position_where_it_is() {
    let mut file = file_of(&pattern(1000, 5));
    file.seek(SeekFrom::Start(7)).unwrap();
    let (mut reader, writer) = pipe().unwrap();
    let options = to_end().offset(100).count(50);
    relay(&file, &writer, &options).unwrap();
    drop(writer);
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(got, pattern(1000, 5)[100..150]);
    assert_eq!(position(&file), 7);
}

#[test]
fn an_offset_is_for_files() {
    let (reader, _writer) = pipe().unwrap();
    let options = to_end().offset(1);
    let failure = relay(reader, unnamed_file(), &options).unwrap_err();
    assert!(matches!(failure.error, Error::Unsuitable(_)), "{failure:?}");
    let options = to_end().offset(u64::MAX);
    let failure = relay(unnamed_file(), unnamed_file(), &options).unwrap_err();
    assert!(matches!(failure.error, Error::Unsuitable(_)), "{failure:?}");
}

#[test]
fn more_than_four_gib_are_counted_right() {
    // In memory, a hole costs neither memory nor time: the pipe gets the kernel's one page of zeros.
    let file = File::from(memfd_create("hole", MemfdFlags::CLOEXEC).unwrap());
    let size = (4 << 30) + 12_345;
    file.set_len(size).unwrap();
    let (reader, writer) = pipe().unwrap();
    let counted = thread::spawn(move || relay(reader, null(), &to_end()).unwrap().bytes);
    let relayed = relay(&file, &writer, &to_end()).unwrap();
    drop(writer);
    assert_eq!((relayed.bytes, relayed.source_ended), (size, true));
    assert_eq!(counted.join().unwrap(), size);
    assert_eq!(position(&file), size);
}

/// A file with data in these blocks of 64 KiB, and holes elsewhere.
fn sparse(blocks: &[bool]) -> (File, Vec<u8>) {
    let (mut file, mut content) = (unnamed_file(), Vec::new());
    for (number, has_data) in blocks.iter().enumerate() {
        let block = if *has_data { pattern(1 << 16, number as u64) } else { vec![0; 1 << 16] };
        if *has_data {
            file.seek(SeekFrom::Start((number << 16) as u64)).unwrap();
            file.write_all(&block).unwrap();
        }
        content.extend(block);
    }
    file.set_len(content.len() as u64).unwrap();
    file.rewind().unwrap();
    (file, content)
}

#[test]
fn holes_of_a_file_take_no_room_in_another() {
    let (file, content) = sparse(&[vec![false; 100], vec![true], vec![false; 100]].concat());
    for (mode, is_appending) in
        [(RelayMode::Auto, false), (RelayMode::ReadWrite, false), (RelayMode::Auto, true)]
    {
        let copy = unnamed_file();
        if is_appending {
            rustix::fs::fcntl_setfl(&copy, rustix::fs::OFlags::APPEND).unwrap();
        }
        let relayed = relay(&file, &copy, &to_end().offset(0).mode(mode)).unwrap();
        assert_eq!((relayed.bytes, position(&file)), (content.len() as u64, 0));
        let room = rustix::fs::fstat(&copy).unwrap().st_blocks * 512;
        assert_eq!(room < 1 << 20, !is_appending, "{room} bytes, by {mode:?}");
        assert!(read_back(&copy) == content);
    }
}

fn read_back(mut file: &File) -> Vec<u8> {
    file.rewind().unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    content
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn a_copy_with_holes_has_the_bytes_of_one_without(
        blocks in prop::collection::vec(any::<bool>(), 1..12),
        before in 0..400_000_usize,
        to in 0..400_000_usize,
        offset in prop::option::of(0..800_000_u64),
        count in prop::option::of(0..800_000_u64),
        sliced in any::<bool>(),
    ) {
        let (source, content) = sparse(&blocks);
        let from = offset.map_or(0, |offset| (offset as usize).min(content.len()));
        let until = count.map_or(content.len(), |count| content.len().min(from + count as usize));
        let mut expected = vec![7; before];
        if until > from {
            expected.resize(before.max(to + until - from), 0);
            expected[to..to + until - from].copy_from_slice(&content[from..until]);
        }
        let mut copy = file_of(&vec![7; before]);
        copy.seek(SeekFrom::Start(to as u64)).unwrap();
        let mut options = to_end();
        (options.offset, options.count) = (offset, count);
        let relayed = if sliced {
            in_slices(&source.try_clone().unwrap().into(), &copy.try_clone().unwrap().into(), &options)
        } else {
            relay(&source, &copy, &options)
        };
        prop_assert_eq!(relayed.unwrap().bytes, (until - from) as u64);
        prop_assert_eq!(position(&copy), (to + until - from) as u64);
        prop_assert_eq!(position(&source), if offset.is_some() { 0 } else { until as u64 });
        prop_assert!(read_back(&copy) == expected);
    }
}

fn null() -> File {
    OpenOptions::new().write(true).open("/dev/null").unwrap()
}

#[test]
fn relay_accepts_devices() {
    let zero = File::open("/dev/zero").unwrap();
    let count = to_end().count(1_000_003);
    assert_eq!(relay(&zero, null(), &count).unwrap().bytes, 1_000_003);
    let (writer, arrived) = drained_pipe();
    assert_eq!(relay(&zero, &writer, &count).unwrap().method, Method::Splice);
    drop(writer);
    assert_eq!(arrived.join().unwrap(), vec![0; 1_000_003]);
}

#[test]
fn files_without_a_size_are_relayed_to_their_end() {
    let copy = unnamed_file();
    let relayed = relay(File::open("/proc/self/status").unwrap(), &copy, &to_end()).unwrap();
    assert!(relayed.bytes > 100, "{relayed:?}");
    assert_eq!(copy.metadata().unwrap().len(), relayed.bytes);
}

#[test]
fn a_file_that_grows_is_read_to_its_new_end() {
    let (mut reader, writer) = pipe().unwrap();
    let mut file = file_of(&pattern(2 << 20, 6));
    let mut growing = file.try_clone().unwrap();
    let relay = thread::spawn(move || {
        relay(&file, &writer, &to_end()).map(|relayed| {
            file.rewind().unwrap();
            relayed.bytes
        })
    });
    let mut got = vec![0; 1000];
    reader.read_exact(&mut got).unwrap(); // under way: the pipe holds less than the file
    let more = pattern(100_000, 7);
    rustix::io::pwrite(&mut growing, &more, 2 << 20).unwrap();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(relay.join().unwrap().unwrap(), (2 << 20) + 100_000);
    assert!(got[..2 << 20] == pattern(2 << 20, 6) && got[2 << 20..] == more);
}

#[test]
fn a_file_that_is_cut_ends_where_it_was_cut() {
    let (mut reader, writer) = pipe().unwrap();
    let file = file_of(&pattern(8 << 20, 8));
    let cut = file.try_clone().unwrap();
    let relay = thread::spawn(move || relay(&file, &writer, &to_end()));
    let mut got = vec![0; 1000];
    reader.read_exact(&mut got).unwrap();
    cut.set_len(5 << 20).unwrap();
    reader.read_to_end(&mut got).unwrap();
    let relayed = relay.join().unwrap().unwrap();
    assert_eq!((relayed.bytes, relayed.source_ended), (5 << 20, true));
    assert!(got == pattern(8 << 20, 8)[..5 << 20]);
}

#[test]
fn a_pipe_or_file_is_not_relayed_to_itself() {
    let (reader, writer) = pipe().unwrap();
    let failure = relay(&reader, &writer, &to_end()).unwrap_err();
    assert!(matches!(failure.error, Error::Unsuitable(_)), "{failure:?}");
    let file = file_of(b"frames");
    let failure = relay(&file, &file, &to_end()).unwrap_err();
    assert!(matches!(failure.error, Error::Unsuitable(_)), "{failure:?}");
    assert_eq!(file.metadata().unwrap().len(), 6);
}

#[test]
fn a_range_of_a_file_is_relayed_to_another_of_the_same() {
    let mut file = file_of(&pattern(1000, 9));
    file.seek(SeekFrom::End(0)).unwrap();
    let apart = to_end().offset(10).count(100);
    assert_eq!(relay(&file, &file, &apart).unwrap().bytes, 100);
    let mut got = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut got).unwrap();
    assert!(got[1000..] == pattern(1000, 9)[10..110]);
    file.seek(SeekFrom::Start(50)).unwrap();
    let failure = relay(&file, &file, &apart).unwrap_err();
    assert!(matches!(failure.error, Error::Unsuitable(_)), "they meet: {failure:?}");
}

#[test]
fn a_socket_may_be_relayed_to_itself() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let echo = thread::spawn(move || relay(&ours, &ours, &to_end()).unwrap().bytes);
    theirs.write_all(b"frame").unwrap();
    let mut got = [0; 5];
    theirs.read_exact(&mut got).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&got, echo.join().unwrap()), (b"frame", 5));
}

#[test]
fn a_full_disk_is_an_error_with_the_bytes() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let file = file_of(&pattern(100_000, 10));
    let failure = relay(&file, &full, &to_end()).unwrap_err();
    assert!(matches!(failure.error, Error::Io { os_error: libc::ENOSPC, bytes_lost: 0, .. }), "{failure:?}");
    assert_eq!(position(&file), 0);
    let failure = relay(filled_pipe(b"frame"), &full, &to_end()).unwrap_err();
    assert!(matches!(failure.error, Error::Io { os_error: libc::ENOSPC, .. }), "{failure:?}");
}

#[test]
fn io_error_keeps_the_relay_report() {
    let file = file_of(&pattern(6 << 20, 3));
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let stalled = relay(&file, &ours, &to_end().timeout(Duration::from_millis(30))).unwrap_err();
    let error = io::Error::from(stalled.clone());
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(error.downcast::<RelayError>().unwrap(), stalled);
    let refused = relay(&file, File::open("/dev/null").unwrap(), &to_end()).unwrap_err();
    assert_eq!(io::Error::from(refused).raw_os_error(), Some(libc::EBADF));
}

#[test]
fn wrong_direction_fails_at_the_call() {
    let (reader, writer) = pipe().unwrap();
    for (src, dst) in [(writer.as_fd(), writer.as_fd()), (reader.as_fd(), reader.as_fd())] {
        let failure = relay(src, dst, &to_end()).unwrap_err();
        assert_eq!(failure.error, Error::Io { os_error: libc::EBADF, bytes_delivered: 0, bytes_lost: 0 });
    }
    let failure = relay(File::open("/").unwrap(), null(), &to_end()).unwrap_err();
    assert!(matches!(failure.error, Error::Io { os_error: libc::EISDIR, .. }), "{failure:?}");
}

#[test]
fn messages_stay_whole() {
    use std::os::unix::net::UnixDatagram;
    let (source, feeder) = UnixDatagram::pair().unwrap();
    let (sink, reader) = UnixDatagram::pair().unwrap();
    let messages: Vec<_> = [1, 100, 65_536, 7].map(|bytes| pattern(bytes, bytes as u64)).into();
    messages.iter().for_each(|message| assert_eq!(feeder.send(message).unwrap(), message.len()));
    let count = messages.iter().map(|message| message.len() as u64).sum();
    let relaying = thread::spawn(move || {
        relay(&source, &sink, &to_end().count(count)).unwrap();
    });
    let mut piece = vec![0; 1 << 20];
    for message in messages {
        let bytes = reader.recv(&mut piece).unwrap();
        assert!(piece[..bytes] == message);
    }
    relaying.join().unwrap();
}

#[test]
fn packets_of_a_pipe_fit_through_a_small_socket() {
    let (reader, writer) = packet_pipe();
    let (ours, theirs) = UnixStream::pair().unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 2304).unwrap();
    let data = pattern(200 * 4000, 6);
    let packets = data.clone();
    let feeder = thread::spawn(move || {
        packets.chunks(4000).for_each(|packet| assert_eq!(rustix::io::write(&writer, packet), Ok(4000)));
    });
    let drain = thread::spawn(move || read_all(theirs, 1 << 16));
    assert_eq!(relay(&reader, &ours, &to_end()).unwrap().bytes, data.len() as u64);
    drop(ours);
    assert!(drain.join().unwrap() == data);
    feeder.join().unwrap();
}

#[test]
fn closed_descriptor_does_not_affect_a_background_relay() {
    let data = pattern(4 << 20, 11);
    let reader = filled_pipe(&data);
    let (mut theirs, writer) = pipe().unwrap();
    let ticket = relay_in_background(&reader, &writer, &to_end(), None).unwrap();
    let number = writer.as_raw_fd();
    drop((reader, writer));
    let decoy = unnamed_file(); // takes a number that was freed
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert!(got == data);
    assert_eq!(ticket.wait().unwrap().bytes, data.len() as u64);
    assert_eq!(decoy.metadata().unwrap().len(), 0, "the number {number} may be its own");
}

#[test]
fn background_relay_can_be_watched_and_cancelled() {
    let (reader, writer) = pipe().unwrap();
    let (mut producer, source) = pipe().map(|(reader, writer)| (writer, reader)).unwrap();
    let ticket = relay_in_background(&source, &writer, &to_end(), None).unwrap();
    producer.write_all(b"frame").unwrap();
    let mut got = [0; 5];
    (&reader).read_exact(&mut got).unwrap();
    assert_eq!(ticket.wait_for(Some(Duration::from_millis(10))), None);
    assert_eq!(ticket.relayed().bytes, 5);
    ticket.cancel();
    let failure = ticket.wait().unwrap_err();
    assert_eq!((failure.error, failure.relayed.bytes), (Error::Aborted { bytes_lost: 0 }, 5));
    drop(writer);
    assert_eq!(
        (&reader).read(&mut got).unwrap(),
        0,
        "its descriptors are closed by the time that it has ended"
    );
}

#[test]
fn many_short_relays_leave_no_descriptor() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let file = file_of(&pattern(100, 12));
    let (ours, _theirs) = UnixStream::pair().unwrap();
    ours.shutdown(Shutdown::Both).unwrap();
    let before = descriptors();
    for _ in 0..5000 {
        relay(&file, null(), &to_end().offset(0)).unwrap();
        relay(&ours, null(), &to_end()).unwrap(); // through a pipe of its own
    }
    // Other tests run beside this one.
    assert!(descriptors() < before + 200, "{before} before, {} after", descriptors());
}

#[test]
fn a_prepared_relay_goes_on_with_what_its_source_has_since() {
    let data = pattern(10_000, 14);
    let (source, destination) = (file_of(&data[..7000]), unnamed_file());
    let mut relay = Relay::new(&source, &destination, &to_end().count(9500)).unwrap();
    let mut to = |bytes| {
        let relayed = relay.run_to(bytes, None).unwrap().unwrap();
        (relayed.bytes, relayed.source_ended)
    };
    assert_eq!(
        [to(0), to(3000), to(3000), to(8000)],
        [(0, false), (3000, false), (3000, false), (7000, true)]
    );
    assert_eq!(position(&source), 7000);
    std::os::unix::fs::FileExt::write_all_at(&source, &data[7000..], 7000).unwrap();
    assert_eq!([to(8000), to(20_000)], [(8000, false), (9500, false)], "no more than the count");
    assert_eq!(relay.close().unwrap().bytes, 9500);
    assert!(read_back(&destination) == data[..9500]);
}

#[test]
fn a_relay_that_goes_on_after_a_stall_waits_as_long_again() {
    let (reader, _writer) = pipe().unwrap();
    let (_out_reader, out) = pipe().unwrap();
    let timeout = Duration::from_millis(50);
    let mut relay = Relay::new(&reader, &out, &to_end().timeout(timeout)).unwrap();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        while relay.run_to(1, None).is_none() {}
        assert!(begun.elapsed() >= timeout);
    }
}

#[test]
fn a_signal_ends_the_wait_of_a_relay_to_a_full_socket() {
    let data = pattern(8 << 20, 15);
    for (ours, mut theirs) in
        [UnixStream::pair().map(|(a, b)| (a.into(), File::from(OwnedFd::from(b)))).unwrap(), {
            let (ours, theirs) = tcp_pair();
            (OwnedFd::from(ours), File::from(OwnedFd::from(theirs)))
        }]
    {
        let file = file_of(&data);
        let mut relay = Relay::new(&file, &ours, &to_end()).unwrap();
        let storm = Storm::begin();
        for _ in 0..50 {
            assert_eq!(relay.run(None), None);
        }
        drop(storm);
        let moved = relay.relayed().bytes;
        assert!(moved > 0 && moved < data.len() as u64);
        assert_eq!(position(&file), moved);
        drop(ours);
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).unwrap();
            got
        });
        while relay.run(None).is_none() {}
        assert!(reader.join().unwrap() == data);
    }
}

#[test]
fn a_pipe_is_made_of_the_size_that_was_asked_for() {
    let (_reader, writer) = make_pipe(Some(1 << 18)).unwrap();
    assert_eq!(engine::pipe_capacity(writer.as_fd()), Ok(1 << 18));
}

#[test]
fn policy_of_a_background_relay_can_be_read() {
    let policy = ThreadPolicy::default().priority(Priority::Lowest);
    let ((reader, writer), (_out_reader, out)) = (pipe().unwrap(), pipe().unwrap());
    let ticket = relay_in_background(&reader, &out, &RelayOptions::default(), Some(policy)).unwrap();
    drop(writer);
    ticket.wait().unwrap();
    assert_eq!(ticket.applied_policy().unwrap().priority, Some(Priority::Lowest));
}
