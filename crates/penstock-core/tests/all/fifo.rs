//! What FIFOs promise, on real ones.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use penstock_core::{Access, Error, Fifo, FifoTicket};

use crate::common::in_own_process;
use crate::eventually;

const A_WHILE: Duration = Duration::from_millis(100);
/// For what must happen at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder of one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("penstock-fifo-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn fifo(&self) -> (PathBuf, Fifo) {
        let path = self.0.join("fifo");
        Fifo::create(&path, 0o600).unwrap();
        (path.clone(), Fifo::at(path).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn has_reader(path: &Path) -> bool {
    match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
            false
        }
    }
}

fn taken(ticket: &FifoTicket) -> File {
    ticket.wait_for(Some(PATIENCE)).expect("the other side is there").unwrap();
    File::from(ticket.take().unwrap())
}

fn pass(text: &str, writer: impl Into<OwnedFd>, reader: impl Into<OwnedFd>) {
    let mut got = String::new();
    let mut writer = File::from(writer.into());
    writer.write_all(text.as_bytes()).unwrap();
    drop(writer);
    File::from(reader.into()).read_to_string(&mut got).unwrap();
    assert_eq!(got, text);
}

#[test]
fn smoke() {
    let folder = Folder::new();
    let (_, fifo) = folder.fifo();
    let reader = fifo.reader().unwrap();
    pass("frame", fifo.writer(Some(PATIENCE)).unwrap(), reader);
}

#[test]
fn path_that_is_no_fifo_is_named_by_its_kind() {
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name);
    fs::write(at("file"), "").unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    for (path, what) in [
        (at("file"), "a regular file"),
        (folder.0.clone(), "a directory"),
        (at("socket"), "a socket"),
        ("/dev/null".into(), "a character device"),
    ] {
        let expected = format!("{} is {what}, not a FIFO", path.display());
        assert_eq!(Fifo::at(path).unwrap_err(), Error::Unsuitable(expected.into()));
    }
    let os_error = |error| match error {
        Error::Io { os_error, .. } => os_error,
        other => panic!("{other:?}"),
    };
    assert_eq!(os_error(Fifo::at(at("nothing")).unwrap_err()), libc::ENOENT);
    assert_eq!(os_error(Fifo::create(at("file"), 0o600).unwrap_err()), libc::EEXIST);
}

#[test]
fn a_writer_waits_for_readers_of_every_kind() {
    type Opener = fn(&Path) -> File;
    let openers: [Opener; 3] = [
        |path| File::open(path).unwrap(), // blocks until there is a writer
        |path| OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap(),
        |path| OpenOptions::new().read(true).write(true).open(path).unwrap(),
    ];
    for opener in openers {
        let folder = Folder::new();
        let (path, fifo) = folder.fifo();
        let Err(Error::Stalled { waited, .. }) = fifo.writer(Some(A_WHILE)) else {
            panic!("nobody is there to read");
        };
        assert!(waited >= A_WHILE);
        let reader = thread::spawn(move || {
            thread::sleep(A_WHILE);
            opener(&path)
        });
        let writer = fifo.writer(Some(PATIENCE)).unwrap();
        File::from(writer).write_all(b"x").unwrap();
        let mut got = [0];
        reader.join().unwrap().read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
    }
}

/// Whether it is silent, has written, or is gone again: nothing of what it wrote is missing afterwards.
#[test]
fn a_reader_waits_for_writers_of_every_kind() {
    for (text, stays) in [("", true), ("frame", true), ("frame", false), ("", false)] {
        let folder = Folder::new();
        let (path, fifo) = folder.fifo();
        let ticket = fifo.open_in_background(Access::Read).unwrap();
        let mut opening = fifo.opening(Access::Read);
        assert!(matches!(opening.wait_for(Some(A_WHILE)), Err(Error::Stalled { .. })));
        assert_eq!(ticket.wait_for(Some(Duration::ZERO)), None);
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        let writer = stays.then_some(writer);
        let mut reader = taken(&ticket);
        drop(opening.wait_for(Some(PATIENCE)).unwrap());
        drop(writer);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, text);
        assert_eq!(ticket.take().unwrap_err(), Error::Closed);
    }
}

