//! File descriptors: their numbers, how they close, and reads and writes that do not block.

use std::io::IsTerminal;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major};
use rustix::io::{DupFlags, Errno, dup3};
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{AddressFamily, RecvFlags, recv};

pub(crate) use super::facts::StreamId;
use super::facts::{Facts, is_anonymous, kind_of, terminal_number};
use super::signals::WithoutWriteSignals;
use super::wait::{Events, ready};
use crate::sys::error::{Result, SysError};
use crate::sys::faults::{Call, pass};
pub(crate) use crate::sys::kind::{Closing, Kind};
use crate::sys::span::Span;

/// Where the numbers of our own descriptors begin. The system gives a program the lowest free ones, so that one which it has
/// closed, and passes to us or writes to by mistake, is not ours. Chosen: half of the usual limit (`RLIMIT_NOFILE`, 1024).
const OWN_NUMBERS: RawFd = 512;

/// The first number behind the standard streams, which a program may close and open again.
const FIRST_NUMBER: RawFd = 3;

/// Duplicates the descriptor, closed on exec, among our own numbers. Where the limit is lower, or all of them are taken,
/// behind the standard streams.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    duplicate_from(OWN_NUMBERS, fd).or_else(|_| duplicate_from(FIRST_NUMBER, fd))
}

fn duplicate_from(least: RawFd, fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    pass(Call::NewDescriptor, 0)?;
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, least)?)
}

/// Gives a new descriptor one of our own numbers; if that is impossible, any behind the standard streams.
///
/// No system call but a duplication takes a number of our choice. So a new pipe, eventfd or open file has the lowest one
/// until this moves it, and bytes that the program writes to a number that it has closed can reach it in that moment.
pub(crate) fn leave_low_numbers(fd: &mut OwnedFd) -> Result<()> {
    if fd.as_raw_fd() < OWN_NUMBERS {
        match duplicate_from(OWN_NUMBERS, fd.as_fd()) {
            Ok(own) => *fd = own,
            Err(_) if fd.as_raw_fd() >= FIRST_NUMBER => {}
            Err(_) => *fd = duplicate_from(FIRST_NUMBER, fd.as_fd())?,
        }
    }
    Ok(())
}

/// Gives a descriptor that becomes the caller's the lowest number: those from 1024 on are beyond select(2).
pub(crate) fn take_low_number(fd: OwnedFd) -> OwnedFd {
    duplicate_from(FIRST_NUMBER, fd.as_fd()).unwrap_or(fd)
}

/// Makes the kernel's table of our descriptors long enough for our own numbers. For a process of several threads, growing it
/// takes a wait for all CPUs (`expand_fdtable`, fs/file.c): 9 to 18 ms, and 0.01 ms for one of a single thread (2-core x86-64
/// VM, Linux 6.18, 2026-11-27).
pub(crate) fn grow_table() {
    if let Ok(any) = eventfd(0, EventfdFlags::CLOEXEC) {
        drop(rustix::io::fcntl_dupfd_cloexec(&any, OWN_NUMBERS));
    }
}

/// How its close behaves.
pub(crate) fn closing(fd: BorrowedFd<'_>) -> Closing {
    const MEMORY: u32 = 1; // Documentation/admin-guide/devices.txt
    let Ok(stat) = fstat(fd) else { return Closing::Slow };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Unknown => Closing::AtOnce,
        FileType::CharacterDevice if major(stat.st_rdev) == MEMORY => Closing::AtOnce,
        FileType::RegularFile | FileType::BlockDevice => Closing::Reporting,
        FileType::Socket if lingers(fd) => Closing::Lingering,
        FileType::Socket => Closing::Brief,
        _ => Closing::Slow,
    }
}

/// As [`closing`], if the kind tells.
pub(crate) fn closing_of_kind(kind: Kind) -> Option<Closing> {
    match kind {
        Kind::Pipe | Kind::Packets => Some(Closing::AtOnce),
        Kind::File => Some(Closing::Reporting),
        Kind::StreamSocket | Kind::Messages | Kind::Other => None,
    }
}

