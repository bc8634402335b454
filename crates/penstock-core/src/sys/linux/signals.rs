//! The calling thread's signals.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Keeps signals off the calling thread: they are the host program's, and a write(2) to a dead pipe or
/// past a file-size limit shall be an error, not a `SIGPIPE` or `SIGXFSZ` that kills the process.
///
/// Except for those that a thread causes by what it does: if such a signal is blocked, the kernel kills the process instead
/// of calling its handler (sigprocmask(2)). The handler may be one that fills memory on access, or reports a crash.
pub(crate) fn block_signals() {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: `sigfillset` initializes the set before the others use it; none fails on valid arguments.
    unsafe {
        libc::sigfillset(mask.as_mut_ptr());
        for signal in FAULT_SIGNALS {
            libc::sigdelset(mask.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut());
    }
}

/// `SIGSYS` is seccomp's, and `SIGABRT` is abort(3)'s.
const FAULT_SIGNALS: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];

/// Blocks SIGPIPE and SIGXFSZ for the calling thread while the value lives. The call's `EPIPE` or `EFBIG` reports the
/// failure.
pub(crate) struct WithoutWriteSignals {
    before: libc::sigset_t,
    /// Whether none can have come.
    is_clear: bool,
    /// Signals are a thread's own.
    _not_send: PhantomData<*const ()>,
}

impl WithoutWriteSignals {
    pub(crate) fn new() -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which fills `before`; it does not fail on valid arguments.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set_of(WRITE_SIGNALS.into_iter()), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before, is_clear: false, _not_send: PhantomData }
    }

    /// Ends without a look for signals, after calls of which none can have made one.
    pub(crate) fn end_clear(mut self) {
        self.is_clear = true;
    }
}

impl Drop for WithoutWriteSignals {
    fn drop(&mut self) {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set is the one that the thread had before, and all other pointers are valid or null as
        // sigtimedwait(2) allows.
        unsafe {
            // What was blocked before may be pending for somebody else. The others, if a call of ours made them, are taken off
            // before they can be delivered.
            let ours = set_of(
                WRITE_SIGNALS.into_iter().filter(|&signal| libc::sigismember(&self.before, signal) != 1),
            );
            while !self.is_clear && libc::sigtimedwait(&ours, std::ptr::null_mut(), &now) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

const WRITE_SIGNALS: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initializes the set; neither call fails on valid arguments.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}
