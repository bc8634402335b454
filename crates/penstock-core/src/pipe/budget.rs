//! The sizes of our pipes: large enough to be fast, and within the user's limits.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use crate::runtime::fork::PerProcess;
use crate::sync::lock;
use crate::sys::fd::{self, StreamId};
use crate::sys::{Borrowed, pipe};

/// What is asked for by default: the most that a user without privileges gets by Linux's defaults
/// (`pipe-max-size`, pipe(7)). Measured with FFmpeg as reader on a 2-core x86-64 VM with Linux 6.18,
/// 2026-11-20: 256 KiB pieces in a pipe of this size moved up to 2 times what a pipe of 64 KiB did.
pub(crate) const WANTED_BYTES: usize = 1 << 20;

/// More than Linux grants any pipe (fs/pipe.c, `round_pipe_size`): larger requests are cut to this.
const LARGEST_BYTES: usize = 1 << 31;

/// The sizes of the pipes that this process has set.
///
/// Past `pipe-user-pages-soft`, each new pipe of the user gets only two pages, unless the process is privileged. So all of ours together
/// take at most half of that.
pub(crate) struct PipeBudget {
    /// See [`pipe::user_soft_bytes`].
    user_soft_bytes: Option<usize>,
    granted: HashMap<StreamId, Granted>,
    /// With more accounts than this, those of closed pipes are sought.
    many: usize,
    /// How long the accounts count as right since they were checked.
    right_until: Option<Instant>,
}

/// Where the accounts are full, checking them takes at most 1 % of the time. With ten thousand descriptors one check
/// takes some milliseconds.
const COUNTING_PAUSES: u32 = 100;

/// So many accounts are no burden. Guessed.
const FEW: usize = 100;

/// The room that a pipe of our own takes. Dropping it frees the room.
#[derive(Debug)]
pub(crate) struct Reservation(StreamId);

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(BUDGET.get()).granted.remove(&self.0);
    }
}

#[derive(Clone, Copy)]
struct Granted {
    bytes: usize,
    /// Whether a caller asked for this size. It stays until a caller asks for another.
    chosen: bool,
}

static BUDGET: PerProcess<Mutex<PipeBudget>> = PerProcess::new(PipeBudget::of_user);

/// Grows the pipe to [`WANTED_BYTES`], or as far as the system allows, unless a caller asked for its size. Never fails.
pub(crate) fn grow(fd: Borrowed<'_>, id: StreamId) {
    grow_to(fd, id, WANTED_BYTES);
}

/// As [`grow`], to another size.
pub(crate) fn grow_to(fd: Borrowed<'_>, id: StreamId, wanted_bytes: usize) {
    let mut budget = lock(BUDGET.get());
    if !budget.granted.get(&id).is_some_and(|granted| granted.chosen) {
        budget.grow(fd, id, wanted_bytes);
    }
}

/// As [`grow_to`], for a pipe of our own. Drop the reservation after closing the pipe.
pub(crate) fn grow_own(pipe: Borrowed<'_>, wanted_bytes: usize) -> Option<Reservation> {
    let (id, _) = fd::identify(pipe).ok()?;
    grow_to(pipe, id, wanted_bytes);
    Some(Reservation(id))
}

/// Sets the size that a caller asks for, also a smaller one. Only growth is bounded by the budget. A pipe that holds
/// more, or that may not grow, keeps its size; statistics show it.
pub(crate) fn set(fd: Borrowed<'_>, id: StreamId, wanted_bytes: usize) {
    let Ok(present_bytes) = pipe::capacity(fd) else { return };
    let mut budget = lock(BUDGET.get());
    if wanted_bytes < present_bytes {
        budget.resize(fd, id, wanted_bytes);
    } else {
        budget.grow(fd, id, wanted_bytes);
    }
    let bytes = pipe::capacity(fd).unwrap_or(present_bytes);
    budget.account(id, Granted { bytes, chosen: true });
}

impl PipeBudget {
    fn of_user() -> Mutex<Self> {
        let (user_soft_bytes, granted) = (pipe::user_soft_bytes(), HashMap::new());
        Mutex::new(Self { user_soft_bytes, granted, many: FEW, right_until: None })
    }

    fn grow(&mut self, fd: Borrowed<'_>, id: StreamId, wanted_bytes: usize) {
        let Ok(present_bytes) = pipe::capacity(fd) else { return };
        let mut size = wanted_bytes.min(LARGEST_BYTES).next_power_of_two();
        while size > present_bytes {
            if self.has_room_for(id, size) && self.resize(fd, id, size) {
                return;
            }
            size /= 2;
        }
    }

    fn has_room_for(&mut self, id: StreamId, bytes: usize) -> bool {
        let Some(soft_bytes) = self.user_soft_bytes else {
            return true;
        };
        if self.others_bytes(id) + bytes <= soft_bytes / 2 || pipe::is_above_limits() {
            return true;
        }
        self.forget_closed_pipes();
        self.others_bytes(id) + bytes <= soft_bytes / 2
    }

    fn others_bytes(&self, id: StreamId) -> usize {
        self.granted.iter().filter(|(other, _)| **other != id).map(|(_, granted)| granted.bytes).sum()
    }

    fn resize(&mut self, fd: Borrowed<'_>, id: StreamId, bytes: usize) -> bool {
        let granted = pipe::set_capacity(fd, bytes);
        granted.is_ok_and(|bytes| {
            self.account(id, Granted { bytes, chosen: false });
            true
        })
    }

    /// Keeps the account. Without a limit nothing else asks for closed pipes; whenever the number has doubled, this does.
    fn account(&mut self, id: StreamId, granted: Granted) {
        self.granted.insert(id, granted);
        if self.granted.len() > self.many {
            self.forget_closed_pipes();
            self.many = FEW.max(2 * self.granted.len());
        }
    }

    /// Removes pipes of which this process has no descriptor any more.
    fn forget_closed_pipes(&mut self) {
        let begun = Instant::now();
        if self.right_until.is_some_and(|until| begun < until) {
            return;
        }
        let before = self.granted.len();
        if let Some(open) = pipe::open_inodes() {
            self.granted.retain(|id, _| open.contains(&id.inode));
        }
        let was_right = self.granted.len() == before;
        self.right_until = was_right.then(|| Instant::now() + begun.elapsed() * COUNTING_PAUSES);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn closed_pipes_are_forgotten_without_a_limit_too() {
        let mut budget = PipeBudget::of_user().into_inner().unwrap();
        budget.user_soft_bytes = None;
        for _ in 0..1000 {
            let [_reader, pipe] = pipe::make().unwrap();
            let (id, _) = fd::identify(pipe.as_fd()).unwrap();
            budget.grow(pipe.as_fd(), id, 2 * pipe::capacity(pipe.as_fd()).unwrap());
            assert!(budget.granted.contains_key(&id));
        }
        assert!(budget.granted.len() <= FEW, "{}", budget.granted.len());
    }
}