/// close(2), which always frees the number.
///
/// A signal that interrupts it (`EINTR`) loses nothing. Linux has closed the descriptor by then, and only the wait for the
/// disk or the server was cut short: what was written stays in the system's hands, as after the close of a local file.
pub(crate) fn close(fd: OwnedFd) -> Result<()> {
    let fault = pass(Call::Close, 0);
    // SAFETY: the descriptor is ours, and its value is gone.
    let closed = answer(unsafe { libc::close(fd.into_raw_fd()) } as isize);
    match fault.and(closed) {
        Err(SysError::INTERRUPTED) => Ok(()),
        closed => closed.map(drop),
    }
}

/// Closes what a descriptor leads to, and keeps its number: dup3(2) puts an eventfd in its place.
pub(crate) fn close_but_keep_number(fd: &mut OwnedFd) {
    if let Ok(idle) = eventfd(0, EventfdFlags::CLOEXEC) {
        let _ = dup3(&idle, fd, DupFlags::CLOEXEC); // which closes what was there
    }
}

fn lingers(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_linger(fd).is_ok_and(|time| time.is_some_and(|time| !time.is_zero()))
}

/// What a descriptor leads to that must be open for reading.
pub(crate) fn look_at_source(fd: BorrowedFd<'_>) -> Result<(Kind, Facts)> {
    look(fd, check_open_for(fd, OFlags::RDONLY)?)
}

/// What a descriptor leads to that must be open for writing.
pub(crate) fn look_at_destination(fd: BorrowedFd<'_>) -> Result<(Kind, Facts)> {
    look(fd, check_open_for(fd, OFlags::WRONLY)?)
}

fn look(fd: BorrowedFd<'_>, flags: OFlags) -> Result<(Kind, Facts)> {
    let facts = Facts::of(fd)?;
    Ok((kind_of(fd, flags, &facts.0)?, facts))
}

fn check_open_for(fd: BorrowedFd<'_>, access: OFlags) -> Result<OFlags> {
    let flags = fcntl_getfl(fd)?;
    let mode = flags & OFlags::RWMODE;
    let is_open = (mode == access || mode == OFlags::RDWR) && !flags.contains(OFlags::PATH);
    if is_open { Ok(flags) } else { Err(Errno::BADF.into()) }
}

/// Whether the file is in append mode.
pub(crate) fn appends(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND))
}

