//! A fork leaves the parent its streams, and gives the child none: see `pthread_atfork(3)`.
//!
//! Before the fork everything is held still, in the order in which locks are taken elsewhere, so that the child finds whole
//! states. The child closes all descriptors of ours, so that it keeps no reader from its end of file: they are in one table,
//! `kept`. What it inherits is closed for it; it opens its own, and has its own workers then.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard, Once};

use crate::pipe::budget::{self, Share};
use crate::runtime::fork_fd::{self, ForkFd};
use crate::runtime::task::{self, Control};
use crate::sync::ticket::disown_tickets;
use crate::sys::fd::StreamId;
use crate::writer::by_descriptor::{self, Entry};
use crate::writer::stream::HeldStreams;
use crate::writer::{handle, worker};

struct Held {
    streams: HeldStreams,
    pipes: MutexGuard<'static, HashMap<StreamId, Entry>>,
    share: MutexGuard<'static, Share>,
    writers: MutexGuard<'static, HashMap<u64, Arc<ForkFd>>>,
    tasks: MutexGuard<'static, Vec<Arc<Control>>>,
    kept: MutexGuard<'static, BTreeSet<RawFd>>,
    starts: MutexGuard<'static, ()>,
}

thread_local! {
    /// Between the handlers, on the thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Sees to it, once, that this process's forks are prepared for.
pub(crate) fn prepare() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are plain functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn before() {
    let pipes = by_descriptor::hold();
    let share = budget::hold();
    let writers = handle::hold();
    let (tasks, streams, kept) = (task::hold(), HeldStreams::hold(), fork_fd::hold());
    let starts = task::hold_starts();
    let held = Held { streams, pipes, share, writers, tasks, kept, starts };
    HELD.with(|slot| slot.replace(Some(held)));
}

fn take() -> Option<Held> {
    HELD.with(|slot| slot.borrow_mut().take())
}

extern "C" fn in_parent() {
    if let Some(Held { streams, pipes, share, writers, tasks, kept, starts }) = take() {
        drop((pipes, share, writers, tasks, kept, starts));
        streams.release();
    }
}

extern "C" fn in_child() {
    disown_tickets();
    worker::forget_idle();
    if let Some(Held { streams, mut pipes, share, mut writers, mut tasks, mut kept, starts }) = take() {
        pipes.clear();
        writers.clear();
        fork_fd::close_all(&mut kept);
        // Their wakers are closed here: nobody is woken.
        let disowned = std::mem::take(&mut *tasks);
        drop((pipes, share, writers, tasks, kept, starts));
        drop(disowned);
        streams.reset();
    }
}
