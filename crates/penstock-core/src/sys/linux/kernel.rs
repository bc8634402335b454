//! What this kernel does with pipes, found by trying it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use super::memory::Mapping;
use super::{fd, pipe};
use crate::sys::error::{Result, SysError};
pub(crate) use crate::sys::kind::Vmsplice;
use crate::sys::span::Span;

/// Whether the kernel has been tried, and what was found. Relaxed: all are set under the lock of `ForkFd::make`, and a thread
/// that reads an old value assumes a current kernel.
static IS_TRIED: AtomicBool = AtomicBool::new(false);
static LACKS_NOWAIT: AtomicBool = AtomicBool::new(false);
static VMSPLICE: AtomicU8 = AtomicU8::new(Vmsplice::Shares as u8);

/// Tries the kernel, once a process. Opens a pipe for that, so call it only within `ForkFd::make`: no child of a fork
/// inherits the pipe then. In unit tests it tries again each time, because a script of faults changes the answer.
fn try_once() {
    if (cfg!(test) || !IS_TRIED.load(Relaxed)) && try_now().is_ok() {
        IS_TRIED.store(true, Relaxed);
    }
}

fn try_now() -> Result<()> {
    let [reader, writer] = pipe::make()?;
    LACKS_NOWAIT.store(refuses_nowait(reader.as_fd()), Relaxed);
    VMSPLICE.store(try_vmsplice(reader.as_fd(), writer.as_fd())? as u8, Relaxed);
    Ok(())
}

/// A descriptor of our own of a pipe, to write to: a duplicate, or a non-blocking one where the kernel has no non-blocking
/// write for the pipe. A pipe that cannot be opened again (without /proc, permission, or the reader of a FIFO) is
/// duplicated. Call it only within `ForkFd::make`.
pub(crate) fn own_writer(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    try_once();
    let reopened = if lacks_nowait(fd) { pipe::reopen_writer(fd).ok() } else { None };
    reopened.map_or_else(|| fd::duplicate(fd), Ok)
}

/// Whether a write of more than `PIPE_BUF` bytes to the pipe may block, so that it is written in parts of that size.
pub(crate) fn needs_small_parts(fd: BorrowedFd<'_>) -> bool {
    lacks_nowait(fd) && !fd::is_non_blocking(fd)
}

/// Whether the kernel has no non-blocking write (`RWF_NOWAIT`, pwritev2(2)) for a pipe that is in blocking mode. For FIFOs
/// none has; for pipes of pipe(2), Linux before 6.4 has none (commit "pipe: set FMODE_NOWAIT on pipes").
fn lacks_nowait(fd: BorrowedFd<'_>) -> bool {
    LACKS_NOWAIT.load(Relaxed) || !pipe::is_anonymous(fd)
}

fn refuses_nowait(empty_pipe: BorrowedFd<'_>) -> bool {
    fd::read_pipe_now(empty_pipe, &mut [0]).is_err_and(SysError::is_refusal)
}

/// What vmsplice(2) was found to do; [`Vmsplice::Shares`] before that.
pub(crate) fn vmsplice() -> Vmsplice {
    [Vmsplice::Shares, Vmsplice::Copies, Vmsplice::Refused][usize::from(VMSPLICE.load(Relaxed))]
}

/// Puts a byte into the pipe, changes it where it came from, and looks which of the two comes out.
fn try_vmsplice(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> Result<Vmsplice> {
    let page = Mapping::map(1)?;
    let set = |value: u8| {
        // SAFETY: the page is ours, and only the kernel looks at it.
        unsafe { page.start().write_volatile(value) };
    };
    set(1); // an untouched page is one that all programs share until they write to it
    // SAFETY: we are the pipe's only reader, and want to see the change.
    match unsafe { pipe::vmsplice_once(writer, Span::at(page.start(), 1)) } {
        Err(error) if error.is_refusal() || error == SysError::INVALID => return Ok(Vmsplice::Refused),
        given => given?,
    };
    set(2);
    let mut seen = [0];
    rustix::io::read(reader, &mut seen)?;
    Ok(if seen == [2] { Vmsplice::Shares } else { Vmsplice::Copies })
}