/// Reopens a terminal as a non-blocking descriptor of our own, so that the mode of the caller's stays. `ENOTTY` for
/// everything else.
///
/// Reopening the controlling side of a pseudo-terminal (which knows its number) would create another.
pub(crate) fn reopen_terminal(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    if !fd.is_terminal() || terminal_number(fd).is_some() {
        return Err(Errno::NOTTY.into());
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let reopened = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    // /dev/tty leads to the terminal of whoever opens it.
    let leads_there = terminal_device(fd)? == terminal_device(reopened.as_fd())?;
    if leads_there { Ok(reopened) } else { Err(Errno::NOTTY.into()) }
}

/// The device of a terminal, independent of its name (`TIOCGDEV`, include/uapi/asm-generic/ioctls.h).
fn terminal_device(fd: BorrowedFd<'_>) -> Result<u32> {
    const TIOCGDEV: Opcode = 0x8004_5432;
    // SAFETY: it writes one unsigned int.
    Ok(unsafe { ioctl(fd, Getter::<TIOCGDEV, u32>::new()) }?)
}

/// Whether a write to the terminal waits for its reader: a terminal that could not be reopened, or a controlling side.
pub(crate) fn is_blocking_terminal(fd: BorrowedFd<'_>) -> bool {
    fd.is_terminal() && !is_non_blocking(fd)
}

/// Whether a write may wait, and poll(2) tells when: a blocking terminal or eventfd. Not so for other devices: /dev/random has no
/// room by poll(2), and takes everything.
fn waits_visibly(fd: BorrowedFd<'_>) -> bool {
    !is_non_blocking(fd) && (fd.is_terminal() || fstat(fd).is_ok_and(|stat| is_anonymous(&stat)))
}

pub(super) fn is_non_blocking(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Bytes that fit at once into a terminal that is ready. For the controlling side of a pseudo-terminal that is sure,
/// because it is less than one of its buffers (drivers/tty/tty_buffer.c, `TTY_BUFFER_PAGE`).
pub(crate) const TERMINAL_PIECE_BYTES: usize = 1 << 10;

/// Identifies what a descriptor leads to.
pub(crate) fn identify(fd: BorrowedFd<'_>) -> Result<(StreamId, Kind)> {
    identify_by(fd, fcntl_getfl(fd)?)
}

/// As [`identify`]. Fails unless the descriptor is open for writing: `EBADF`, as write(2) would report.
pub(crate) fn identify_destination(fd: BorrowedFd<'_>) -> Result<(StreamId, Kind)> {
    identify_by(fd, check_open_for(fd, OFlags::WRONLY)?)
}

/// As [`identify`]. Fails unless the descriptor is open for reading: `EBADF`, as read(2) would report.
pub(crate) fn identify_source(fd: BorrowedFd<'_>) -> Result<(StreamId, Kind)> {
    identify_by(fd, check_open_for(fd, OFlags::RDONLY)?)
}

fn identify_by(fd: BorrowedFd<'_>, flags: OFlags) -> Result<(StreamId, Kind)> {
    let stat = fstat(fd)?;
    let kind = kind_of(fd, flags, &stat)?;
    Ok((StreamId::of(fd, &stat, kind), kind))
}

/// Whether the other end is closed, so that nothing written can arrive.
pub(crate) fn peer_is_gone(fd: BorrowedFd<'_>) -> bool {
    ready(fd, Events::NONE).has_failed()
}

/// The failure that poll(2) reports of a destination; none for notices in a socket's error queue (`MSG_ERRQUEUE`,
/// recv(2)).
pub(crate) fn what_was_lost(fd: BorrowedFd<'_>, kind: Kind, reported: Events) -> Option<SysError> {
    if kind != Kind::StreamSocket || reported.has_hung_up() {
        return Some(SysError::NO_READER);
    }
    match rustix::net::sockopt::socket_error(fd) {
        Ok(Err(errno)) | Err(errno) => Some(errno.into()),
        Ok(Ok(())) => None,
    }
}

/// write(2).
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let span = span.first(pass(Call::Write, span.len())?);
    // SAFETY: the span is readable by the contract above, and so is its beginning; the kernel only reads it.
    answer(unsafe { libc::write(fd.as_raw_fd(), span.as_ptr().cast(), span.len()) })
}

/// write(2) to a pipe as if it were non-blocking, whatever its mode: `EAGAIN` when it is full.
///
/// `EOPNOTSUPP` for a FIFO, and for every pipe before Linux 6.4 (commit "pipe: set FMODE_NOWAIT on pipes", which is about
/// those of pipe(2)).
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write_now(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let span = span.first(pass(Call::Write, span.len())?);
    // SAFETY: the span is readable by the contract above, and so is its beginning; the kernel only reads it.
    unsafe { transfer_now(libc::SYS_pwritev2, fd, span, libc::RWF_NOWAIT) }
}

/// send(2) without blocking and without `SIGPIPE`.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn send_now(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    let span = span.first(pass(Call::Write, span.len())?);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the span is readable by the contract above, and so is its beginning; the kernel only reads it.
    answer(unsafe { libc::send(fd.as_raw_fd(), span.as_ptr().cast(), span.len(), flags) })
}

