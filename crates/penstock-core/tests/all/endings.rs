//! What happens when somebody discards, when nothing more can be started, and when the program ends.

use std::fs::File;
use std::io::{Read, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use rustix::event::EventfdFlags;

use crate::common::{close_last_reader, in_own_process};
use penstock_core::{
    Error, Mode, Region, RelayOptions, Transform, Writer, WriterOptions, engine, process, relay_in_background,
};

const A_WHILE: Option<Duration> = Some(Duration::from_millis(100));
/// For what happens soon, unless it hangs.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

fn open(end: &std::io::PipeWriter) -> Writer {
    let options = WriterOptions::default().mode(Mode::Write).capacity_bytes(64 << 10);
    Writer::new(end, &options).unwrap()
}

fn is_stalled<T: std::fmt::Debug>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Stalled { .. }))
}

#[test]
fn a_flush_does_not_count_what_another_writer_aborted() {
    let (_reader, end) = pipe().unwrap();
    let (kept, given_up) = (open(&end), open(&end));
    for _ in 0..2 {
        kept.submit(vec![1; 1 << 20], None).unwrap();
    }
    let mark = kept.mark();
    for _ in 0..2 {
        given_up.submit(vec![2; 10], None).unwrap();
    }
    given_up.abort(); // as many as are before the mark
    assert!(is_stalled(&kept.flush_to(mark, A_WHILE)), "nothing was read");
    assert!(is_stalled(&kept.close(A_WHILE)));
    kept.abort();
}

#[test]
fn a_sync_does_not_count_what_a_writer_aborted() {
    let (mut reader, end) = pipe().unwrap();
    let ticket = process::pipe(vec![1; 4 << 20], &end, Mode::Write, None).unwrap(); // more than the pipe holds
    let marks = engine::marks();
    let writer = open(&end);
    writer.submit(vec![2; 10], None).unwrap();
    writer.abort();
    let error = engine::sync_to(&marks, A_WHILE).unwrap_err();
    assert!(matches!(error.first, Error::Stalled { .. }) && error.others.is_empty(), "{error:?}");
    reader.read_exact(&mut vec![0; 4 << 20]).unwrap();
    ticket.wait().unwrap();
}

#[test]
fn flush_and_close_fail_if_items_are_discarded_meanwhile() {
    let (_reader, end) = pipe().unwrap();
    let writer = Arc::new(open(&end));
    for _ in 0..3 {
        writer.submit(vec![1; 4 << 20], None).unwrap();
    }
    let waiting = [false, true].map(|closes| {
        let writer = Arc::clone(&writer);
        thread::spawn(move || if closes { writer.close(None) } else { writer.flush(None) })
    });
    thread::sleep(Duration::from_millis(100)); // so that both wait
    writer.abort();
    for waiting in waiting {
        let Err(Error::Aborted { bytes_lost }) = waiting.join().unwrap() else { panic!("it was no success") };
        assert!(bytes_lost > 11 << 20, "{bytes_lost} of 12 MiB, for the pipe holds the rest");
    }
}

/// The refusal comes as soon as the queue has failed.
#[test]
fn a_writer_opened_after_a_refusal_has_a_new_stream() {
    for _ in 0..500 {
        let (reader, end) = pipe().unwrap();
        let writer = open(&end);
        writer.submit(vec![1; 80 << 10], None).unwrap(); // more than the pipe holds
        thread::scope(|scope| {
            scope.spawn(|| drop(reader));
            while writer.submit(vec![1; 10], None).is_ok() {}
            assert_eq!(open(&end).stats().accepted_items, 0);
        });
    }
}

