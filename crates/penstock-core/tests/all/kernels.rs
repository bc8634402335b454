//! Kernels that lack system calls, by filters of seccomp(2), or have others. A filter cannot be removed, so that each has a
//! process of its own.

use std::io::{self, Read, pipe};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::LazyLock;

use crate::common::{Temper, drain, in_own_process, pattern};
use penstock_core::{Error, Mode, ReaderKind, Reason, Transport, Writer, WriterOptions};

/// Set where vmsplice(2) is to copy.
const COPIES: &str = "PENSTOCK_TEST_VMSPLICE_COPIES";

/// The tests of what calls vmsplice(2), and those of them that need its pages.
const WITH_PAGES: [&str; 3] = ["writer::", "transform::", "oracle::"];
const ABOUT_PAGES: [&str; 7] = [
    "writer::many_workers_sleep_and_leave_most_of_a_users_inotify_descriptors_to_others",
    "writer::a_fault_in_the_callers_memory",
    "zero_copy",
    "pages",
    "writer::auto_uses_zero_copy_for_a_slow_reader",
    "writer::memory_that_cannot_be_pinned_is_written_and_the_statistics_say_so",
    "writer::stats_name_the_transport_and_its_reason",
];

/// Stands in for the C library's vmsplice(2), which the core calls.
///
/// # Safety
///
/// As for vmsplice(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn vmsplice(
    fd: libc::c_int,
    parts: *const libc::iovec,
    count: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    static COPY: LazyLock<bool> = LazyLock::new(|| std::env::var_os(COPIES).is_some());
    // SAFETY: the caller's promise.
    let returned = unsafe {
        if *COPY {
            libc::syscall(libc::SYS_pwritev2, fd, parts, count, -1_i64, 0_i64, libc::RWF_NOWAIT)
        } else {
            libc::syscall(libc::SYS_vmsplice, fd, parts, count, flags)
        }
    };
    returned as libc::ssize_t
}

const NO_NOWAIT: [(libc::c_long, i32); 2] =
    [(libc::SYS_preadv2, libc::EOPNOTSUPP), (libc::SYS_pwritev2, libc::EOPNOTSUPP)];

/// A filter by which each of these calls fails with its error.
fn filter(refused: &[(libc::c_long, i32)]) -> Vec<libc::sock_filter> {
    let line = |code, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let give = |answer| line(libc::BPF_RET | libc::BPF_K, 0, answer);
    let mut filter = vec![line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)]; // the number of the call
    for &(call, errno) in refused {
        filter.push(line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, call as u32));
        filter.push(give(libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    filter.push(give(libc::SECCOMP_RET_ALLOW));
    filter
}

/// Puts the filter on this thread, and on all threads and programs that it starts.
fn install(filter: &mut [libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is the filter, which the kernel copies.
    let is_on = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if is_on { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs tests again, in a process of its own that is prepared so.
fn run_again(tests: &[&str], skipped: &[&str], prepare: impl FnOnce(&mut Command)) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(tests).args(skipped.iter().flat_map(|test| ["--skip", *test]));
    prepare(&mut child);
    let output = child.output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !report.contains("ok. 0 passed"), "{}: {report}", output.status);
}

fn run_again_refusing(refused: &[(libc::c_long, i32)], tests: &[&str], skipped: &[&str]) {
    let mut filter = filter(refused);
    run_again(tests, skipped, |child| {
        // SAFETY: between fork and exec, `install` makes system calls only.
        unsafe { child.pre_exec(move || install(&mut filter)) };
    });
}

#[test]
fn all_tests_pass_before_linux_6_4() {
    run_again_refusing(&NO_NOWAIT, &["writer::", "reader::", "relay::", "tee::", "fifo::", "oracle::"], &[]);
}

#[test]
fn all_tests_pass_without_vmsplice() {
    run_again_refusing(&[(libc::SYS_vmsplice, libc::ENOSYS)], &WITH_PAGES, &ABOUT_PAGES);
}

#[test]
fn all_tests_pass_if_vmsplice_copies() {
    run_again(&WITH_PAGES, &ABOUT_PAGES, |child| {
        child.env(COPIES, "1");
    });
}

#[test]
fn all_tests_pass_without_inotify() {
    let skipped = [
        "writer::a_zero_copy_worker_sleeps_while_its_reader_pauses",
        "writer::many_workers_sleep_and_leave_most_of_a_users_inotify_descriptors_to_others",
    ];
    run_again_refusing(&[(libc::SYS_inotify_init1, libc::ENOSYS)], &["writer::", "oracle::"], &skipped);
}

#[test]
fn large_writes_go_by_write_without_vmsplice() {
    in_own_process("kernels::large_writes_go_by_write_without_vmsplice", || {
        install(&mut filter(&[(libc::SYS_vmsplice, libc::EINVAL)])).unwrap();
        write_in_all_modes(Reason::NoVmsplice);
    });
}

#[test]
fn large_writes_go_by_write_if_vmsplice_copies() {
    in_own_process("kernels::large_writes_go_by_write_if_vmsplice_copies", || {
        // SAFETY: no other test runs in this process.
        unsafe { std::env::set_var(COPIES, "1") };
        write_in_all_modes(Reason::VmspliceCopies);
    });
}

#[test]
fn large_writes_go_by_write_if_the_process_may_have_no_huge_pages() {
    in_own_process("kernels::large_writes_go_by_write_if_the_process_may_have_no_huge_pages", || {
        const NONE: libc::c_ulong = 0;
        // SAFETY: it touches no memory.
        let answer = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as libc::c_ulong, NONE, NONE, NONE) };
        assert_eq!(answer, 0);
        for mode in [Mode::Auto, Mode::Staged] {
            write_by_write(mode, ReaderKind::Unknown, Reason::NoHugePages);
        }
    });
}