/// Writes to a pipe or socket what fits without waiting, whatever its mode, on a thread that signals may reach: they get none.
/// `EOPNOTSUPP` where no call does that.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write_at_once(fd: BorrowedFd<'_>, kind: Kind, span: Span) -> Result<usize> {
    // SAFETY: the span is readable by the contract above.
    unsafe {
        match kind {
            Kind::Pipe | Kind::Packets => write_now_silently(fd, span),
            Kind::StreamSocket | Kind::Messages => send_now(fd, span),
            Kind::File | Kind::Other => Err(SysError::UNSUPPORTED),
        }
    }
}

/// `RWF_NOSIGNAL` (include/uapi/linux/fs.h), from Linux 6.18 on.
const NO_SIGNAL: libc::c_int = 0x100;

/// As [`write_now`], without `SIGPIPE`. Where the kernel has no flag for that, two more calls keep the signal off.
///
/// # Safety
///
/// The span's memory is readable.
unsafe fn write_now_silently(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    /// Relaxed: whoever does not see it yet asks again.
    static LACKS_FLAG: AtomicBool = AtomicBool::new(false);
    let span = span.first(pass(Call::Write, span.len())?);
    if !LACKS_FLAG.load(Relaxed) {
        let flags = libc::RWF_NOWAIT | NO_SIGNAL;
        // SAFETY: the span is readable by the contract above, and so is its beginning; the kernel only reads it.
        match unsafe { transfer_now(libc::SYS_pwritev2, fd, span, flags) } {
            Err(SysError::UNSUPPORTED) => {} // one of the two flags
            answer => return answer,
        }
    }
    let signals = WithoutWriteSignals::new();
    // SAFETY: as above.
    let answer = unsafe { transfer_now(libc::SYS_pwritev2, fd, span, libc::RWF_NOWAIT) };
    if matches!(answer, Ok(_) | Err(SysError::WOULD_BLOCK)) {
        LACKS_FLAG.store(true, Relaxed);
        signals.end_clear();
    }
    answer
}

/// As [`write_at_once`], for a descriptor that is in non-blocking mode; `EOPNOTSUPP` for others.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write_if_non_blocking(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    if !is_non_blocking(fd) {
        return Err(SysError::UNSUPPORTED);
    }
    let signals = WithoutWriteSignals::new();
    // SAFETY: the span is readable by the contract above.
    let answer = unsafe { write(fd, span) };
    if matches!(answer, Ok(_) | Err(SysError::WOULD_BLOCK)) {
        signals.end_clear();
    }
    answer
}

/// A socket's buffer for bytes that its peer has not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendBuffer {
    pub(crate) bytes: usize,
    pub(crate) free_bytes: usize,
}

/// The send buffer by the kernel's accounts (`SO_MEMINFO`, include/net/sock.h); none where it has none.
pub(crate) fn send_buffer(fd: BorrowedFd<'_>) -> Option<SendBuffer> {
    /// Indices of the answer: sock_diag(7), `SK_MEMINFO_*`.
    const ALLOCATED: usize = 2;
    const SIZE: usize = 3;
    const QUEUED: usize = 5;
    let accounts: [u32; 9] = socket_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO).ok()?;
    if accounts[SIZE] == 0 {
        return None;
    }
    let used = accounts[ALLOCATED].max(accounts[QUEUED]); // Unix sockets keep the first, TCP the second
    let free = accounts[SIZE].saturating_sub(used);
    Some(SendBuffer { bytes: accounts[SIZE] as usize, free_bytes: free as usize })
}

/// Whether [`send_buffer`] tells how much fits into the socket.
pub(crate) fn keeps_accounts(fd: BorrowedFd<'_>) -> bool {
    let known = [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6];
    rustix::net::sockopt::socket_domain(fd).is_ok_and(|family| known.contains(&family))
}

