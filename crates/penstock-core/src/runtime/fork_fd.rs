//! File descriptors that the child of a fork closes: a copy there would keep a reader from its end of file.
//!
//! A close(2) may be slow. That of a file may write to a network, and the last one of a socket that lingers (`SO_LINGER`,
//! socket(7)) waits for the peer. Forks wait only for closes that are quick.

use std::collections::BTreeSet;
use std::mem::{self, ManuallyDrop};

use crate::runtime::closing;
use crate::runtime::fork::DESCRIPTORS;
use crate::sync::generation::fork_generation;
use crate::sync::lock;
use crate::sys::error::Result;
use crate::sys::fd::{self, Closing, Kind};
use crate::sys::{AsHandle, Borrowed, Handle, Number, handle, kernel};

/// A file descriptor of this process only. In the child of a fork it is closed, and its inherited value does nothing.
#[derive(Debug)]
pub struct ForkFd {
    fd: ManuallyDrop<Handle>,
    generation: u32,
    /// Asked of the system when it is closed, if it is not known by then.
    closing: Option<Closing>,
}

impl ForkFd {
    /// Opens a descriptor and registers it, with no fork in between: forks wait for `make`, which must not wait itself.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn make(make: impl FnOnce() -> Result<Handle>) -> Result<Self> {
        let [made] = Self::make_all(|| make().map(|fd| [fd]))?;
        Ok(made)
    }

    /// A non-blocking descriptor of a destination that is a terminal: its user may stop it for ever (Ctrl-S).
    pub(crate) fn of_terminal(dst: Borrowed<'_>, destination: Kind) -> Option<Self> {
        if destination == Kind::Other { Self::make(|| fd::reopen_terminal(dst)).ok() } else { None }
    }

    /// A descriptor of inotify(7). Its close waits until the kernel has no use for its watches: 7 to 20 ms were measured (Linux
    /// 6.18), which no fork is to wait for.
    pub(crate) fn of_inotify(make: impl FnOnce() -> Result<Handle>) -> Result<Self> {
        let mut made = Self::make(make)?;
        made.closing = Some(Closing::Slow);
        Ok(made)
    }

    /// A descriptor of our own of a destination.
    pub(crate) fn of_destination(dst: Borrowed<'_>, destination: Kind) -> Result<Self> {
        let mut made =
            Self::make(
                || if destination == Kind::Pipe { kernel::own_writer(dst) } else { fd::duplicate(dst) },
            )?;
        made.note_kind(destination);
        Ok(made)
    }

    /// As [`make`](Self::make), for several that are opened together.
    pub(crate) fn make_all<const N: usize>(make: impl FnOnce() -> Result<[Handle; N]>) -> Result<[Self; N]> {
        let mut open = lock(&DESCRIPTORS);
        let mut made = make()?;
        for fd in &mut made {
            fd::leave_low_numbers(fd)?;
        }
        Ok(made.map(|fd| Self::register(fd, &mut open)))
    }

    /// Registers a descriptor that was opened before. A child that was forked meanwhile has a copy.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
    pub fn adopt(mut fd: Handle) -> Result<Self> {
        fd::leave_low_numbers(&mut fd)?; // without the lock, because that closes a copy, for which a file may wait
        Ok(Self::register(fd, &mut lock(&DESCRIPTORS)))
    }

    fn register(fd: Handle, open: &mut BTreeSet<Number>) -> Self {
        open.insert(handle::number(fd.as_handle()));
        Self { fd: ManuallyDrop::new(fd), generation: fork_generation(), closing: None }
    }

    /// Notes what it leads to, so that closing it needs not ask.
    pub(crate) fn note_kind(&mut self, kind: Kind) {
        self.closing = fd::closing_of_kind(kind);
    }

    /// Whether it was made before a fork, by the parent.
    pub(crate) fn is_inherited(&self) -> bool {
        self.generation != fork_generation()
    }

    /// Releases the descriptor, which becomes the caller's: a child inherits it from now on.
    pub(crate) fn release(mut self) -> Handle {
        lock(&DESCRIPTORS).remove(&handle::number(self.as_handle()));
        // SAFETY: the value is forgotten here, so that nobody takes the descriptor a second time.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        mem::forget(self);
        fd::take_low_number(fd)
    }

    /// Closes the descriptor, and waits for it.
    ///
    /// # Errors
    ///
    /// What close(2) reports of a file: writes that the system had accepted may have failed. Other descriptors report nothing.
    pub(crate) fn close(mut self) -> Result<()> {
        let inherited = self.is_inherited();
        let closing = self.closing;
        // SAFETY: taken once, because the value is forgotten here.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        mem::forget(self);
        if inherited {
            mem::forget(fd); // closed in the child already; the number may be somebody else's by now
            return Ok(());
        }
        match closing.unwrap_or_else(|| fd::closing(fd.as_handle())) {
            Closing::AtOnce => close_at_once(fd),
            Closing::Reporting => return close_file(fd),
            Closing::Brief | Closing::Slow => close_slowly(fd),
            // Not `apart`: the system goes on sending after the end of the program, too.
            Closing::Lingering => closing::on_a_thread(|| close_slowly(fd)),
        }
        Ok(())
    }

    /// Closes the descriptor for somebody who must not wait. `then` gets the answer, perhaps on another thread.
    pub(crate) fn close_apart(mut self, then: impl FnOnce(Result<()>) + Send + 'static) {
        let closing = match self.closing {
            _ if self.is_inherited() => Closing::AtOnce,
            known => known.unwrap_or_else(|| fd::closing(self.as_handle())),
        };
        self.closing = Some(closing);
        match closing {
            Closing::Reporting | Closing::Slow => closing::apart(move || then(self.close())),
            Closing::AtOnce | Closing::Brief | Closing::Lingering => then(self.close()),
        }
    }
}

impl AsHandle for ForkFd {
    fn as_handle(&self) -> Borrowed<'_> {
        self.fd.as_handle()
    }
}

impl Drop for ForkFd {
    fn drop(&mut self) {
        // SAFETY: taken once: a value is dropped once, and whoever takes the descriptor elsewhere forgets it.
        let fd = ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut self.fd) });
        let own = Self { fd, ..*self };
        own.close_apart(|_| ()); // whoever needs the answer calls `close`
    }
}

fn close_at_once(fd: Handle) {
    let mut open = lock(&DESCRIPTORS);
    open.remove(&handle::number(fd.as_handle()));
    drop(fd); // under the lock: until then a fork finds it there
}

/// Closes a file, without the lock because that may take long. dup3(2) would drop the error.
///
/// A fork between the two steps leaves the child a copy, which keeps nobody from an end of file.
fn close_file(fd: Handle) -> Result<()> {
    lock(&DESCRIPTORS).remove(&handle::number(fd.as_handle()));
    fd::close(fd)
}

/// Closes what may take long and has nothing to report. The number stays registered until it is free.
fn close_slowly(mut fd: Handle) {
    fd::close_but_keep_number(&mut fd);
    close_at_once(fd);
}