#[test]
fn aborted_bytes_do_not_count_as_lost_to_a_later_failure() {
    in_own_process("endings::aborted_bytes_do_not_count_as_lost_to_a_later_failure", || {
        let (reader, end) = pipe().unwrap();
        let (kept, given_up) = (open(&end), open(&end));
        let blocked = kept.submit(vec![1; 2 << 20], None).unwrap();
        given_up.submit(vec![2; 5 << 20], None).unwrap();
        given_up.abort();
        drop(reader);
        let failure = Error::Broken { os_error: libc::EPIPE, bytes_delivered: 0, bytes_lost: 2 << 20 };
        while !blocked.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(blocked.peek(), Some(Err(failure)));
        assert_eq!(kept.stats().pending_bytes, 0);
        assert_eq!(process::take_unreported_bytes(), 2 << 20, "and a look has reported nothing");
    });
}

fn eventfd(count: u32, flags: EventfdFlags) -> OwnedFd {
    rustix::event::eventfd(count, flags | EventfdFlags::CLOEXEC).unwrap()
}

#[test]
fn an_abort_cuts_a_write_to_an_eventfd_that_is_full() {
    let event = eventfd(0, EventfdFlags::empty());
    let writer = Writer::new(&event, &WriterOptions::default()).unwrap();
    let full = u64::MAX - 1;
    writer.submit(full.to_ne_bytes().to_vec(), None).unwrap().wait().unwrap();
    let ticket = writer.submit(1u64.to_ne_bytes().to_vec(), None).unwrap();
    assert_eq!(ticket.wait_for(A_WHILE), None);
    writer.abort();
    assert_eq!(ticket.wait_for(PATIENCE), Some(Err(Error::Aborted { bytes_lost: 8 })));
    let mut count = [0; 8];
    rustix::io::read(&event, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), full);
}

#[test]
fn an_eventfd_does_not_inherit_the_failure_of_another() {
    in_own_process("endings::an_eventfd_does_not_inherit_the_failure_of_another", || {
        let first = eventfd(0, EventfdFlags::NONBLOCK);
        let number = first.as_raw_fd();
        process::pipe(vec![1; 4], &first, Mode::Auto, None).unwrap(); // eight bytes are needed
        thread::sleep(A_WHILE.unwrap());
        let same = process::pipe(vec![1; 8], &first, Mode::Auto, None);
        assert_eq!(
            same.unwrap_err().error,
            Error::Io { os_error: libc::EINVAL, bytes_delivered: 0, bytes_lost: 4 }
        );
        drop(first);
        let second = eventfd(0, EventfdFlags::NONBLOCK);
        assert_eq!(second.as_raw_fd(), number);
        process::pipe(1u64.to_ne_bytes().to_vec(), &second, Mode::Auto, None).unwrap().wait().unwrap();
        assert!(matches!(process::sync(None).unwrap_err().first, Error::Io { os_error: libc::EINVAL, .. }));
        process::sync(None).unwrap();
    });
}

#[test]
fn a_failure_that_a_ticket_has_reported_is_not_kept_for_sync() {
    in_own_process("endings::a_failure_that_a_ticket_has_reported_is_not_kept_for_sync", || {
        let broken = || {
            let (reader, end) = pipe().unwrap();
            drop(reader);
            process::pipe(vec![1; 10], &end, Mode::Write, None).unwrap()
        };
        let (waited_for, looked_at) = (broken(), broken());
        assert!(matches!(waited_for.wait(), Err(Error::Broken { .. })));
        while !looked_at.has_ended() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(looked_at.peek(), Some(Err(Error::Broken { .. }))));
        assert_eq!(process::sync(None).unwrap_err().others, []);
        assert_eq!(process::sync(None), Ok(()));
        assert_eq!(process::take_unreported_bytes(), 0);
    });
}