pub(crate) fn is_unix_socket(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// Bytes written that the other side has not taken, for pipes, sockets (tcp(7), unix(7): `SIOCOUTQ`, the same number)
/// and terminals; 0 where the system does not tell.
pub(crate) fn untaken_bytes(fd: BorrowedFd<'_>, kind: Kind) -> u64 {
    if kind.is_pipe() {
        return rustix::io::ioctl_fionread(fd).unwrap_or(0);
    }
    // SAFETY: it writes one int.
    let untaken = unsafe { ioctl(fd, Getter::<{ libc::TIOCOUTQ as Opcode }, i32>::new()) };
    untaken.map_or(0, |bytes| bytes.try_into().unwrap_or(0))
}

/// Whether a TCP socket accepts only a limited amount of unsent bytes (`TCP_NOTSENT_LOWAT`, tcp(7)).
pub(crate) fn limits_unsent(fd: BorrowedFd<'_>) -> bool {
    let limit = socket_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    // 0 selects the system's default, which is no limit; -1 is none too.
    limit.is_ok_and(|[limit]: [u32; 1]| limit.cast_signed() > 0)
}

/// The numbers of a socket's option; 0 where the system tells fewer.
fn socket_option<const N: usize>(fd: BorrowedFd<'_>, level: i32, option: i32) -> Result<[u32; N]> {
    let mut numbers = [0; N];
    let mut bytes = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the system writes at most `bytes` bytes, the size of `numbers`.
    let returned = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, numbers.as_mut_ptr().cast(), &raw mut bytes)
    };
    answer(returned as isize).map(|_| numbers)
}

/// Reads of one descriptor that do not block, whatever its mode, where the system allows that.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Whether the pipe has refused a non-blocking read, as every FIFO does. Relaxed: whoever does not see it yet asks again.
    is_refused: AtomicBool,
}

impl Reads {
    /// Reads what is available: `EAGAIN` when nothing is. For anything but a pipe or socket that may make a reader wait, call
    /// [`ready`] first.
    pub(crate) fn now(&self, fd: BorrowedFd<'_>, kind: Kind, buffer: &mut [u8]) -> Result<usize> {
        let at_most = pass(Call::Read, buffer.len())?;
        let buffer = &mut buffer[..at_most];
        match kind {
            Kind::Pipe if !self.is_refused.load(Relaxed) => match read_pipe_now(fd, buffer) {
                Err(error) if error.is_refusal() => {
                    self.is_refused.store(true, Relaxed);
                    read_if_ready(fd, buffer)
                }
                answer => answer,
            },
            Kind::StreamSocket | Kind::Messages => receive_now(fd, buffer, RecvFlags::empty()),
            Kind::File => Ok(rustix::io::read(fd, buffer)?),
            Kind::Pipe | Kind::Packets | Kind::Other => read_if_ready(fd, buffer),
        }
    }
}

fn read_if_ready(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    if ready(fd, Events::READ).is_empty() {
        Err(SysError::WOULD_BLOCK)
    } else {
        Ok(rustix::io::read(fd, buffer)?)
    }
}

/// Looks at the next bytes of a socket without taking them.
pub(crate) fn peek_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    receive_now(fd, buffer, RecvFlags::PEEK)
}

/// The size of the next message of a socket.
pub(crate) fn next_message_bytes(fd: BorrowedFd<'_>) -> Result<usize> {
    receive_now(fd, &mut [], RecvFlags::PEEK | RecvFlags::TRUNC)
}

/// Whether a socket of messages has ended. An empty message right before the end counts as the end: nothing
/// distinguishes them.
pub(crate) fn is_at_its_end(fd: BorrowedFd<'_>) -> bool {
    let is_shut = ready(fd, Events(PollFlags::RDHUP)).0.intersects(PollFlags::RDHUP | PollFlags::HUP);
    is_shut && rustix::io::ioctl_fionread(fd).unwrap_or(0) == 0
}

/// The answer of recv(2): with `TRUNC` the size of the message, otherwise the bytes received.
fn receive_now(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: RecvFlags) -> Result<usize> {
    Ok(recv(fd, buffer, flags | RecvFlags::DONTWAIT).map(|(_, bytes)| bytes)?)
}

