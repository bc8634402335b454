//! What a writer promises, on real pipes, sockets and files.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, SeekFrom, Write, pipe};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::common::{Temper, close_last_reader, drain, in_own_process, packet_pipe, pattern};
use penstock_core::{
    ByteWriter, Error, Mode, ReaderKind, Reason, Region, Rejected, ThreadPolicy, Ticket, Transport, Writer,
    WriterOptions, engine, process,
};

const MODES: [Mode; 4] = [Mode::Auto, Mode::Write, Mode::Staged, Mode::ZeroCopy];
const A_WHILE: Option<Duration> = Some(Duration::from_millis(100));

fn open(pipe: &PipeWriter, mode: Mode) -> Writer {
    Writer::new(pipe, &WriterOptions::default().mode(mode)).unwrap()
}

fn read_exactly(reader: &mut impl Read, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    reader.read_exact(&mut got).unwrap();
    got
}

#[test]
fn smoke() {
    let (reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::Auto);
    drop(pipe);
    let got = drain(reader, Temper::Eager);
    let frame = pattern(1_000_000, 1);
    writer.submit(frame.clone(), None).unwrap().wait().unwrap();
    writer.close(None).unwrap();
    assert!(got.join().unwrap() == frame, "closing gives the reader its end of file");
}

#[test]
fn stats_name_the_transport_and_its_reason() {
    for (mode, reader, bytes, expected) in [
        (Mode::Auto, ReaderKind::Unknown, 1 << 20, Transport::Staged),
        (Mode::Auto, ReaderKind::Reads, 1 << 20, Transport::Staged),
        (Mode::Auto, ReaderKind::Reads, 1 << 10, Transport::Write),
        (Mode::Write, ReaderKind::Reads, 1 << 20, Transport::Write),
        (Mode::Staged, ReaderKind::Unknown, 1 << 10, Transport::Staged),
        (Mode::ZeroCopy, ReaderKind::Unknown, 1 << 10, Transport::ZeroCopy),
    ] {
        let (source, pipe) = pipe().unwrap();
        let got = drain(source, Temper::Eager);
        let writer = Writer::new(&pipe, &WriterOptions::default().mode(mode).reader(reader)).unwrap();
        drop(pipe);
        writer.submit(vec![7; bytes], None).unwrap().wait().unwrap();
        let stats = writer.stats();
        let (transport, reason) = stats.choice.unwrap();
        assert_eq!(transport, expected, "{mode:?} {reader:?} {bytes}: {reason}");
        assert_eq!(stats.capacity_bytes, Some(1 << 20));
        assert_eq!((stats.accepted_bytes, stats.accepted_items), (bytes as u64, 1));
        assert!(stats.written_by.contains(&(transport, bytes as u64)));
        writer.close(None).unwrap();
        assert_eq!(writer.stats().capacity_bytes, Some(1 << 20), "known after the closing, too");
        assert_eq!(got.join().unwrap().len(), bytes);
    }
}

#[test]
fn a_small_write_has_ended_when_submit_returns_if_nothing_else_is_in_flight() {
    let (pipe_reader, pipe) = pipe().unwrap();
    let (socket_reader, socket) = UnixStream::pair().unwrap();
    let (messages_reader, messages) = UnixDatagram::pair().unwrap();
    for fd in [pipe.as_fd(), socket.as_fd(), messages.as_fd()] {
        let writer = Writer::new(fd, &WriterOptions::default()).unwrap();
        for bytes in [100, 0, 4096] {
            let ticket = writer.submit(vec![1; bytes], None).unwrap();
            assert_eq!(ticket.peek(), Some(Ok(())), "{fd:?} {bytes}");
        }
        let stats = writer.stats();
        assert_eq!((stats.accepted_items, stats.accepted_bytes), (3, 4196));
        assert_eq!((stats.pending_items, stats.written_by[0].1), (0, 4196));
        writer.close(None).unwrap();
    }
    let read = |source: &mut dyn Read| source.read(&mut [0; 9000]).unwrap();
    drop((pipe, socket));
    assert_eq!([read(&mut { pipe_reader }), read(&mut { socket_reader })], [4196; 2]);
    assert_eq!([(); 3].map(|()| messages_reader.recv(&mut [0; 9000]).unwrap()), [100, 0, 4096]);
}

#[test]
fn a_streams_first_write_needs_no_thread_if_it_fits() {
    in_own_process("writer::a_streams_first_write_needs_no_thread_if_it_fits", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (before, data) = (threads(), pattern(100_000, 3));
        let (mut reader, pipe) = pipe().unwrap();
        let writer = Writer::new(&pipe, &WriterOptions::default()).unwrap();
        writer.write(&data, None).unwrap();
        writer.close(None).unwrap();
        let (mut peer, socket) = UnixStream::pair().unwrap();
        let writer = Writer::new(&socket, &WriterOptions::default()).unwrap();
        assert_eq!(writer.submit(data.clone(), None).unwrap().peek(), Some(Ok(())));
        writer.close(None).unwrap();
        assert_eq!(threads(), before);
        assert!(read_exactly(&mut reader, data.len()) == data && read_exactly(&mut peer, data.len()) == data);
    });
}

#[test]
fn what_has_no_room_of_a_streams_first_write_follows() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().capacity_bytes(4096)).unwrap();
    let data = pattern(100_000, 4);
    let ticket = writer.submit(data.clone(), None).unwrap();
    writer.write(b"next", None).unwrap();
    assert_eq!(ticket.peek(), None);
    assert!(read_exactly(&mut reader, data.len()) == data && read_exactly(&mut reader, 4) == b"next");
    assert_eq!(ticket.wait(), Ok(()));
    writer.close(None).unwrap();
}

#[test]
fn small_writes_keep_their_order_with_those_that_found_no_room() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().capacity_bytes(4096)).unwrap();
    let frames: Vec<_> = (0..40).map(|number| pattern(number * 97 % 4096, number as u64)).collect();
    let tickets: Vec<_> = frames.iter().map(|frame| writer.submit(frame.clone(), None).unwrap()).collect();
    assert!(tickets[1].has_ended() && !tickets[39].has_ended());
    let all = frames.concat();
    assert!(read_exactly(&mut reader, all.len()) == all);
    writer.flush(None).unwrap();
    assert!(tickets.iter().all(|ticket| ticket.peek() == Some(Ok(()))));
    assert_eq!(writer.submit(b"again".to_vec(), None).unwrap().peek(), Some(Ok(())));
    writer.close(None).unwrap();
}