#[test]
fn a_sync_of_some_writes_waits_for_all_of_them_and_then_reports_each_stream() {
    let pipes = [(); 3].map(|()| pipe().unwrap());
    let frame = Arc::new(vec![1; 4 << 20]);
    let mut tickets = Vec::new();
    for (_, end) in &pipes {
        for _ in 0..2 {
            tickets.push(process::pipe(Arc::clone(&frame), end, Mode::Write, None).unwrap());
        }
    }
    let [(first, _), (mut second, _), (third, _)] = pipes;
    drop((first, third));
    let stalled = engine::sync_writes(&tickets, A_WHILE).unwrap_err();
    assert!(matches!(stalled.first, Error::Stalled { bytes_pending: 0x80_0000, .. }), "{stalled:?}");
    thread::scope(|scope| {
        let synced = scope.spawn(|| engine::sync_writes(&tickets, None));
        second.read_exact(&mut vec![0; 8 << 20]).unwrap();
        let error = synced.join().unwrap().unwrap_err();
        assert!(tickets.iter().all(penstock_core::Ticket::has_ended));
        assert!(matches!(error.first, Error::Broken { .. }));
        assert_eq!(error.others.len(), 1, "each stream's once: {error:?}");
    });
}

#[test]
fn a_sync_of_some_writes_reports_the_failure_behind_an_abort() {
    in_own_process("endings::a_sync_of_some_writes_reports_the_failure_behind_an_abort", || {
        let (reader, end) = pipe().unwrap();
        let (given_up, kept) = (open(&end), open(&end));
        let tickets = [&given_up, &kept].map(|writer| writer.submit(vec![1; 4 << 20], None).unwrap());
        given_up.abort();
        drop(reader);
        let error = engine::sync_writes(&tickets, PATIENCE).unwrap_err();
        assert!(matches!(error.first, Error::Aborted { .. }), "{error:?}");
        assert!(matches!(error.others[..], [Error::Broken { .. }]), "{error:?}");
        assert_eq!(process::take_unreported_bytes(), 0);
    });
}

/// Takes a while.
#[derive(Debug)]
struct Slow;