/// preadv2(2) of a pipe as if it were non-blocking, as [`write_now`] writes.
pub(super) fn read_pipe_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the buffer is borrowed mutably until the call returns, so the kernel may write to all of it.
    unsafe {
        transfer_now(libc::SYS_preadv2, fd, Span::at(buffer.as_mut_ptr(), buffer.len()), libc::RWF_NOWAIT)
    }
}

/// preadv2(2) or pwritev2(2). Called by its number, because the C libraries before glibc 2.26 have no such
/// functions.
///
/// # Safety
///
/// `call` is one of the two, and the memory may be used as it does.
unsafe fn transfer_now(
    call: libc::c_long,
    fd: BorrowedFd<'_>,
    memory: Span,
    flags: libc::c_int,
) -> Result<usize> {
    let part = libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: memory.len() };
    let (parts, low, high): (libc::c_long, libc::c_long, libc::c_long) = (1, -1, 0);
    // SAFETY: `part` lives until the call returns, and its memory may be used as above. The offset -1 means the position:
    // 64-bit kernels read only its low half (fs/read_write.c, `pos_from_hilo`).
    let returned = unsafe { libc::syscall(call, fd.as_raw_fd(), &raw const part, parts, low, high, flags) };
    answer(returned as isize)
}

/// Writes a part of the span, to a pipe or a socket without blocking, as [`Reads`] read.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write_some(fd: BorrowedFd<'_>, kind: Kind, span: Span) -> Result<usize> {
    // SAFETY: the span is readable by the contract above, and so is its beginning.
    unsafe {
        match kind {
            Kind::Pipe | Kind::Packets => write_pipe(fd, span),
            Kind::StreamSocket | Kind::Messages => send_now(fd, span),
            Kind::Other if waits_visibly(fd) && ready(fd, Events::WRITE).is_empty() => {
                Err(SysError::WOULD_BLOCK)
            }
            Kind::Other if is_blocking_terminal(fd) => write(fd, span.first(TERMINAL_PIECE_BYTES)),
            Kind::File | Kind::Other => write(fd, span),
        }
    }
}

/// Whether a write to a full pipe waits in its call.
pub(crate) const WRITES_WAIT: bool = false;

/// As [`write_some`]: there is nothing to cut.
///
/// # Safety
///
/// The span's memory is readable.
pub(crate) unsafe fn write_or_wait(
    fd: BorrowedFd<'_>,
    kind: Kind,
    span: Span,
    _by: Option<(BorrowedFd<'_>, u64)>,
) -> Result<usize> {
    // SAFETY: this function's own contract.
    unsafe { write_some(fd, kind, span) }
}

/// Writes to a pipe without blocking. The pipe may be somebody else's, so its mode stays. Where the kernel has no
/// non-blocking write, and the descriptor is not non-blocking, this writes no more than fits into a pipe that poll(2) calls
/// ready.
///
/// # Safety
///
/// The span's memory is readable.
unsafe fn write_pipe(fd: BorrowedFd<'_>, span: Span) -> Result<usize> {
    // SAFETY: the span is readable by the contract above, and so is its beginning.
    match unsafe { write_now(fd, span) } {
        // SAFETY: as above.
        Err(error) if error.is_refusal() && is_non_blocking(fd) => unsafe { write(fd, span) },
        Err(error) if error.is_refusal() && ready(fd, Events::WRITE).is_empty() => Err(SysError::WOULD_BLOCK),
        // SAFETY: as above.
        Err(error) if error.is_refusal() => unsafe { write(fd, span.first(libc::PIPE_BUF)) },
        answer => answer,
    }
}

pub(super) fn answer(returned: isize) -> Result<usize> {
    usize::try_from(returned).map_err(|_| {
        let error = std::io::Error::last_os_error();
        SysError::from_raw_os_error(error.raw_os_error().expect("the system sets errno when it fails"))
    })
}