fn write_in_all_modes(against_pages: Reason) {
    for reader_kind in [ReaderKind::Unknown, ReaderKind::Reads] {
        for mode in [Mode::Auto, Mode::Staged, Mode::ZeroCopy] {
            write_by_write(mode, reader_kind, against_pages);
        }
    }
}

fn write_by_write(mode: Mode, reader_kind: ReaderKind, reason: Reason) {
    let (reader, end) = pipe().unwrap();
    let got = drain(reader, Temper::Eager);
    let options = WriterOptions::default().mode(mode).reader(reader_kind);
    let writer = Writer::new(&end, &options).unwrap();
    drop(end);
    let frame = pattern(1 << 20, 1);
    writer.submit(frame.clone(), None).unwrap().wait().unwrap();
    assert_eq!(writer.stats().choice, Some((Transport::Write, reason)), "{mode:?}");
    writer.close(None).unwrap();
    assert!(got.join().unwrap() == frame);
}

/// write(2) calls of this process so far.
fn writes() -> u64 {
    let counts = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = counts.lines().find(|line| line.starts_with("syscw")).unwrap();
    line.split_once(": ").unwrap().1.parse().unwrap()
}

#[test]
fn pipe_write_takes_few_calls_before_linux_6_4() {
    const FRAMES: u64 = 5;
    in_own_process("kernels::pipe_write_takes_few_calls_before_linux_6_4", || {
        install(&mut filter(&NO_NOWAIT)).unwrap();
        for bytes in [50_000, 1_000_000] {
            let (reader, end) = pipe().unwrap();
            let got = drain(reader, Temper::Eager);
            let writer = Writer::new(&end, &WriterOptions::default().mode(Mode::Write)).unwrap();
            drop(end);
            let frame = pattern(bytes, 1);
            let before = writes();
            for _ in 0..FRAMES {
                writer.submit(frame.clone(), None).unwrap().wait().unwrap();
            }
            let calls = writes() - before;
            assert!(calls <= FRAMES * (bytes as u64).div_ceil(16 << 10), "{calls} calls");
            assert_eq!(writer.stats().choice, Some((Transport::Write, Reason::Asked)));
            writer.close(None).unwrap();
            assert!(got.join().unwrap() == frame.repeat(FRAMES as usize));
        }
    });
}

#[test]
fn writer_says_why_it_is_slow_before_linux_6_4_and_without_proc() {
    in_own_process("kernels::writer_says_why_it_is_slow_before_linux_6_4_and_without_proc", || {
        let mut refused = NO_NOWAIT.to_vec();
        refused.push((libc::SYS_openat, libc::ENOENT));
        #[cfg(target_arch = "x86_64")]
        refused.push((libc::SYS_open, libc::ENOENT));
        install(&mut filter(&refused)).unwrap();
        for (mode, bytes, expected) in [
            (Mode::Auto, 50_000, Reason::NoNonBlockingWrite),
            (Mode::Write, 50_000, Reason::NoNonBlockingWrite),
            (Mode::Write, 4096, Reason::Asked),
            (Mode::Write, 1 << 20, Reason::Asked), // by the private pipe
        ] {
            let (reader, end) = pipe().unwrap();
            let got = drain(reader, Temper::Eager);
            let writer = Writer::new(&end, &WriterOptions::default().mode(mode)).unwrap();
            drop(end);
            let frame = pattern(bytes, 1);
            writer.submit(frame.clone(), None).unwrap().wait().unwrap();
            assert_eq!(writer.stats().choice, Some((Transport::Write, expected)), "{mode:?} {bytes}");
            writer.close(None).unwrap();
            assert!(got.join().unwrap() == frame);
        }
    });
}

#[test]
fn gone_reader_is_a_failure_before_linux_6_4() {
    in_own_process("kernels::gone_reader_is_a_failure_before_linux_6_4", || {
        install(&mut filter(&NO_NOWAIT)).unwrap();
        for bytes in [1000, 50_000, 1_000_000] {
            let (reader, end) = pipe().unwrap();
            drop(reader);
            let writer = Writer::new(&end, &WriterOptions::default().mode(Mode::Write)).unwrap();
            let outcome = writer.submit(pattern(bytes, 1), None).unwrap().wait();
            assert!(matches!(outcome, Err(Error::Broken { bytes_delivered: 0, .. })), "{outcome:?}");
        }
    });
}

#[test]
fn mode_of_the_callers_descriptor_stays_before_linux_6_4() {
    in_own_process("kernels::mode_of_the_callers_descriptor_stays_before_linux_6_4", || {
        install(&mut filter(&NO_NOWAIT)).unwrap();
        let (mut reader, end) = pipe().unwrap();
        let writer = Writer::new(&end, &WriterOptions::default()).unwrap();
        writer.submit(vec![1; 1000], None).unwrap().wait().unwrap();
        let flags = rustix::fs::fcntl_getfl(&end).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
        reader.read_exact(&mut [0; 1000]).unwrap();
        writer.close(None).unwrap();
    });
}
