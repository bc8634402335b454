//! What the integration tests share, those of other crates too: readers of all tempers, data, and a reference.

#![allow(dead_code)] // not every test file uses all of it

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::pipe::PipeFlags;

/// How the other end of a pipe behaves.
#[derive(Clone, Copy, Debug)]
pub enum Temper {
    /// Reads as much as it can.
    Eager,
    /// Reads in pieces of that many bytes.
    Chunky(usize),
    /// Sleeps before each read.
    Slow,
    /// Passes pages on with splice(2) through `pv`, and looks at them late.
    Spliced,
}

pub fn pv_is_missing() -> bool {
    Command::new("pv").arg("--version").output().is_err()
}

/// Reads the pipe to its end on a thread of its own.
pub fn drain(reader: PipeReader, temper: Temper) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || match temper {
        Temper::Eager => read_all(reader, 1 << 20, Duration::ZERO),
        Temper::Chunky(bytes) => read_all(reader, bytes, Duration::ZERO),
        Temper::Slow => read_all(reader, 300_000, Duration::from_millis(1)),
        Temper::Spliced => through_pv(reader),
    })
}

fn read_all(mut source: impl Read, piece_bytes: usize, pause: Duration) -> Vec<u8> {
    let mut got = Vec::new();
    let mut piece = vec![0; piece_bytes];
    loop {
        thread::sleep(pause);
        match source.read(&mut piece).expect("a pipe can be read") {
            0 => return got,
            bytes => got.extend_from_slice(&piece[..bytes]),
        }
    }
}

fn through_pv(reader: PipeReader) -> Vec<u8> {
    let mut pv = Command::new("pv")
        .arg("-q")
        .stdin(Stdio::from(OwnedFd::from(reader)))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the caller has asked whether pv is there");
    let passed_on = pv.stdout.take().expect("it was asked for");
    let got = read_all(File::from(OwnedFd::from(passed_on)), 100_000, Duration::from_micros(200));
    assert!(pv.wait().expect("pv is ours").success());
    got
}

/// Closes the only reader of a pipe, and waits until the pipe has none: a program that another test starts at this moment has
/// a copy of it until it is executed.
pub fn close_last_reader(reader: PipeReader, pipe: &PipeWriter) {
    drop(reader);
    let mut end = libc::pollfd { fd: pipe.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the kernel reads and writes one struct, during the call.
    while unsafe { libc::poll(&raw mut end, 1, -1) } < 1 || end.revents & libc::POLLERR == 0 {}
}

/// Bytes that repeat nowhere near, so that a piece in the wrong place shows.
pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Runs the body of a test, named with its module, in a process of its own: for what the process has once.
pub fn in_own_process(test: &str, body: impl FnOnce()) {
    in_own_process_with(test, |_| {}, body);
}

/// As [`in_own_process`], with a process that `prepare` has prepared.
pub fn in_own_process_with(test: &str, prepare: impl FnOnce(&mut Command), body: impl FnOnce()) {
    const IS_CHILD: &str = "PENSTOCK_TEST_IN_OWN_PROCESS";
    if std::env::var_os(IS_CHILD).is_some() {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().expect("a test has a path"));
    prepare(&mut child);
    let output = child.args(["--exact", test]).env(IS_CHILD, "1").output().expect("it runs again");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.contains("1 passed"), "{}: {report}", output.status);
}

/// How many cases a property test tries: all of them if PENSTOCK_THOROUGH is set (`make test-exhaustive`), else a fifth.
pub fn cases(all: u32) -> u32 {
    if std::env::var_os("PENSTOCK_THOROUGH").is_some() { all } else { all.div_ceil(5) }
}

/// The reference: what a plain loop of blocking writes puts into a pipe.
pub fn plain_writes(mut pipe: PipeWriter, frames: &[Vec<u8>]) {
    for frame in frames {
        pipe.write_all(frame).expect("the reader reads all");
    }
}

/// A pipe that keeps writes apart, as packets of a page at most.
pub fn packet_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::DIRECT | PipeFlags::CLOEXEC).unwrap();
    (reader.into(), writer.into())
}

/// A file that is gone when it is closed.
pub fn unnamed_file() -> File {
    let flags = rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::open(std::env::temp_dir(), flags, mode)
        .expect("the folder for temporary files takes one")
        .into()
}