#[test]
fn a_small_write_without_a_reader_is_a_failure_and_no_signal() {
    in_own_process("writer::a_small_write_without_a_reader_is_a_failure_and_no_signal", || {
        // SAFETY: a signal's default is no handler of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, pipe) = pipe().unwrap();
        let (peer, socket) = UnixStream::pair().unwrap();
        drop((reader, peer));
        for fd in [pipe.as_fd(), socket.as_fd()] {
            let writer = Writer::new(fd, &WriterOptions::default()).unwrap();
            let failure = writer.submit(vec![1; 100], None).unwrap().wait().unwrap_err();
            assert!(matches!(failure, Error::Broken { bytes_lost: 100, .. }), "{failure:?}");
        }
    });
}

#[test]
fn what_a_socket_reports_only_once_fails_the_small_write_that_meets_it() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    drop(receiver);
    let writer = Writer::new(&sender, &WriterOptions::default()).unwrap();
    writer.submit(vec![1; 100], None).unwrap().wait().unwrap();
    let failure = writer.submit(vec![2; 100], None).unwrap().wait().unwrap_err();
    let refused = libc::ECONNREFUSED; // what came back for the first
    assert!(matches!(failure, Error::Io { os_error, .. } if os_error == refused), "{failure:?}");
}

#[test]
fn a_stream_of_one_small_write_needs_no_thread() {
    in_own_process("writer::a_stream_of_one_small_write_needs_no_thread", || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (mut reader, pipe) = pipe().unwrap();
        let before = threads();
        let writer = open(&pipe, Mode::Auto);
        writer.write(b"frame", None).unwrap();
        assert_eq!(threads(), before);
        writer.close(None).unwrap();
        assert_eq!(read_exactly(&mut reader, 5), b"frame");
    });
}

/// The page in which the kernel keeps the time: it can be read, and not be pinned (`VM_PFNMAP`), as drivers' mappings.
struct TimePage(usize);

// SAFETY: the kernel maps it for as long as the process lives. It writes the time there, which a region must not allow: here
// nothing forms a reference to it, for a page that cannot be pinned is handed to write(2).
unsafe impl Region for TimePage {
    fn as_ptr(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.0)
    }
    fn len(&self) -> usize {
        4096
    }
}

impl TimePage {
    fn find() -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let line = maps.lines().find(|line| line.ends_with("[vvar]"))?;
        usize::from_str_radix(line.split('-').next()?, 16).ok().map(Self)
    }
}

#[test]
fn memory_that_cannot_be_pinned_is_written_and_the_statistics_say_so() {
    let Some(page) = TimePage::find() else {
        eprintln!("skipped: this system has no memory that cannot be pinned");
        return;
    };
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    writer.submit(vec![1; 5000], None).unwrap();
    let ticket = writer.submit(page, None).unwrap();
    assert_eq!(read_exactly(&mut reader, 5000), vec![1; 5000]);
    read_exactly(&mut reader, 4096);
    ticket.wait().unwrap();
    assert_eq!(writer.stats().choice, Some((Transport::Write, Reason::CannotPin)));
    writer.close(None).unwrap();
}

#[test]
fn auto_uses_zero_copy_for_a_slow_reader() {
    let (reader, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().reader(ReaderKind::Reads)).unwrap();
    drop(pipe);
    let got = drain(reader, Temper::Slow);
    for _ in 0..30 {
        writer.submit(vec![1; 3 << 20], None).unwrap();
    }
    writer.close(None).unwrap();
    assert_eq!(writer.stats().choice.unwrap().0, Transport::ZeroCopy);
    assert_eq!(got.join().unwrap().len(), 30 * (3 << 20));
}

#[test]
fn a_zero_copy_ticket_ends_when_the_reader_has_read_and_not_before() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let frame = Arc::new(pattern(300_000, 2));
    let ticket = writer.submit(Arc::clone(&frame), None).unwrap();
    assert_eq!(ticket.wait_for(A_WHILE), None, "nothing was read");
    read_exactly(&mut reader, 299_999);
    assert_eq!(ticket.wait_for(A_WHILE), None, "a byte was not read");
    assert_eq!(Arc::strong_count(&frame), 2, "the memory is in use");
    read_exactly(&mut reader, 1);
    ticket.wait().unwrap();
    assert_eq!(Arc::strong_count(&frame), 1);
}

/// How often the threads of the process went to sleep.
fn switches() -> i64 {
    switches_of(libc::RUSAGE_SELF)
}

fn switches_of(whom: i32) -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call fills the whole of it.
    unsafe {
        assert_eq!(libc::getrusage(whom, usage.as_mut_ptr()), 0);
        usage.assume_init().ru_nvcsw
    }
}

#[test]
fn a_zero_copy_worker_sleeps_while_its_reader_pauses() {
    in_own_process("writer::a_zero_copy_worker_sleeps_while_its_reader_pauses", || {
        for (mode, bytes) in [(Mode::ZeroCopy, 64 << 10), (Mode::Write, 4 << 20), (Mode::ZeroCopy, 4 << 20)] {
            let (mut reader, pipe) = pipe().unwrap();
            let writer = open(&pipe, mode);
            let ticket = writer.submit(vec![1; bytes], None).unwrap();
            assert_eq!(ticket.wait_for(A_WHILE), None);
            let before = switches();
            assert_eq!(ticket.wait_for(Some(Duration::from_millis(500))), None);
            let wakes = switches() - before;
            assert!(wakes < 8, "{mode:?} {bytes}: {wakes} in half a second");
            read_exactly(&mut reader, bytes - 1);
            assert_eq!(ticket.wait_for(A_WHILE).is_none(), mode == Mode::ZeroCopy);
            read_exactly(&mut reader, 1);
            ticket.wait().unwrap();
        }
    });
}