impl Transform for Slow {
    fn input_bytes(&self) -> usize {
        1
    }
    fn output_bytes(&self) -> usize {
        1
    }
    fn steps(&self) -> usize {
        1
    }
    fn apply(&self, _: usize, _: &[u8], _: &mut [u8]) {
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_flush_reports_bytes_that_nobody_reads_while_others_write() {
    let (reader, end) = pipe().unwrap();
    let slow = WriterOptions::default().transform(Arc::new(Slow));
    let (writer, other) = (open(&end), Writer::new(&end, &slow).unwrap());
    writer.submit(vec![1; 10], None).unwrap().wait().unwrap();
    let mark = writer.mark();
    close_last_reader(reader, &end);
    let in_flight = other.submit(vec![1], None).unwrap();
    let flushed = writer.flush_to(mark, None);
    assert!(matches!(flushed, Err(Error::Broken { bytes_delivered: 0, bytes_lost: 11, .. })), "{flushed:?}");
    assert_eq!(in_flight.wait(), flushed);
}

#[test]
fn last_descriptor_of_a_finished_write_is_not_reused() {
    let (mut reader, end) = pipe().unwrap();
    let zero_copy = WriterOptions::default().mode(Mode::ZeroCopy);
    let (gone, other) = (Writer::new(&end, &zero_copy).unwrap(), open(&end));
    let read = gone.submit(vec![1; 5000], None).unwrap();
    drop(gone); // the write has its descriptor
    other.submit(vec![2; 50_000], None).unwrap();
    while rustix::io::ioctl_fionread(&reader).unwrap() < 55_000 {
        thread::sleep(Duration::from_millis(1));
    }
    reader.read_exact(&mut [0; 6000]).unwrap();
    close_last_reader(reader, &end);
    let flushed = other.flush(None);
    assert!(
        matches!(flushed, Err(Error::Broken { bytes_delivered: 6000, bytes_lost: 49_000, .. })),
        "{flushed:?}"
    );
    assert_eq!(read.wait(), Ok(()));
}

/// A waker of a program that does this when it is woken.
struct Does<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A write that finds the queue full, polled with a waker that does this.
fn keep_awaiting_room(
    writer: &Writer,
    when_woken: impl Fn() + Send + Sync + 'static,
) -> impl Future<Output: Sized> {
    let waker = Waker::from(Arc::new(Does(when_woken)));
    let mut write = Box::pin(writer.submit_async(vec![2; 10]));
    assert!(write.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    write
}

#[test]
fn a_waker_may_use_streams_when_one_fails() {
    in_own_process("endings::a_waker_may_use_streams_when_one_fails", || {
        let (reader, end) = pipe().unwrap();
        let options = WriterOptions::default().mode(Mode::Write).queue_items(1);
        let writer = Writer::new(&end, &options).unwrap();
        let (woken, is_woken) = std::sync::mpsc::channel();
        let blocked = writer.submit(vec![1; 8 << 20], None).unwrap();
        let write = keep_awaiting_room(&writer, move || {
            let _ = (engine::marks(), open(&pipe().unwrap().1));
            woken.send(()).unwrap();
        });
        drop(reader);
        assert!(matches!(blocked.wait_for(PATIENCE), Some(Err(Error::Broken { .. }))));
        assert_eq!(is_woken.recv_timeout(PATIENCE.unwrap()), Ok(()));
        drop(write);
    });
}

#[test]
fn a_waker_may_open_a_writer_when_another_one_raises_the_limit() {
    in_own_process("endings::a_waker_may_open_a_writer_when_another_one_raises_the_limit", || {
        let (_reader, end) = pipe().unwrap();
        let options = WriterOptions::default().mode(Mode::Write).queue_items(1);
        let writer = Writer::new(&end, &options).unwrap();
        writer.submit(vec![1; 8 << 20], None).unwrap();
        let (woken, is_woken) = std::sync::mpsc::channel();
        let other = end.try_clone().unwrap();
        let write = keep_awaiting_room(&writer, move || {
            drop(open(&other));
            woken.send(()).unwrap();
        });
        let raised = thread::spawn(move || drop(Writer::new(&end, &WriterOptions::default().queue_items(2))));
        assert_eq!(is_woken.recv_timeout(PATIENCE.unwrap()), Ok(()));
        raised.join().unwrap();
        drop(write);
        writer.abort();
    });
}

/// Memory whose release fails.
struct Panics;

// SAFETY: static memory.
unsafe impl Region for Panics {
    fn as_ptr(&self) -> *const u8 {
        [3; 10].as_ptr()
    }
    fn len(&self) -> usize {
        10
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a release that fails");
    }
}

#[test]
fn panic_in_the_code_of_a_caller_harms_no_stream() {
    let (mut reader, end) = pipe().unwrap();
    let writer = open(&end);
    let blocked = writer.submit(vec![1; 1 << 20], None).unwrap();
    blocked.on_end(|| panic!("a callback that fails"));
    writer.submit(Panics, None).unwrap();
    let last = writer.submit(vec![2; 10], None).unwrap();
    reader.read_exact(&mut vec![0; (1 << 20) + 20]).unwrap();
    assert_eq!((blocked.wait(), last.wait(), writer.close(None)), (Ok(()), Ok(()), Ok(())));
}

#[test]
fn work_that_gets_no_thread_is_dropped_after_the_lock() {
    in_own_process("endings::work_that_gets_no_thread_is_dropped_after_the_lock", || {
        let (lingering, _peer) = UnixStream::pair().unwrap();
        // Its close starts a thread of its own.
        rustix::net::sockopt::set_socket_linger(&lingering, Some(Duration::from_secs(5))).unwrap();
        let (_reader, end) = pipe().unwrap();
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let present = rustix::process::getrlimit(rustix::process::Resource::As);
        let tight = rustix::process::Rlimit {
            current: Some(pages * rustix::param::page_size() as u64 + (1 << 20)), // less than a stack
            maximum: present.maximum,
        };
        rustix::process::setrlimit(rustix::process::Resource::As, tight).unwrap();
        let relayed = relay_in_background(&lingering, &end, &RelayOptions::default(), None);
        rustix::process::setrlimit(rustix::process::Resource::As, present).unwrap();
        assert!(matches!(relayed.unwrap_err().error, Error::NoThread { .. }));
    });
}

#[test]
fn a_program_that_returns_from_main_delivers_what_it_has_queued() {
    const FIFO: &str = "PENSTOCK_TEST_FIFO";
    const TEST: &str = "endings::a_program_that_returns_from_main_delivers_what_it_has_queued";
    if let Some(path) = std::env::var_os(FIFO) {
        let writer =
            Writer::new(File::options().write(true).open(path).unwrap(), &WriterOptions::default()).unwrap();
        (0..4).for_each(|_| drop(writer.submit(vec![7; 4 << 20], None).unwrap()));
        return;
    }
    let path = std::env::temp_dir().join(format!("penstock-main-{}", std::process::id()));
    penstock_core::Fifo::create(&path, 0o600).unwrap();
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own);
    child.args(["--exact", TEST]).env(FIFO, &path).stdout(Stdio::null());
    let mut child = child.spawn().unwrap();
    let mut reader = File::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    thread::sleep(Duration::from_millis(200)); // the test is over, and nothing was read
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(got.len(), 16 << 20);
}

#[test]
fn a_process_forks_after_its_thread_locals_are_gone() {
    extern "C" fn fork_at_exit() {
        // SAFETY: the child only ends, and the parent waits for it.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => libc::waitpid(child, std::ptr::null_mut(), 0),
            };
            libc::_exit(7);
        }
    }
    const CHILD: &str = "PENSTOCK_TEST_FORKS_AT_EXIT";
    const TEST: &str = "endings::a_process_forks_after_its_thread_locals_are_gone";
    if std::env::var_os(CHILD).is_some() {
        let (_reader, end) = pipe().unwrap();
        open(&end).submit(vec![1; 10], None).unwrap().wait().unwrap();
        // SAFETY: the first fork makes thread-local state; the exit from this thread ends that before the second.
        unsafe {
            libc::atexit(fork_at_exit);
            match libc::fork() {
                0 => libc::_exit(0),
                child => libc::waitpid(child, std::ptr::null_mut(), 0),
            };
            libc::exit(0);
        }
    }
    let mut own = Command::new(std::env::current_exe().unwrap());
    let ended = own.args(["--exact", TEST]).env(CHILD, "1").output().unwrap().status;
    assert_eq!(ended.code(), Some(7), "{ended}");
}

#[test]
fn own_descriptors_have_high_numbers_and_are_never_standard_streams() {
    let name = "endings::own_descriptors_have_high_numbers_and_are_never_standard_streams";
    in_own_process(name, || {
        // SAFETY: nobody in this process reads from it.
        unsafe { libc::close(0) };
        let made = numbers_of_a_writer();
        assert!(!made.is_empty() && made.iter().all(|number| *number >= 512), "{made:?}");
        let few = rustix::process::Rlimit { current: Some(100), maximum: Some(100) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
        let made = numbers_of_a_writer();
        assert!(!made.is_empty() && made.iter().all(|number| *number > 2), "{made:?}");
    });
}

/// The numbers of the descriptors that a writer has, on a pipe of its own.
fn numbers_of_a_writer() -> Vec<i32> {
    let open_numbers = || {
        (0..1000)
            .filter(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok())
            .collect::<Vec<_>>()
    };
    let (_reader, end) = pipe().unwrap();
    let end = end.try_clone().unwrap(); // std's, too, avoids the standard streams
    let before = open_numbers();
    let writer = open(&end);
    writer.submit(vec![1; 10], None).unwrap().wait().unwrap();
    open_numbers().into_iter().filter(|number| !before.contains(number)).collect()
}