#[test]
fn pending_open_keeps_its_fifo_if_the_path_is_replaced() {
    let folder = Folder::new();
    let (path, fifo) = folder.fifo();
    let ticket = fifo.open_in_background(Access::Write).unwrap();
    let moved = path.with_extension("moved");
    fs::rename(&path, &moved).unwrap();
    Fifo::create(&path, 0o600).unwrap();
    let stranger = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    assert_eq!(ticket.wait_for(Some(A_WHILE)), None);
    let reader = File::open(&moved).unwrap();
    pass("to the first", taken(&ticket), reader);
    drop(stranger);
    fs::remove_file(&moved).unwrap();
    let reader = fifo.reader().unwrap();
    pass("it has no name any more", fifo.writer(Some(PATIENCE)).unwrap(), reader);
}

#[test]
fn cancelled_or_dropped_open_leaves_no_reader() {
    let folder = Folder::new();
    let (path, fifo) = folder.fifo();
    let waiting = fifo.open_in_background(Access::Read).unwrap();
    eventually(|| has_reader(&path));
    assert!(waiting.wait_for(Some(PATIENCE)).is_some());
    for give_up in [FifoTicket::cancel as fn(&FifoTicket), |_| ()] {
        // Whether it is still waiting or has been met by the writer that `has_reader` was.
        for _ in 0..2 {
            let ticket = fifo.open_in_background(Access::Read).unwrap();
            give_up(&ticket);
            drop(ticket);
        }
    }
    waiting.cancel();
    assert_eq!(waiting.wait_for(None), Some(Err(Error::Aborted { bytes_lost: 0 })));
    assert_eq!(waiting.take().unwrap_err(), Error::Aborted { bytes_lost: 0 });
    eventually(|| !has_reader(&path));
}

#[test]
fn a_cancelled_wait_ends_as_aborted() {
    let folder = Folder::new();
    let (_, fifo) = folder.fifo();
    for access in [Access::Read, Access::Write] {
        // More than there may be inotify instances (128 by default), so that some look by the clock.
        let tickets: Vec<_> = (0..200).map(|_| fifo.open_in_background(access).unwrap()).collect();
        thread::sleep(A_WHILE);
        assert!(tickets.iter().all(|ticket| ticket.ticket().outcome().is_none()));
        tickets.iter().for_each(FifoTicket::cancel);
        for ticket in &tickets {
            assert_eq!(ticket.wait_for(Some(PATIENCE)), Some(Err(Error::Aborted { bytes_lost: 0 })));
        }
    }
}

#[test]
fn after_a_cancellation_no_writer_finds_a_reader() {
    // Another test's child has the descriptors of this process until it has started its program.
    in_own_process("fifo::after_a_cancellation_no_writer_finds_a_reader", || {
        let folder = Folder::new();
        let (path, fifo) = folder.fifo();
        for _ in 0..200 {
            let ticket = fifo.open_in_background(Access::Read).unwrap();
            thread::sleep(Duration::from_millis(1)); // by then most have opened it; `has_reader` would end the wait
            ticket.cancel();
            assert!(!has_reader(&path));
        }
    });
}

#[test]
fn descriptors_block_and_are_closed_on_exec() {
    let folder = Folder::new();
    let (_, fifo) = folder.fifo();
    let reader = fifo.reader().unwrap();
    let writer = fifo.writer(Some(PATIENCE)).unwrap();
    for fd in [reader, writer] {
        let flags = |file: &str| {
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{file}")).unwrap();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
            i32::from_str_radix(flags, 8).unwrap()
        };
        let number = fd.as_raw_fd().to_string();
        assert_eq!(flags(&number) & (libc::O_NONBLOCK | libc::O_CLOEXEC), libc::O_CLOEXEC);
    }
}