#[test]
fn many_workers_sleep_and_leave_most_of_a_users_inotify_descriptors_to_others() {
    let name = "writer::many_workers_sleep_and_leave_most_of_a_users_inotify_descriptors_to_others";
    in_own_process(name, || {
        let mut streams = Vec::new();
        for _ in 0..40 {
            let (reader, pipe) = pipe().unwrap();
            let writer = open(&pipe, Mode::ZeroCopy);
            streams.push((reader, writer.submit(vec![1; 5000], None).unwrap(), writer));
        }
        let watches = || {
            let fds = std::fs::read_dir("/proc/self/fd").unwrap();
            let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
            targets.filter(|target| target.to_string_lossy().contains("inotify")).count()
        };
        thread::sleep(A_WHILE.unwrap());
        assert!(watches() <= 16, "{} of them", watches());
        let before = switches();
        thread::sleep(Duration::from_millis(500));
        let wakes = switches() - before;
        assert!(wakes < 80, "{wakes} of 40 workers in half a second"); // each looks once a second, come what may
        for (reader, ticket, _) in &mut streams {
            assert_eq!(ticket.outcome(), None);
            read_exactly(reader, 5000);
            ticket.wait_for(Some(Duration::from_millis(500))).expect("it is woken").unwrap();
        }
        drop(streams);
        while watches() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        // For ever, if those that are closed counted. A close(2) may still be on its way, and a worker asks once.
        let mut later = Vec::new();
        while watches() == 0 {
            let (reader, pipe) = pipe().unwrap();
            let writer = open(&pipe, Mode::ZeroCopy);
            writer.submit(vec![1; 5000], None).unwrap();
            later.push((reader, writer));
            thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_worker_that_waits_for_room_is_not_woken_by_writes() {
    in_own_process("writer::a_worker_that_waits_for_room_is_not_woken_by_writes", || {
        let others_switches = || switches() - switches_of(libc::RUSAGE_THREAD);
        let (_reader, pipe) = pipe().unwrap();
        let writer = open(&pipe, Mode::Write);
        assert_eq!(writer.submit(vec![1; 4 << 20], None).unwrap().wait_for(A_WHILE), None);
        let before = others_switches();
        for _ in 0..50 {
            writer.submit(vec![1; 10], None).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        let wakes = others_switches() - before;
        assert!(wakes < 8, "{wakes} for 50 writes");
        writer.abort();
    });
}

#[test]
fn a_write_after_zero_copy_that_nobody_reads_enters_the_pipe() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let mut tickets = vec![writer.submit(vec![1; 5000], None).unwrap()];
    assert_eq!(tickets[0].wait_for(A_WHILE), None);
    for bytes in [10_000, 15_000] {
        tickets.push(writer.submit(vec![1; 5000], None).unwrap());
        while rustix::io::ioctl_fionread(&reader).unwrap() < bytes {
            thread::sleep(Duration::from_millis(1));
        }
    }
    for ticket in tickets {
        assert_eq!(ticket.wait_for(A_WHILE), None);
        read_exactly(&mut reader, 5000);
        ticket.wait().unwrap();
    }
}

#[test]
fn a_zero_copy_ticket_ends_while_a_later_write_waits_for_room() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let ticket = writer.submit(vec![1; 5000], None).unwrap();
    let blocked = writer.submit(vec![2; 4 << 20], None).unwrap();
    while rustix::io::ioctl_fionread(&reader).unwrap() < 900_000 {
        thread::sleep(Duration::from_millis(1));
    }
    read_exactly(&mut reader, 5000);
    assert_eq!(ticket.wait_for(Some(Duration::from_secs(20))), Some(Ok(())));
    read_exactly(&mut reader, 4 << 20);
    blocked.wait().unwrap();
}

#[test]
fn zero_copy_works_without_a_spare_descriptor() {
    in_own_process("writer::zero_copy_works_without_a_spare_descriptor", || {
        let (mut reader, pipe) = pipe().unwrap();
        let [first, second] = [(); 2].map(|()| open(&pipe, Mode::ZeroCopy));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let none = rustix::process::Rlimit { current: Some(3), ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        let ticket = first.submit(vec![1; 5000], None).unwrap();
        assert_eq!(ticket.wait_for(A_WHILE), None);
        let cut = second.submit(vec![2; 4 << 20], None).unwrap();
        read_exactly(&mut reader, 5000);
        ticket.wait().unwrap();
        second.abort();
        while !cut.has_ended() {
            let unread = rustix::io::ioctl_fionread(&reader).unwrap() as usize;
            read_exactly(&mut reader, unread);
        }
        assert!(matches!(cut.wait(), Err(Error::Aborted { .. })));
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    });
}

#[test]
fn zero_copy_into_a_pipe_whose_reader_goes_counts_what_it_had_read() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let ticket = writer.submit(vec![1; 300_000], None).unwrap();
    read_exactly(&mut reader, 100_000);
    drop(reader);
    let failure = Error::Broken { os_error: libc::EPIPE, bytes_delivered: 100_000, bytes_lost: 200_000 };
    assert_eq!(ticket.wait(), Err(failure.clone()));
    assert_eq!(writer.submit(vec![2], None).unwrap_err().error, failure);
    assert_eq!(writer.close(None), Err(failure));
}

#[test]
fn packets_that_a_reader_had_not_read_are_lost() {
    let (mut reader, pipe) = packet_pipe();
    let writer = open(&pipe, Mode::Auto);
    writer.submit(vec![1; 5 << 12], None).unwrap().wait().unwrap();
    read_exactly(&mut reader, 2 << 12);
    assert_eq!(writer.stats().delivered_bytes, 2 << 12);
    close_last_reader(reader, &pipe);
    let failure =
        Error::Broken { os_error: libc::EPIPE, bytes_delivered: 2 << 12, bytes_lost: (3 << 12) + 1 };
    assert_eq!(writer.submit(vec![2], None).unwrap().wait(), Err(failure.clone()));
    assert_eq!(writer.close(None), Err(failure));
}

#[test]
fn a_zero_copy_reader_that_reads_all_and_goes_has_everything() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let ticket = writer.submit(vec![1; 300_000], None).unwrap();
    read_exactly(&mut reader, 300_000);
    drop(reader);
    ticket.wait().unwrap();
    writer.close(None).unwrap();
}

#[test]
fn a_reader_that_dies_in_a_frame_fails_every_transport_with_exact_counts() {
    for mode in MODES {
        let (mut reader, pipe) = pipe().unwrap();
        let writer = open(&pipe, mode);
        let tickets: Vec<_> = (0..3).map(|_| writer.submit(vec![5; 3_000_000], None).unwrap()).collect();
        read_exactly(&mut reader, 4_000_000);
        drop(reader);
        let Err(Error::Broken { os_error, bytes_delivered, bytes_lost }) = tickets[2].wait() else {
            panic!("{mode:?}: the last frame cannot arrive");
        };
        assert_eq!((os_error, bytes_delivered, bytes_lost), (libc::EPIPE, 4_000_000, 5_000_000), "{mode:?}");
        assert!(block_on(tickets[1].clone()).is_err(), "{mode:?}: the second was cut");
        let refused = writer.submit(vec![9; 3], None).unwrap_err();
        assert_eq!(refused.region, [9; 3], "a refused region comes back as it was");
        assert!(writer.flush(None).is_err() && writer.close(None).is_err());
    }
}

#[test]
fn bytes_left_in_a_pipe_without_a_reader_are_reported_by_flush() {
    let (reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::Write);
    writer.submit(vec![1; 1000], None).unwrap().wait().unwrap();
    close_last_reader(reader, &pipe);
    assert_eq!(
        writer.flush(None),
        Err(Error::Broken { os_error: libc::EPIPE, bytes_delivered: 0, bytes_lost: 1000 })
    );
}

#[test]
fn broken_stream_does_not_affect_other_streams() {
    let (broken_reader, broken_pipe) = pipe().unwrap();
    let (reader, whole_pipe) = pipe().unwrap();
    let (broken, whole) = (open(&broken_pipe, Mode::Auto), open(&whole_pipe, Mode::Auto));
    drop(whole_pipe);
    let got = drain(reader, Temper::Slow);
    drop(broken_reader);
    let frames: Vec<_> = (0..8).map(|seed| pattern(1_500_000, seed)).collect();
    for frame in &frames {
        let _ = broken.submit(frame.clone(), None);
        whole.submit(frame.clone(), None).unwrap();
    }
    whole.close(None).unwrap();
    assert!(broken.close(None).is_err());
    assert!(got.join().unwrap() == frames.concat());
}

#[test]
fn writers_on_one_pipe_share_one_order() {
    let (reader, pipe) = pipe().unwrap();
    let other_end = pipe.try_clone().unwrap();
    let writers = [open(&pipe, Mode::Staged), open(&other_end, Mode::Write)];
    drop((pipe, other_end));
    let frames: Vec<_> = (0..20).map(|seed| pattern(200_000, seed)).collect();
    for (frame, writer) in frames.iter().zip(writers.iter().cycle()) {
        writer.submit(frame.clone(), None).unwrap();
    }
    let got = drain(reader, Temper::Slow);
    writers.iter().for_each(|writer| writer.close(None).unwrap());
    assert!(got.join().unwrap() == frames.concat());
}

#[test]
fn a_full_queue_gives_the_memory_back_and_takes_it_later() {
    let (reader, pipe) = pipe().unwrap();
    let options = WriterOptions::default().queue_items(2).mode(Mode::Write);
    let writer = Writer::new(&pipe, &options).unwrap();
    drop(pipe);
    for _ in 0..2 {
        writer.submit(vec![1; 2 << 20], None).unwrap();
    }
    let refused = writer.submit(vec![2; 10], A_WHILE).unwrap_err();
    let Error::Stalled { bytes_pending, .. } = refused.error else { panic!("{:?}", refused.error) };
    assert_eq!(bytes_pending, 4 << 20);
    assert!(matches!(writer.flush(A_WHILE), Err(Error::Stalled { .. })));
    assert!(matches!(writer.close(A_WHILE), Err(Error::Stalled { .. })), "and it stays open");
    let got = drain(reader, Temper::Eager);
    writer.submit(refused.region, None).unwrap();
    writer.close(None).unwrap();
    assert_eq!(got.join().unwrap().len(), (4 << 20) + 10);
}

/// Stands for an async runtime's thread.
struct Executor(Thread);

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Executor(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn tickets_are_awaited_and_the_worker_wakes_their_tasks() {
    let (reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::Write);
    let tickets: Vec<_> = (0..3).map(|_| writer.submit(vec![5; 3 << 20], None).unwrap()).collect();
    assert!(!tickets[0].has_ended(), "the pipe has no room for it");
    let got = drain(reader, Temper::Slow);
    block_on(async {
        for ticket in &tickets {
            ticket.clone().await.unwrap();
        }
    });
    drop(pipe);
    writer.close(None).unwrap();
    assert_eq!(got.join().unwrap().len(), 9 << 20);
}

#[test]
fn an_awaited_write_is_pending_while_the_queue_is_full() {
    let (reader, pipe) = pipe().unwrap();
    let options = WriterOptions::default().queue_items(2).mode(Mode::Write);
    let writer = Writer::new(&pipe, &options).unwrap();
    drop(pipe);
    for _ in 0..2 {
        block_on(writer.submit_async(vec![1; 2 << 20])).unwrap();
    }
    let now = &mut Context::from_waker(Waker::noop());
    assert!(pin!(writer.submit_async(vec![2; 3])).poll(now).is_pending(), "and it is dropped");
    let mut write = pin!(writer.submit_async(vec![3; 3]));
    assert!(write.as_mut().poll(now).is_pending());
    assert_eq!(writer.stats().accepted_items, 2);
    let got = drain(reader, Temper::Slow);
    block_on(write).unwrap();
    for _ in 0..100 {
        block_on(writer.submit_async(vec![4; 100_000])).unwrap();
    }
    writer.close(None).unwrap();
    assert!(got.join().unwrap() == [vec![1; 4 << 20], vec![3; 3], vec![4; 10_000_000]].concat());
    let refused = block_on(writer.submit_async(vec![5; 3])).unwrap_err();
    assert_eq!((refused.error, refused.region), (Error::Closed, vec![5; 3]));
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The ticket of the oldest write tells nothing of it: its pages are in the pipe, where the system takes them.
#[test]
fn an_awaited_write_is_woken_by_an_abort() {
    let (_reader, pipe) = pipe().unwrap();
    let options = WriterOptions::default().queue_items(2).mode(Mode::ZeroCopy);
    let [writer, other] = [(); 2].map(|()| Writer::new(&pipe, &options).unwrap());
    writer.submit(vec![1; 2 << 20], None).unwrap();
    other.submit(vec![2; 3], None).unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let context = &mut Context::from_waker(&waker);

    let mut write = pin!(writer.submit_async(vec![3; 3]));
    assert!(write.as_mut().poll(context).is_pending());
    other.abort_now();
    assert!(woken.0.swap(false, Ordering::Relaxed));
    assert!(matches!(write.poll(context), Poll::Ready(Ok(_))));

    let mut write = pin!(writer.submit_async(vec![4; 3]));
    assert!(write.as_mut().poll(context).is_pending());
    writer.abort_now();
    assert!(woken.0.swap(false, Ordering::Relaxed));
    assert!(matches!(write.poll(context), Poll::Ready(Err(Rejected { error: Error::Closed, .. }))));
}

#[test]
fn a_close_in_steps_fails_if_it_is_aborted_in_between() {
    let (_reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::Write);
    writer.submit(vec![1; 2 << 20], None).unwrap();
    let mark = writer.mark();
    assert!(matches!(writer.close_at(mark, Some(Duration::ZERO)), Err(Error::Stalled { .. })));
    writer.abort();
    assert_eq!(writer.close_at(mark, None), Err(Error::Closed));
    assert_eq!(writer.close(None), Ok(()));
}

#[test]
fn abort_gives_up_what_is_queued_and_frees_its_memory() {
    for mode in MODES {
        let (mut reader, pipe) = pipe().unwrap();
        let writer = open(&pipe, mode);
        let frame = Arc::new(vec![3; 5 << 20]);
        let tickets: Vec<_> = (0..4).map(|_| writer.submit(Arc::clone(&frame), None).unwrap()).collect();
        writer.abort();
        // Of the first, pages are in the pipe with zero-copy.
        for ticket in &tickets[1..] {
            assert!(matches!(ticket.wait(), Err(Error::Aborted { .. })), "{mode:?}");
        }
        assert_eq!(writer.submit(vec![1], None).unwrap_err().error, Error::Closed);
        drop(pipe);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < 5 << 20, "{mode:?}: cut in the first frame");
        let bytes_lost = (5 << 20) - rest.len() as u64;
        assert_eq!(tickets[0].wait(), Err(Error::Aborted { bytes_lost }), "{mode:?}");
        assert_eq!(Arc::strong_count(&frame), 1, "{mode:?}: a ticket ends after its memory is free");
    }
}

/// An aborted zero-copy write of 5 MiB, of which the pipe holds the beginning.
fn aborted_zero_copy() -> (PipeReader, Writer, Arc<Vec<u8>>, Ticket) {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = open(&pipe, Mode::ZeroCopy);
    let frame = Arc::new(vec![3; 5 << 20]);
    let ticket = writer.submit(Arc::clone(&frame), None).unwrap();
    read_exactly(&mut reader, 1);
    writer.abort();
    assert_eq!(ticket.wait_for(A_WHILE), None, "its pages are in the pipe");
    (reader, writer, frame, ticket)
}

#[test]
fn an_aborted_zero_copy_write_ends_when_its_pages_have_left_the_pipe() {
    let (mut reader, _writer, frame, ticket) = aborted_zero_copy();
    let unread = rustix::io::ioctl_fionread(&reader).unwrap();
    read_exactly(&mut reader, unread as usize);
    let bytes_lost = (5 << 20) - 1 - unread;
    assert_eq!(ticket.wait(), Err(Error::Aborted { bytes_lost }));
    assert_eq!(Arc::strong_count(&frame), 1);
}

#[test]
fn an_aborted_zero_copy_write_ends_when_its_reader_goes() {
    let (reader, _writer, frame, ticket) = aborted_zero_copy();
    let unread = rustix::io::ioctl_fionread(&reader).unwrap();
    drop(reader);
    let bytes_lost = (5 << 20) - 1 - unread;
    assert_eq!(
        ticket.wait(),
        Err(Error::Aborted { bytes_lost }),
        "of its own, as it was not the reader that cut it"
    );
    assert_eq!(Arc::strong_count(&frame), 1);
}

#[test]
fn an_aborted_zero_copy_write_that_has_no_page_in_the_pipe_ends_at_once() {
    let (_reader, pipe) = pipe().unwrap();
    let (first, second) = (open(&pipe, Mode::Write), open(&pipe, Mode::ZeroCopy));
    first.submit(vec![1; 1 << 20], None).unwrap().wait().unwrap(); // fills the pipe
    let ticket = second.submit(vec![2; 5000], None).unwrap();
    thread::sleep(Duration::from_millis(20)); // so that the worker has begun it
    second.abort();
    assert_eq!(ticket.wait_for(A_WHILE), Some(Err(Error::Aborted { bytes_lost: 5000 })));
}

#[test]
fn abort_leaves_other_writers_of_the_stream_alone() {
    let (reader, pipe) = pipe().unwrap();
    let (given_up, kept) = (open(&pipe, Mode::Write), open(&pipe, Mode::Write));
    drop(pipe);
    kept.submit(vec![1; 2 << 20], None).unwrap(); // keeps the worker busy
    let lost = given_up.submit(vec![2; 1000], None).unwrap();
    let last = kept.submit(vec![3; 1000], None).unwrap();
    given_up.abort();
    assert_eq!(lost.wait(), Err(Error::Aborted { bytes_lost: 1000 }));
    let got = drain(reader, Temper::Eager);
    last.wait().unwrap();
    kept.close(None).unwrap();
    assert!(got.join().unwrap() == [vec![1; 2 << 20], vec![3; 1000]].concat());
}

/// A pipe whose reader takes nothing yet, and a writer on it whose worker waits for room.
fn busy(options: &WriterOptions) -> (PipeReader, PipeWriter, Writer) {
    let (reader, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, options).unwrap();
    writer.submit(vec![0; FILLS], None).unwrap();
    (reader, pipe, writer)
}

/// More than a pipe holds.
const FILLS: usize = 2 << 20;

#[test]
fn small_copies_are_gathered_in_order_while_the_worker_is_busy() {
    for mode in MODES {
        let (reader, pipe, writer) = busy(&WriterOptions::default().mode(mode));
        let mut sent = vec![0; FILLS];
        let mut memory = vec![0; 20];
        let mut write = |number: u64| {
            memory.copy_from_slice(&pattern(20, number));
            sent.extend(&memory);
            assert_eq!(writer.write(&memory, None).unwrap(), 20);
        };
        (0..1000).for_each(&mut write);
        writer.submit(vec![7; 20], None).unwrap();
        (1000..2000).for_each(write);
        sent.splice(FILLS + 20_000..FILLS + 20_000, [7; 20]);
        let stats = writer.stats();
        assert_eq!((stats.accepted_items, stats.accepted_bytes), (4, sent.len() as u64), "{mode:?}");
        drop(pipe);
        let got = drain(reader, Temper::Eager);
        writer.close(None).unwrap();
        assert!(got.join().unwrap() == sent, "{mode:?}");
    }
}

#[test]
fn gathered_copies_count_against_the_limit_in_bytes_and_not_in_writes() {
    let (_reader, _pipe, writer) = busy(&WriterOptions::default().queue_items(2).queue_bytes(FILLS + 50));
    (0..2).for_each(|_| _ = writer.write(&[1; 20], None).unwrap());
    assert!(matches!(writer.write(&[1; 20], A_WHILE), Err(Error::Stalled { .. })));
    assert_eq!(writer.write(&[1; 10], None).unwrap(), 10);
    assert_eq!(writer.stats().accepted_bytes, FILLS as u64 + 50, "nothing of what was refused");
    writer.abort();
}

#[test]
fn a_block_of_copies_is_aborted_and_lost_as_a_whole() {
    let (reader, pipe, writer) = busy(&WriterOptions::default());
    let given_up = open(&pipe, Mode::Auto);
    for _ in 0..10 {
        writer.write(&[1; 20], None).unwrap();
        given_up.write(&[2; 20], None).unwrap();
    }
    assert_eq!(writer.stats().accepted_items, 1 + 20, "each owner's are apart");
    (0..100).for_each(|_| _ = given_up.write(&[2; 20], None).unwrap());
    given_up.abort();
    let stats = writer.stats();
    assert_eq!((stats.accepted_items, stats.pending_items), (1 + 20, 1 + 10));
    (0..100).for_each(|_| _ = writer.write(&[1; 20], None).unwrap());
    drop((reader, pipe));
    let Err(Error::Broken { bytes_delivered, bytes_lost, .. }) = writer.close(None) else {
        panic!("the reader is gone");
    };
    assert_eq!((bytes_delivered, bytes_lost), (0, (FILLS + 110 * 20) as u64), "without what was given up");
}

#[test]
fn messages_are_not_gathered() {
    let (mut reader, pipe) = packet_pipe();
    let writer = open(&pipe, Mode::Write);
    writer.submit(vec![0; FILLS], None).unwrap();
    (0..3).for_each(|_| _ = writer.write(&[1; 20], None).unwrap());
    assert_eq!(writer.stats().accepted_items, 4);
    read_exactly(&mut reader, FILLS);
    let sizes = [20, 20, 20].map(|_| reader.read(&mut [0; 100]).unwrap());
    assert_eq!(sizes, [20, 20, 20]);
}

#[test]
fn copies_of_any_size_arrive() {
    for mode in MODES {
        let (reader, pipe) = pipe().unwrap();
        let got = drain(reader, Temper::Eager);
        let writer = open(&pipe, mode);
        drop(pipe);
        let mut sent = Vec::new();
        for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 20, 3_000_000, 1] {
            let mut memory = pattern(bytes, bytes as u64);
            sent.extend(&memory);
            assert_eq!(writer.write(&memory, None).unwrap(), bytes);
            memory.fill(0xEE); // the writer has its copy
        }
        writer.close(None).unwrap();
        assert!(got.join().unwrap() == sent, "{mode:?}");
        assert_eq!(writer.write(&[1], None), Err(Error::Closed));
    }
}

#[test]
fn sockets_files_and_messages_are_written() {
    let frame = pattern(3_000_000, 4);
    for mode in MODES {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(mode == Mode::Auto).unwrap();
        let writer = Writer::new(&ours, &WriterOptions::default().mode(mode)).unwrap();
        let ticket = writer.submit(frame.clone(), None).unwrap();
        let mut got = vec![0; frame.len()];
        (&theirs).read_exact(&mut got).unwrap();
        ticket.wait().unwrap();
        assert!(got == frame);
        assert_eq!(writer.stats().choice.unwrap().0, Transport::Write);

        let mut file = tempfile();
        let writer = Writer::new(&file, &WriterOptions::default().mode(mode)).unwrap();
        writer.submit(frame.clone(), None).unwrap();
        writer.close(None).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        assert!(got == frame);
    }
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let writer = Writer::new(&ours, &WriterOptions::default()).unwrap();
    for size in [10, 0, 70_000] {
        writer.submit(vec![1; size], None).unwrap();
        assert_eq!(theirs.recv(&mut [0; 100_000]).unwrap(), size, "a message stays whole");
    }
}

fn tempfile() -> File {
    let path = std::env::temp_dir().join(format!(
        "penstock-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn system_failures_keep_their_error_number() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let writer = Writer::new(&full, &WriterOptions::default()).unwrap();
    let ticket = writer.submit(vec![0; 5000], None).unwrap();
    let failure = Error::Io { os_error: libc::ENOSPC, bytes_delivered: 0, bytes_lost: 5000 };
    assert_eq!(ticket.wait(), Err(failure.clone()));
    assert_eq!(writer.close(None), Err(failure));
}

#[test]
fn io_error_keeps_the_byte_counts_of_a_failure() {
    let (mut reader, pipe) = pipe().unwrap();
    let ticket = open(&pipe, Mode::Write).submit(vec![1; 3 << 20], None).unwrap();
    read_exactly(&mut reader, 1000);
    drop(reader);
    let wait = || -> io::Result<()> { Ok(ticket.wait()?) };
    let error = wait().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let failure =
        Error::Broken { os_error: libc::EPIPE, bytes_delivered: 1000, bytes_lost: (3 << 20) - 1000 };
    assert_eq!(error.downcast::<Error>().unwrap(), failure);
}

#[test]
fn bad_descriptors_fail_at_the_call() {
    let refusal = |fd: &File| Writer::new(fd, &WriterOptions::default()).err();
    let refused = |os_error| Some(Error::from_raw_os_error(os_error));
    assert_eq!(refusal(&File::open("/dev/null").unwrap()), refused(libc::EBADF));
    assert_eq!(refusal(&File::open("/").unwrap()), refused(libc::EBADF));
}

#[test]
fn limits_of_nothing_are_refused_by_name() {
    let file = File::options().write(true).open("/dev/null").unwrap();
    for (name, options) in [
        ("queue_bytes", WriterOptions::default().queue_bytes(0)),
        ("queue_items", WriterOptions::default().queue_items(0)),
        ("capacity_bytes", WriterOptions::default().capacity_bytes(0)),
    ] {
        let refused = Error::Unsuitable(format!("{name} must be at least 1").into());
        assert_eq!(Writer::new(&file, &options).err(), Some(refused));
    }
}

#[test]
fn write_by_descriptor_number_survives_the_close_of_the_number() {
    let (reader, pipe) = pipe().unwrap();
    let frame = pattern(5_000_000, 6);
    let ticket = process::pipe(frame.clone(), &pipe, Mode::Auto, None).unwrap();
    let number = pipe.as_raw_fd();
    drop(pipe);
    let intruder = tempfile();
    let reused = intruder.as_raw_fd() == number; // likely, but for other tests' descriptors
    let got = drain(reader, Temper::Slow);
    ticket.wait().unwrap();
    assert!(got.join().unwrap() == frame, "all of it, and then the end of file");
    assert_eq!(intruder.metadata().unwrap().len(), 0, "number reused: {reused}");
}

#[test]
fn tickets_are_found_by_any_part_of_their_memory() {
    let (mut reader, pipe) = pipe().unwrap();
    let frame = Arc::new(vec![8; 2 << 20]);
    process::pipe(Arc::clone(&frame), &pipe, Mode::Write, None).unwrap();
    let found = |from: usize, bytes| engine::tickets_of(frame[from..].as_ptr(), bytes).len();
    assert_eq!((found(0, 1), found(1 << 20, 10), found(0, 0)), (1, 1, 0));
    read_exactly(&mut reader, 2 << 20);
    process::sync(None).unwrap();
    assert_eq!(found(0, 1), 0);
}

#[test]
fn an_explicit_capacity_is_what_the_pipe_gets() {
    let (_reader, pipe) = pipe().unwrap();
    for bytes in [4096, 256 << 10, 64 << 10] {
        let options = WriterOptions::default().capacity_bytes(bytes);
        let writer = Writer::new(pipe.as_fd(), &options).unwrap();
        assert_eq!(writer.stats().capacity_bytes, Some(bytes));
    }
}

#[test]
fn many_pipes_are_as_large_as_one_where_the_users_limit_is_for_others() {
    in_own_process("writer::many_pipes_are_as_large_as_one_where_the_users_limit_is_for_others", || {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let all = (0..65).map(|_| pipe().unwrap()).collect::<Vec<_>>(); // more than the limit, 64 MiB by default
        if all.iter().any(|(_, trial)| rustix::pipe::fcntl_setpipe_size(trial, 1 << 20).is_err()) {
            return; // it is for us
        }
        drop(all);
        let mut open = Vec::new();
        let mut smallest_of = |pipes: usize| {
            let new = open.len();
            for _ in 0..pipes {
                let (reader, end) = pipe().unwrap();
                open.push((Writer::new(&end, &WriterOptions::default()).unwrap(), reader));
            }
            open[new..].iter().map(|(writer, _)| writer.stats().capacity_bytes.unwrap()).min()
        };
        assert_eq!(smallest_of(40), Some(1 << 20)); // half of the limit is spent after 32
        // SAFETY: it changes this process alone, which ends with the test.
        assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 65_534) }, 0);
        assert_eq!(smallest_of(1), Some(64 << 10), "half of the limit is left to the user's other programs");
    });
}

#[test]
fn a_policy_is_applied_and_read_back() {
    let (reader, pipe) = pipe().unwrap();
    let got = drain(reader, Temper::Eager);
    let policy = ThreadPolicy::default().nice(7).cpus(vec![0]);
    let writer = Writer::new(&pipe, &WriterOptions::default().policy(policy)).unwrap();
    drop(pipe);
    writer.submit(vec![1; 100], None).unwrap().wait().unwrap();
    let applied = writer.stats().policy.expect("the worker has started");
    assert_eq!((applied.nice, applied.cpus, applied.notes.len()), (7, vec![0], 0));
    writer.close(None).unwrap();
    got.join().unwrap();
}

#[test]
fn a_writer_does_not_inherit_limits_or_policy_of_one_that_was_closed() {
    let (_reader, pipe) = pipe().unwrap();
    let policy = ThreadPolicy::default().nice(7);
    let options = WriterOptions::default().queue_items(1).policy(policy);
    let first = Writer::new(&pipe, &options).unwrap();
    first.submit(vec![1; 10], None).unwrap().wait().unwrap();
    let beside = open(&pipe, Mode::Write); // shares the stream, and what the first has set
    assert!(beside.stats().policy.is_some());
    first.close(None).unwrap();
    beside.close(None).unwrap();

    let next = open(&pipe, Mode::Write);
    for _ in 0..2 {
        next.submit(vec![2; 2 << 20], A_WHILE).unwrap(); // the pipe takes neither
    }
    assert_eq!(next.stats().policy, None);
    next.abort();
    drop(first);
}

#[test]
fn a_policy_that_is_refused_is_a_note_and_no_failure() {
    let (reader, pipe) = pipe().unwrap();
    let got = drain(reader, Temper::Eager);
    let policy = ThreadPolicy::default().cpus(vec![100_000]);
    let writer = Writer::new(&pipe, &WriterOptions::default().policy(policy)).unwrap();
    drop(pipe);
    writer.submit(vec![1; 100], None).unwrap().wait().unwrap();
    let applied = writer.stats().policy.expect("the worker has started");
    assert_eq!(applied.notes.len(), 1, "{:?}", applied.notes);
    writer.close(None).unwrap();
    assert_eq!(got.join().unwrap().len(), 100);
}

#[test]
fn the_next_reader_of_a_fifo_does_not_get_pages_that_were_given_back() {
    let folder = std::env::temp_dir().join(format!("penstock-given-back-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let open_reader = || {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        File::from(rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).unwrap())
    };
    let mut first = open_reader();
    let pipe = File::options().write(true).open(&path).unwrap();
    for bytes in [300_000, 3_000_000] {
        let writer = Writer::new(&pipe, &WriterOptions::default().mode(Mode::ZeroCopy)).unwrap();
        let frame = Arc::new(pattern(bytes, 4));
        let ticket = writer.submit(Arc::clone(&frame), None).unwrap();
        first.read_exact(&mut [0; 100]).unwrap_or_else(|_| {
            std::thread::sleep(Duration::from_millis(100));
            first.read_exact(&mut [0; 100]).unwrap();
        });
        drop(first);
        let failure =
            Error::Broken { os_error: libc::EPIPE, bytes_delivered: 100, bytes_lost: bytes as u64 - 100 };
        assert_eq!(ticket.wait(), Err(failure.clone()));
        assert_eq!(Arc::strong_count(&frame), 1, "the memory is the caller's again");
        first = open_reader();
        let left = rustix::io::ioctl_fionread(&first).unwrap();
        assert_eq!(left, 0, "and the next reader gets nothing of it");
        assert_eq!(writer.close(None), Err(failure));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sync_has_not_waited_for_everything_while_an_empty_write_is_under_way() {
    for _ in 0..200 {
        let (_reader, end) = pipe().unwrap();
        let ticket = process::pipe(Vec::new(), &end, Mode::Auto, None).unwrap();
        match process::sync(Some(Duration::ZERO)) {
            Ok(()) => assert!(ticket.has_ended()),
            Err(error) => {
                assert!(matches!(error.first, Error::Stalled { .. }) && error.others.is_empty(), "{error:?}");
            }
        }
        ticket.wait().unwrap();
    }
}

#[test]
fn sync_reports_each_stream_that_has_failed_once() {
    in_own_process("writer::sync_reports_each_stream_that_has_failed_once", || {
        for _ in 0..2 {
            let (reader, end) = pipe().unwrap();
            drop(reader);
            process::pipe(vec![1; 10], &end, Mode::Write, None).unwrap();
        }
        let error = process::sync(None).unwrap_err();
        let failure = Error::Broken { os_error: libc::EPIPE, bytes_delivered: 0, bytes_lost: 10 };
        assert_eq!((&error.first, &error.others), (&failure, &vec![failure.clone()]));
        let converted = io::Error::from(error.clone());
        assert_eq!(converted.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(converted.downcast::<process::SyncError>().unwrap(), error);
        assert_eq!(process::sync(None), Ok(()));
    });
}

#[test]
fn an_io_write_copies_what_it_queues_by_every_transport() {
    let data = pattern(5_000_003, 9);
    let kinds = [ReaderKind::Unknown, ReaderKind::Reads];
    for (mode, known) in MODES.into_iter().flat_map(|mode| kinds.map(|known| (mode, known))) {
        let (reader, pipe) = pipe().unwrap();
        let writer = Writer::new(&pipe, &WriterOptions::default().mode(mode).reader(known)).unwrap();
        drop(pipe);
        let got = drain(reader, Temper::Chunky(70_000));
        let mut output = ByteWriter::new(writer);
        let mut scratch = vec![0; 1_500_000];
        for piece in data.chunks(scratch.len()) {
            scratch[..piece.len()].copy_from_slice(piece);
            output.write_all(&scratch[..piece.len()]).unwrap();
            scratch.fill(0); // while it is on its way
        }
        output.flush().unwrap();
        assert_eq!(output.get_ref().stats().pending_bytes, 0, "{mode:?}");
        drop(output);
        assert!(got.join().unwrap() == data, "{mode:?} {known:?}");
    }
}

#[test]
fn an_io_write_takes_a_piece_waits_for_room_and_reports_the_failure_with_its_counts() {
    let (mut reader, pipe) = pipe().unwrap();
    let writer = Writer::new(&pipe, &WriterOptions::default().mode(Mode::Write).queue_items(1)).unwrap();
    let mut output = ByteWriter::new(&writer);
    assert_eq!(output.write(&[]).unwrap(), 0);
    assert_eq!(output.write(&vec![1; 3 << 20]).unwrap(), 1 << 20);
    writer.flush(None).unwrap(); // the pipe holds as much
    assert_eq!(output.write(&[2; 10]).unwrap(), 10);
    let waiting = thread::spawn({
        let other = Writer::new(&pipe, &WriterOptions::default()).unwrap();
        move || ByteWriter::new(other).write(&[3; 10]).unwrap()
    });
    thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished(), "there is no room");
    read_exactly(&mut reader, (1 << 20) + 20);
    assert_eq!(waiting.join().unwrap(), 10);
    close_last_reader(reader, &pipe);
    let failed = |outcome: io::Result<()>| {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let failure =
            Error::Broken { os_error: libc::EPIPE, bytes_delivered: (1 << 20) + 20, bytes_lost: 10 };
        assert_eq!(error.downcast::<Error>().unwrap(), failure);
    };
    failed(output.write_all(&[4; 10]).and_then(|()| output.flush()));
    failed(output.write_all(&[5; 10]));
    writer.abort();
    assert_eq!(output.write(&[6]).unwrap_err().downcast::<Error>().unwrap(), Error::Closed);
}

/// A page that becomes readable when a fault on it is handled, as memory that a host program fills lazily.
static LAZY_PAGE: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());
const LAZY_BYTES: usize = 4096;

extern "C" fn open_lazy_page(_signal: libc::c_int) {
    // SAFETY: our own page, which only gets more accessible.
    unsafe { libc::mprotect(LAZY_PAGE.load(Ordering::Relaxed), LAZY_BYTES, libc::PROT_READ) };
}

struct LazyPage;

// SAFETY: it stays mapped, and the handler makes it readable.
unsafe impl Region for LazyPage {
    fn as_ptr(&self) -> *const u8 {
        LAZY_PAGE.load(Ordering::Relaxed).cast_const().cast()
    }
    fn len(&self) -> usize {
        LAZY_BYTES
    }
}

#[test]
fn a_fault_in_the_callers_memory_reaches_its_handler() {
    in_own_process("writer::a_fault_in_the_callers_memory_reaches_its_handler", || {
        // SAFETY: a new mapping that nobody has yet, and a handler that only calls mprotect(2).
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(std::ptr::null_mut(), LAZY_BYTES, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            LAZY_PAGE.store(page, Ordering::Relaxed);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = open_lazy_page as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESETHAND; // any other fault ends the process
            libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        }
        let (reader, pipe) = pipe().unwrap();
        let got = drain(reader, Temper::Eager);
        open(&pipe, Mode::Staged).submit(LazyPage, None).unwrap().wait().unwrap();
        drop(pipe);
        assert_eq!(got.join().unwrap(), [0; LAZY_BYTES]);
    });
}
