//! Streams against a model: the owners of one pipe and its reader do anything at any time, and processes fork.
//!
//! The model is a log of the writes and of what each owner was told. What must hold stands in [`Case::check`],
//! [`Case::check_flushed`] and [`verify`].

use std::collections::HashSet;
use std::fmt::Debug;
use std::io::{PipeReader, PipeWriter, Read, pipe, stdout};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{cases, in_own_process_with, pattern};
use penstock_core::{
    Error, Mode, ReaderKind, Region, Rejected, Ticket, Writer, WriterOptions, engine, engine::Mark, process,
};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A case that panics is reported, not another one's poisoned lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const OWNERS: usize = 3;

/// The size of the first copy. Each further one is larger, and several fit into a block.
const COPY_BYTES: usize = 3000;

/// So many bytes of the next write may be those that an aborted copy would have gone on with. One more: once in 2^32.
const BY_CHANCE: usize = 3;

/// How long an operation waits that may have to wait for ever: the reader pauses.
const SHORT: Option<Duration> = Some(Duration::from_millis(2));

/// The reader's rest after each piece, so that writes, waits and aborts overlap.
const PACE: Duration = Duration::from_micros(200);

/// How long an operation may wait that has nothing to wait for.
const LONG: Duration = Duration::from_secs(10);

/// How long a case may take before it counts as hung. It takes some ten milliseconds.
const HUNG: Duration = Duration::from_secs(30);

/// As [`HUNG`], for the child of a fork.
const CHILD_HUNG_S: u32 = 10;

#[derive(Clone, Debug)]
enum Op {
    /// A new writer in that place. The one that was there is dropped.
    Open(usize, Mode, ReaderKind, Option<usize>),
    Write(usize, usize),
    /// A small write that is copied, and may be gathered with others.
    Copy(usize),
    /// A write by descriptor.
    Pipe(usize, Mode),
    /// Whether it has a short limit, although it need not wait for long.
    Flush(usize, bool),
    /// Mark the end of the queue for the owner's next flush. It is marked anew otherwise.
    Mark(usize),
    Close(usize),
    Abort(usize),
    Drop(usize),
    Sync,
    /// As [`Op::Mark`], for the next sync.
    MarkSync,
    Fork,
    Reader(Order),
}

/// What the reader is to do.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Read so many bytes more than ordered so far, then pause.
    Read(usize),
    ReadAll,
    Pause,
    Die,
}

/// Mostly the same, so that several threads use it at once.
fn owner() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 0..OWNERS, 1 => Just(2)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Write, Mode::Staged, Mode::ZeroCopy])
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..100,
        6 => 100usize..20_000,
        6 => 20_000usize..250_000,
        3 => 250_000usize..700_000, // large enough for the private pipe of `write`
        2 => prop::sample::select(vec![0, 1, 4096, 65_536, 65_537, 256 << 10, (1 << 20) + 1]),
    ]
}

fn open() -> impl Strategy<Value = Op> {
    let reader = prop::sample::select(vec![ReaderKind::Unknown, ReaderKind::Reads]);
    let queue_items = prop::sample::select(vec![None, Some(1), Some(3)]);
    (owner(), mode(), reader, queue_items)
        .prop_map(|(owner, mode, reader, queue_items)| Op::Open(owner, mode, reader, queue_items))
}

/// What any thread may do while the reader reads all.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        40 => (owner(), bytes()).prop_map(|(owner, bytes)| Op::Write(owner, bytes)),
        20 => owner().prop_map(Op::Copy),
        10 => (bytes(), mode()).prop_map(|(bytes, mode)| Op::Pipe(bytes, mode)),
        10 => (owner(), any::<bool>()).prop_map(|(owner, is_short)| Op::Flush(owner, is_short)),
        8 => open(),
        5 => owner().prop_map(Op::Close),
        10 => owner().prop_map(Op::Abort),
        4 => owner().prop_map(Op::Drop),
        8 => owner().prop_map(Op::Mark),
        4 => Just(Op::Sync),
        4 => Just(Op::MarkSync),
        3 => Just(Op::Fork),
        1 => Just(Op::Reader(Order::Die)),
    ]
}

fn reader_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => bytes().prop_map(Order::Read),
        2 => Just(Order::ReadAll),
        2 => Just(Order::Pause),
    ]
    .prop_map(Op::Reader)
}

/// More than the smaller pipe holds, so that it waits for its reader, and enough for the private pipe of `write`.
fn many_bytes() -> impl Strategy<Value = usize> {
    300_000usize..700_000
}

/// An abort while others write and wait, which single operations seldom make.
fn abort_among_others() -> impl Strategy<Value = Vec<Op>> {
    let opened = (mode(), mode(), mode());
    let written = (many_bytes(), bytes(), many_bytes());
    (opened, written, 0..OWNERS).prop_map(|(modes, (first, second, third), aborted)| {
        let open = |place, mode| Op::Open(place, mode, ReaderKind::Unknown, None);
        vec![
            open(0, modes.0),
            open(1, modes.1),
            open(2, modes.2),
            Op::Write(0, first),
            Op::Mark(0),
            Op::Write(1, second),
            Op::Copy(1),
            Op::Copy(1),
            Op::Write(1, second),
            Op::Write(2, third),
            Op::Abort(aborted),
            Op::Flush(0, true),
        ]
    })
}

/// What is in the pipe then arrives nowhere, although its write was a success.
fn death_after_a_write() -> impl Strategy<Value = Vec<Op>> {
    let written = prop::sample::select(vec![Mode::Write, Mode::Staged]);
    (owner(), written, 1usize..50_000).prop_map(|(place, mode, bytes)| {
        vec![
            Op::Open(place, mode, ReaderKind::Unknown, None),
            Op::Write(place, bytes),
            Op::Flush(place, true),
            Op::Reader(Order::Die),
            Op::Flush(place, false),
        ]
    })
}

/// A reader on a thread of its own.
struct Reader {
    state: Arc<(Mutex<Appetite>, Condvar)>,
    thread: Mutex<Option<JoinHandle<Vec<u8>>>>,
    /// What it had read when it ended.
    got: Mutex<Vec<u8>>,
}

#[derive(Clone, Copy)]
struct Appetite {
    bytes: usize,
    is_dying: bool,
}

impl Reader {
    fn start(pipe: PipeReader, bytes: usize) -> Self {
        let state = Arc::new((Mutex::new(Appetite { bytes, is_dying: false }), Condvar::new()));
        let own = Arc::clone(&state);
        let thread = Mutex::new(Some(thread::spawn(move || read(pipe, &own))));
        Self { state, thread, got: Mutex::default() }
    }

    fn order(&self, order: Order) {
        let mut appetite = lock(&self.state.0);
        match order {
            Order::Read(more) => appetite.bytes = appetite.bytes.saturating_add(more),
            Order::ReadAll => appetite.bytes = usize::MAX,
            Order::Pause => appetite.bytes = 0,
            Order::Die => appetite.is_dying = true,
        }
        self.state.1.notify_all();
    }

    /// Whether it reads or dies until nothing is left to wait for.
    fn ends_waits(&self) -> bool {
        let appetite = lock(&self.state.0);
        appetite.is_dying || appetite.bytes == usize::MAX
    }

    /// Waits for its death or its end of file.
    fn join(&self) {
        if let Some(thread) = lock(&self.thread).take() {
            *lock(&self.got) = thread.join().unwrap();
        }
    }
}

fn read(mut pipe: PipeReader, state: &(Mutex<Appetite>, Condvar)) -> Vec<u8> {
    let (mut got, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let waits = |appetite: &mut Appetite| appetite.bytes == 0 && !appetite.is_dying;
        let appetite = *state.1.wait_while(lock(&state.0), waits).unwrap();
        if appetite.is_dying {
            return got;
        }
        if !is_readable(&pipe) {
            continue;
        }
        let most = piece.len().min(appetite.bytes);
        let bytes = pipe.read(&mut piece[..most]).unwrap();
        if bytes == 0 {
            return got;
        }
        got.extend_from_slice(&piece[..bytes]);
        thread::sleep(PACE);
        spend(&mut lock(&state.0), bytes);
    }
}

/// Appetite without a limit stays.
fn spend(appetite: &mut Appetite, bytes: usize) {
    if appetite.bytes < usize::MAX {
        appetite.bytes = appetite.bytes.saturating_sub(bytes);
    }
}

/// Waits a short time, because the next order may be to die.
fn is_readable(pipe: &PipeReader) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 })).is_ok_and(|ready| ready > 0)
}

/// Memory that is overwritten as soon as its ticket has ended.
struct Reused(Mutex<Vec<u8>>);

struct Shared(Arc<Reused>);

// SAFETY: the vector is never resized, and it is overwritten only when the stream has let go.
unsafe impl Region for Shared {
    fn as_ptr(&self) -> *const u8 {
        lock(&self.0.0).as_ptr()
    }
    fn len(&self) -> usize {
        lock(&self.0.0).len()
    }
}

/// Overwrites the memory of a write that has ended. Notes it if the stream still holds it.
fn overwrite(memory: &Weak<Reused>, is_held_too_long: &AtomicBool) {
    // The log holds one.
    if memory.strong_count() > 1 {
        is_held_too_long.store(true, SeqCst);
    } else if let Some(memory) = memory.upgrade() {
        lock(&memory.0).fill(0xEE);
    }
}

/// What an owner has done and was told.
#[derive(Default)]
struct Facts {
    is_by_descriptor: bool,
    /// Calls that close it and have begun, without those that ended as stalled.
    closings: AtomicUsize,
    is_closed: AtomicBool,
    is_aborting: AtomicBool,
    failure: Mutex<Option<Error>>,
}

struct Owner {
    writer: Writer,
    mode: Mode,
    facts: Arc<Facts>,
    marked: Mutex<Option<(Mark, Vec<usize>)>>,
}

impl Owner {
    fn abort(&self) {
        self.facts.is_aborting.store(true, SeqCst);
        self.facts.closings.fetch_add(1, SeqCst);
        self.writer.abort();
        self.facts.is_closed.store(true, SeqCst);
    }

    /// The bytes that its stream had delivered when it failed, those that were lost, and all that it had accepted.
    fn counts_of_failure(&self) -> Option<[u64; 3]> {
        let Some(Error::Broken { bytes_delivered, bytes_lost, .. }) = *lock(&self.facts.failure) else {
            return None;
        };
        let accepted_bytes = self.writer.stats().accepted_bytes;
        Some([bytes_delivered, bytes_lost, accepted_bytes])
    }
}

enum State {
    /// A thread is about to queue it.
    Begun,
    Refused,
    Accepted(Ticket),
}

/// A write.
struct Piece {
    thread: usize,
    owner: Arc<Facts>,
    mode: Mode,
    content: Vec<u8>,
    /// Whether it was copied. Its ticket is then that of a block, and has the size of the first copy in that.
    is_copy: bool,
    memory: Arc<Reused>,
    state: State,
    /// The failure that it may have met has been reported.
    is_reported: bool,
    /// A flush after the reader's death was a success, so that it must have been read.
    is_flushed: bool,
}

impl Piece {
    fn ticket(&self) -> Option<&Ticket> {
        match &self.state {
            State::Accepted(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Whether it is neither queued nor about to be.
    fn is_over(&self) -> bool {
        match &self.state {
            State::Begun => false,
            State::Refused => true,
            State::Accepted(ticket) => ticket.has_ended(),
        }
    }

    /// Whether its ticket is its own: no two copies have the same size.
    fn is_first_of_block(&self) -> bool {
        self.ticket().is_some_and(|ticket| ticket.bytes() == self.content.len())
    }

    fn outcome(&self) -> Option<Result<(), Error>> {
        self.ticket().and_then(Ticket::peek)
    }

    /// Whether any part of it may be in the stream: an aborted block has one count.
    fn is_in_aborted_block(&self) -> bool {
        self.is_copy && matches!(self.outcome(), Some(Err(Error::Aborted { .. })))
    }

    fn may_have_given_bytes(&self) -> bool {
        match self.outcome() {
            Some(Err(Error::Aborted { bytes_lost })) => {
                self.is_copy || (bytes_lost as usize) < self.content.len()
            }
            Some(_) => !self.content.is_empty(),
            None => false,
        }
    }

    /// How many bytes at the beginning of what was read may be its own; none if it doesn't fit. Nothing follows a write
    /// that its reader's death has torn.
    fn possible_bytes(&self, rest: &[u8], is_dead: bool) -> Vec<usize> {
        let equal = self.content.iter().zip(rest).take_while(|(sent, got)| sent == got).count();
        if self.is_in_aborted_block() {
            return (equal.saturating_sub(BY_CHANCE)..=equal).rev().collect();
        }
        let bytes = match self.outcome() {
            Some(Err(Error::Aborted { bytes_lost })) => self.content.len() - bytes_lost as usize,
            _ => self.content.len(),
        };
        let is_torn = equal == rest.len() && equal < bytes && self.may_be_unread(is_dead);
        let is_whole = equal >= bytes && (self.is_copy || !self.is_broken());
        if is_whole || is_torn { vec![bytes.min(equal)] } else { vec![] }
    }

    fn is_broken(&self) -> bool {
        matches!(self.outcome(), Some(Err(Error::Broken { .. })))
    }

    /// Whether a part of it, or all, may be missing from what was read.
    fn may_be_unread(&self, is_dead: bool) -> bool {
        let must_be_read = self.is_ok_by_zero_copy() || self.is_flushed;
        self.is_in_aborted_block() || is_dead && !must_be_read
    }

    /// Whether it ended when it was read.
    fn is_ok_by_zero_copy(&self) -> bool {
        self.mode == Mode::ZeroCopy && self.outcome() == Some(Ok(()))
    }
}

/// What was known before a call.
struct Before {
    is_closed: bool,
    is_dead: bool,
    failure: Option<Error>,
    /// Writes whose acceptance was known.
    accepted: Vec<usize>,
    /// Nothing was pending.
    is_idle: bool,
}

/// One pipe with its owners, its reader, and the log.
struct Case {
    threads: usize,
    end: Mutex<Option<Arc<PipeWriter>>>,
    capacity_bytes: usize,
    reader: Reader,
    is_dying: AtomicBool,
    is_dead: AtomicBool,
    owners: [Mutex<Option<Arc<Owner>>>; OWNERS],
    by_descriptor: Arc<Facts>,
    marked: Mutex<Option<(engine::Marks, Vec<usize>)>>,
    log: Mutex<Vec<Piece>>,
    /// See [`Owner::counts_of_failure`].
    failures: Mutex<Vec<[u64; 3]>>,
    is_held_too_long: Arc<AtomicBool>,
    /// The pipes that were open before the first owner was.
    open_before: Vec<(i32, PathBuf)>,
    /// Held by a fork: its child has the reading end too, so that nobody can kill the reader meanwhile.
    forking: Mutex<()>,
    /// Held by a sync: a failure is reported to one of several.
    syncing: Mutex<()>,
}

impl Case {
    fn begin(threads: usize, capacity_bytes: usize, appetite_bytes: usize) -> Self {
        let _ = process::close(Some(HUNG)); // what a case that panicked has left
        let (reader, end) = pipe().unwrap();
        let case = Self {
            threads,
            end: Mutex::new(Some(Arc::new(end))),
            capacity_bytes,
            open_before: open_pipes(),
            reader: Reader::start(reader, appetite_bytes),
            is_dying: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            owners: Default::default(),
            by_descriptor: Arc::new(Facts { is_by_descriptor: true, ..Facts::default() }),
            marked: Mutex::default(),
            log: Mutex::default(),
            failures: Mutex::default(),
            is_held_too_long: Arc::default(),
            forking: Mutex::default(),
            syncing: Mutex::default(),
        };
        for (place, mode) in [Mode::Write, Mode::Staged, Mode::ZeroCopy].into_iter().enumerate() {
            case.open(place, mode, ReaderKind::Unknown, None);
        }
        case
    }

    fn step(&self, thread: usize, op: &Op) {
        match *op {
            Op::Open(place, mode, reader, queue_items) => self.open(place, mode, reader, queue_items),
            Op::Drop(place) => drop(self.take(place)),
            Op::Pipe(bytes, mode) => self.pipe(thread, bytes, mode),
            Op::Mark(place) => self.with_owner(place, |owner| self.mark(owner)),
            Op::Sync => self.sync(),
            Op::MarkSync => self.mark_sync(),
            Op::Fork => self.fork(),
            Op::Reader(Order::Die) => self.kill_reader(),
            Op::Reader(order) => self.reader.order(order),
            Op::Write(place, bytes) => self.with_owner(place, |owner| self.write(thread, owner, bytes)),
            Op::Copy(place) => self.with_owner(place, |owner| self.copy(thread, owner)),
            Op::Flush(place, is_short) => self.with_owner(place, |owner| self.flush(owner, is_short)),
            Op::Close(place) => self.with_owner(place, |owner| self.close(owner)),
            Op::Abort(place) => self.with_owner(place, Owner::abort),
        }
    }

    fn with_owner(&self, place: usize, call: impl FnOnce(&Owner)) {
        let owner = lock(&self.owners[place]).clone();
        if let Some(owner) = owner {
            call(&owner);
        }
    }

    fn take(&self, place: usize) -> Option<Arc<Owner>> {
        lock(&self.owners[place]).take()
    }

    fn end(&self) -> Arc<PipeWriter> {
        lock(&self.end).clone().expect("it is open until the case ends")
    }

    /// How long a call may wait.
    fn patience(&self, before: &Before) -> Option<Duration> {
        match before.is_idle {
            // For what has ended and is about to leave the queue.
            true => Some(LONG),
            false if self.reader.ends_waits() => None,
            false => SHORT,
        }
    }

    fn open(&self, place: usize, mode: Mode, reader: ReaderKind, queue_items: Option<usize>) {
        let mut options =
            WriterOptions::default().mode(mode).reader(reader).capacity_bytes(self.capacity_bytes);
        options.queue_items = queue_items;
        let writer = Writer::new(&*self.end(), &options).unwrap();
        let owner = Owner { writer, mode, facts: Arc::default(), marked: Mutex::default() };
        let before = lock(&self.owners[place]).replace(Arc::new(owner));
        drop(before); // outside of the lock
    }

    fn write(&self, thread: usize, owner: &Owner, bytes: usize) {
        let write = |region, timeout| owner.writer.submit(region, timeout);
        self.push(thread, &owner.facts, owner.mode, Some(bytes), write);
        self.note_counts(owner);
    }

    fn copy(&self, thread: usize, owner: &Owner) {
        let write = |region: Shared, timeout| {
            let copy = owner.writer.copy(&lock(&region.0.0)).unwrap();
            let written = owner.writer.write_copy(copy, timeout);
            lock(&region.0.0).fill(0xEE);
            written.map_err(|Rejected { error, .. }| Rejected { region, error })
        };
        self.push(thread, &owner.facts, owner.mode, None, write);
        self.note_counts(owner);
    }

    fn pipe(&self, thread: usize, bytes: usize, mode: Mode) {
        let write = |region, timeout| process::pipe(region, &*self.end(), mode, timeout);
        self.push(thread, &self.by_descriptor, mode, Some(bytes), write);
    }

    fn push(
        &self,
        thread: usize,
        owner: &Arc<Facts>,
        mode: Mode,
        bytes: Option<usize>,
        write: impl FnOnce(Shared, Option<Duration>) -> Result<Ticket, Rejected<Shared>>,
    ) {
        let before = self.before(owner);
        let (index, region) = self.begin_piece(thread, owner, mode, bytes);
        let start = region.as_ptr();
        let (state, outcome) = match write(region, self.patience(&before)) {
            Ok(ticket) => {
                if bytes.is_some() {
                    self.reuse_at_end(index, &ticket);
                }
                (State::Accepted(ticket), Ok(()))
            }
            Err(Rejected { region, error }) => {
                assert_eq!(region.as_ptr(), start, "the refused region comes back");
                (State::Refused, Err(error))
            }
        };
        lock(&self.log)[index].state = state;
        self.check(&before, owner, &outcome);
    }

    /// Without a size, it is a copy.
    fn begin_piece(
        &self,
        thread: usize,
        owner: &Arc<Facts>,
        mode: Mode,
        bytes: Option<usize>,
    ) -> (usize, Shared) {
        let mut log = lock(&self.log);
        let content = pattern(bytes.unwrap_or(COPY_BYTES + log.len()), log.len() as u64 + 1);
        let memory = Arc::new(Reused(Mutex::new(content.clone())));
        let region = Shared(Arc::clone(&memory));
        let owner = Arc::clone(owner);
        let (state, is_reported, is_flushed) = (State::Begun, false, false);
        let is_copy = bytes.is_none();
        log.push(Piece { thread, owner, mode, content, is_copy, memory, state, is_reported, is_flushed });
        (log.len() - 1, region)
    }

    fn reuse_at_end(&self, index: usize, ticket: &Ticket) {
        let memory = Arc::downgrade(&lock(&self.log)[index].memory);
        let is_held_too_long = Arc::clone(&self.is_held_too_long);
        ticket.on_end(move || overwrite(&memory, &is_held_too_long));
    }

    fn flush(&self, owner: &Owner, is_short: bool) {
        let mut before = self.before(&owner.facts);
        let timeout = if is_short && !before.is_idle { SHORT } else { self.patience(&before) };
        let outcome = match lock(&owner.marked).take() {
            None => owner.writer.flush(timeout),
            Some((mark, accepted)) => {
                before.accepted = accepted;
                owner.writer.flush_to(mark, timeout)
            }
        };
        self.check_flush(&before, owner, &outcome);
    }

    /// Takes the log first: what is accepted meanwhile may be before the mark or after it.
    fn mark(&self, owner: &Owner) {
        let accepted = self.before(&owner.facts).accepted;
        *lock(&owner.marked) = Some((owner.writer.mark(), accepted));
    }

    fn mark_sync(&self) {
        let accepted = self.before(&self.by_descriptor).accepted;
        *lock(&self.marked) = Some((engine::marks(), accepted));
    }

    fn close(&self, owner: &Owner) {
        let facts = &owner.facts;
        let before = self.before(facts);
        facts.closings.fetch_add(1, SeqCst);
        let outcome = owner.writer.close(self.patience(&before));
        match outcome {
            Err(Error::Stalled { .. }) => _ = facts.closings.fetch_sub(1, SeqCst),
            _ => facts.is_closed.store(true, SeqCst),
        }
        // To close what another call has closed is a success, whatever became of the writes.
        let may_do_nothing = before.is_closed || facts.closings.load(SeqCst) > 1;
        if outcome.is_ok() && may_do_nothing {
            return;
        }
        assert!(!before.is_closed, "to close again does nothing: {outcome:?}");
        self.check_flush(&before, owner, &outcome);
    }

    fn check_flush(&self, before: &Before, owner: &Owner, outcome: &Result<(), Error>) {
        self.check(before, &owner.facts, outcome);
        self.note_counts(owner);
        if outcome.is_ok() {
            self.check_flushed(before, &owner.facts);
        }
    }

    fn sync(&self) {
        let _alone = lock(&self.syncing);
        let mut before = self.before(&self.by_descriptor);
        let marked = lock(&self.marked).take();
        let marks = marked.map(|(marks, accepted)| {
            (before.accepted, before.failure) = (accepted, None); // it may not concern what failed
            marks
        });
        let outcome = engine::sync_to(&marks.unwrap_or_else(engine::marks), self.patience(&before));
        let outcome = outcome.map_err(|error| {
            assert!(error.others.is_empty(), "there is one pipe: {error:?}");
            error.first
        });
        self.check(&before, &self.by_descriptor, &outcome);
        match outcome {
            Ok(()) => self.check_flushed(&before, &self.by_descriptor),
            Err(Error::Broken { .. }) => self.forget_failure(),
            Err(_) => {}
        }
    }

    /// A failure of writes by descriptor has been reported: the next one begins anew.
    fn forget_failure(&self) {
        *lock(&self.by_descriptor.failure) = None;
        lock(&self.log).iter_mut().for_each(|piece| piece.is_reported |= piece.owner.is_by_descriptor);
    }

    fn kill_reader(&self) {
        let _no_fork = lock(&self.forking);
        self.is_dying.store(true, SeqCst);
        self.reader.order(Order::Die);
        self.reader.join();
        self.is_dead.store(true, SeqCst);
    }

    fn fork(&self) {
        let _alone = lock(&self.forking);
        let owners: Vec<_> = self.owners.iter().filter_map(|owner| lock(owner).clone()).collect();
        let tickets: Vec<_> = lock(&self.log).iter().filter_map(|piece| piece.ticket().cloned()).collect();
        // SAFETY: the child uses nothing that another thread may have locked, and ends in `be_child`.
        match unsafe { libc::fork() } {
            0 => be_child(|| check_child(&owners, &tickets, &self.open_before)),
            child => assert_eq!(status_of(child), 0, "of the child"),
        }
    }

    fn before(&self, owner: &Arc<Facts>) -> Before {
        let log = lock(&self.log);
        // Of writes by descriptor another thread's sync may end it.
        let is_lasting = !owner.is_by_descriptor || self.threads == 1;
        Before {
            is_closed: owner.is_closed.load(SeqCst),
            is_dead: self.is_dead.load(SeqCst),
            failure: lock(&owner.failure).clone().filter(|_| is_lasting),
            accepted: (0..log.len()).filter(|index| log[*index].ticket().is_some()).collect(),
            is_idle: log.iter().all(Piece::is_over),
        }
    }

    /// Whether what a call has returned can be true.
    fn check(&self, before: &Before, owner: &Facts, outcome: &Result<(), Error>) {
        match outcome {
            Err(Error::Closed) => assert!(owner.closings.load(SeqCst) > 0, "nobody has closed it"),
            _ if before.is_closed => panic!("it was closed: {outcome:?}"),
            Err(failure @ Error::Broken { .. }) => {
                assert!(self.is_dying.load(SeqCst), "the reader is there: {failure:?}");
                let first = lock(&owner.failure).get_or_insert_with(|| failure.clone()).clone();
                assert!(first == *failure || before.failure.is_none(), "{failure:?} after {first:?}");
            }
            Err(Error::Stalled { .. }) => assert!(!before.is_idle, "nothing was pending"),
            _ if before.failure.is_some() => panic!("{outcome:?} after {:?}", before.failure),
            Ok(()) => {}
            Err(Error::Aborted { bytes_lost }) => {
                assert!(owner.is_aborting.load(SeqCst) && *bytes_lost > 0, "nobody has aborted it");
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// A wait that was a success has waited for everything, and nothing of it was lost.
    fn check_flushed(&self, before: &Before, owner: &Arc<Facts>) {
        // Others' writes may belong to a stream that has failed, or to none that `sync` waits for.
        let waits_for_all = !owner.is_by_descriptor && !self.is_dying.load(SeqCst);
        let mut log = lock(&self.log);
        for index in &before.accepted {
            let piece = &mut log[*index];
            let is_own = Arc::ptr_eq(&piece.owner, owner);
            let outcome = piece.outcome();
            assert!(outcome.is_some() || !(is_own || waits_for_all), "write {index} is pending");
            match outcome {
                Some(Ok(())) if is_own => piece.is_flushed |= before.is_dead && !owner.is_by_descriptor,
                None | Some(Ok(()) | Err(Error::Aborted { bytes_lost: 0 })) => {}
                Some(Err(lost)) => assert!(!is_own || piece.is_reported, "write {index}: {lost:?}"),
            }
        }
    }

    fn note_counts(&self, owner: &Owner) {
        lock(&self.failures).extend(owner.counts_of_failure());
    }

    /// Ends everything, and checks what was read.
    fn finish(&self) {
        self.reader.order(Order::ReadAll);
        for place in 0..OWNERS {
            self.with_owner(place, |owner| self.close(owner));
            drop(self.take(place));
        }
        *lock(&self.marked) = None;
        self.sync();
        process::close(None).expect("every failure has been reported");
        lock(&self.log).iter().filter_map(Piece::ticket).for_each(|ticket| _ = ticket.wait());
        *lock(&self.end) = None;
        self.reader.join();
        let log = lock(&self.log);
        log.iter().for_each(|piece| self.check_outcome(piece));
        let got = lock(&self.reader.got);
        verify(&log, &got, self.is_dead.load(SeqCst));
        self.check_counts(&log, got.len() as u64);
        assert!(!self.is_held_too_long.load(SeqCst), "a ticket ends after its memory was let go");
    }

    fn check_outcome(&self, piece: &Piece) {
        let Some(ticket) = piece.ticket() else { return };
        match ticket.peek().expect("it was waited for") {
            Ok(()) => {}
            Err(Error::Aborted { bytes_lost }) => {
                assert!(piece.owner.is_aborting.load(SeqCst), "nobody has aborted it");
                assert!(piece.is_copy || bytes_lost <= piece.content.len() as u64);
            }
            Err(failure) => {
                assert!(self.is_dying.load(SeqCst), "the reader is there: {failure:?}");
                let told = lock(&piece.owner.failure).clone().filter(|_| !piece.owner.is_by_descriptor);
                assert!(told.is_none_or(|told| told == failure), "{failure:?}");
            }
        }
    }

    /// What is lost was accepted, and neither read nor aborted.
    fn check_counts(&self, log: &[Piece], read_bytes: u64) {
        let accepted = log.iter().filter(|piece| piece.ticket().is_some());
        let all_bytes: u64 = accepted.map(|piece| piece.content.len() as u64).sum();
        let tickets = || log.iter().filter(|piece| piece.is_first_of_block()).filter_map(Piece::ticket);
        let aborted = |ticket: &Ticket| match ticket.peek() {
            Some(Err(Error::Aborted { bytes_lost })) => bytes_lost,
            _ => 0,
        };
        let aborted_bytes: u64 = tickets().map(aborted).sum();
        for [delivered_bytes, lost_bytes, accepted_bytes] in lock(&self.failures).iter() {
            assert!(*accepted_bytes <= all_bytes && delivered_bytes + lost_bytes <= *accepted_bytes);
            // Otherwise the pipe had another stream before or after it.
            if *accepted_bytes == all_bytes {
                assert_eq!(*delivered_bytes, read_bytes);
                assert_eq!(delivered_bytes + lost_bytes + aborted_bytes, all_bytes);
            }
        }
    }
}

impl Drop for Case {
    /// For a case that has failed.
    fn drop(&mut self) {
        self.reader.order(Order::Die);
    }
}

/// What was read is a sequence of what has arrived of each write, and those of one thread are in order.
fn verify(log: &[Piece], got: &[u8], is_dead: bool) {
    let threads = log.iter().map(|piece| piece.thread + 1).max().unwrap_or(0);
    let of = |thread| move |piece: &&Piece| piece.thread == thread && piece.may_have_given_bytes();
    let writes: Vec<Vec<_>> = (0..threads).map(|thread| log.iter().filter(of(thread)).collect()).collect();
    let mut search = Search { writes, got, is_dead, tried: HashSet::new(), furthest: 0 };
    let is_explained = search.explains(&mut vec![0; threads], 0);
    assert!(
        is_explained,
        "no order of the writes explains {} bytes read after {}",
        got.len(),
        search.furthest
    );
}

/// For an order of the writes that explains what was read. A few bytes match by chance, so that one may have to go back.
struct Search<'a> {
    /// Those that may have given bytes, by thread.
    writes: Vec<Vec<&'a Piece>>,
    got: &'a [u8],
    is_dead: bool,
    /// What has been tried from: how many writes of each thread, and how many bytes.
    tried: HashSet<(Vec<usize>, usize)>,
    furthest: usize,
}

impl Search<'_> {
    /// Whether the writes after `passed` of each thread explain what was read after `bytes`.
    fn explains(&mut self, passed: &mut Vec<usize>, bytes: usize) -> bool {
        let rest = &self.got[bytes..];
        let mut unread = self.writes.iter().zip(&*passed).flat_map(|(writes, passed)| &writes[*passed..]);
        if rest.is_empty() && unread.all(|piece| piece.may_be_unread(self.is_dead)) {
            return true;
        }
        if !self.tried.insert((passed.clone(), bytes)) {
            return false;
        }
        self.furthest = self.furthest.max(bytes);
        (0..passed.len()).any(|thread| {
            let Some(piece) = self.writes[thread].get(passed[thread]) else { return false };
            passed[thread] += 1;
            let mut given = piece.possible_bytes(rest, self.is_dead).into_iter();
            let is_explained = given.any(|given| self.explains(passed, bytes + given));
            passed[thread] -= 1;
            is_explained
        })
    }
}

/// Runs the check in the child of a fork, which then ends.
fn be_child(check: impl FnOnce() -> Result<(), &'static str>) -> ! {
    // SAFETY: nobody has set a handler, so that the signal ends a child that hangs.
    unsafe { libc::alarm(CHILD_HUNG_S) };
    let outcome = catch_unwind(AssertUnwindSafe(check)).unwrap_or(Err("it panicked"));
    if let Err(fault) = outcome {
        say(fault);
    }
    // SAFETY: nothing here needs to be dropped.
    unsafe { libc::_exit(outcome.is_err().into()) }
}

/// Whether a child has nothing of its parent's, and can do everything itself.
fn check_child(
    owners: &[Arc<Owner>],
    tickets: &[Ticket],
    open_before: &[(i32, PathBuf)],
) -> Result<(), &'static str> {
    let that = |holds: bool, fault| if holds { Ok(()) } else { Err(fault) };
    let forked = Err(Error::Forked);
    that(open_pipes().iter().all(|open| open_before.contains(open)), "it has inherited a descriptor")?;
    for Owner { writer, .. } in owners.iter().map(|owner| &**owner) {
        let refused = writer.submit(vec![1], None).map_err(|refused| refused.error);
        that(matches!(refused, Err(Error::Forked)), "it writes by an inherited writer")?;
        that(writer.flush(None) == forked, "it flushes an inherited writer")?;
        writer.abort();
        that(writer.close(None).is_ok(), "it cannot close an inherited writer")?;
    }
    that(tickets.iter().all(|ticket| ticket.wait() == forked), "an inherited ticket is its own")?;
    that(process::sync(None).is_ok(), "it has inherited a failure")?;
    [Mode::Write, Mode::Staged, Mode::ZeroCopy].into_iter().try_for_each(write_to_itself)
}

/// The numbers of the descriptors of pipes, with what they lead to. Other threads may have files open for a moment.
fn open_pipes() -> Vec<(i32, PathBuf)> {
    let leads_to = |number| Some((number, std::fs::read_link(format!("/proc/self/fd/{number}")).ok()?));
    (0..100).filter_map(leads_to).filter(|(_, path)| path.to_string_lossy().starts_with("pipe:")).collect()
}

fn write_to_itself(mode: Mode) -> Result<(), &'static str> {
    let (mut reader, end) = pipe().map_err(|_| "it gets no pipe")?;
    let sent = pattern(100_000, 7);
    let writer = Writer::new(&end, &WriterOptions::default().mode(mode)).map_err(|_| "it gets no writer")?;
    let ticket = writer.submit(sent.clone(), None).map_err(|_| "it cannot write")?;
    let by_descriptor =
        process::pipe(sent.clone(), &end, mode, None).map_err(|_| "it cannot write by descriptor")?;
    let mut got = vec![0; 2 * sent.len()];
    reader.read_exact(&mut got).map_err(|_| "it cannot read")?;
    let is_whole = got == [&*sent, &*sent].concat();
    let is_ok = [ticket.wait(), by_descriptor.wait(), writer.close(None)].iter().all(Result::is_ok);
    if is_whole && is_ok { Ok(()) } else { Err("it does not read what it wrote") }
}

fn status_of(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: the child is ours, and there is room for its status.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
        assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::Interrupted);
    }
    status
}

/// Not by `println`, which the test's harness keeps to itself if the process ends, and whose lock a child may find locked.
fn say(text: &str) {
    let _ = rustix::io::write(stdout().as_fd(), format!("{text}\n").as_bytes());
}

/// Ends the process with the operations of the case if it hangs.
fn watched(ops: &impl Debug, body: impl FnOnce()) {
    let (done, is_done) = mpsc::channel::<()>();
    let dump = format!("it hangs: {ops:?}");
    thread::spawn(move || {
        if is_done.recv_timeout(HUNG) == Err(mpsc::RecvTimeoutError::Timeout) {
            say(&dump);
            std::process::abort();
        }
    });
    body();
    drop(done);
}

/// Keeps `std` from a handler for stack overflows, as in a program that is not Rust's: each of its threads takes a lock for it when
/// it starts and when it ends, and the child of a fork in between could start no thread.
fn without_stack_guard(command: &mut Command) {
    let ignore = || {
        // SAFETY: no handler. The system ends a process at a fault of its own all the same.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_IGN);
            libc::signal(libc::SIGBUS, libc::SIG_IGN);
        }
        Ok(())
    };
    // SAFETY: signal(2) may be called between a fork and an exec.
    unsafe { command.pre_exec(ignore) };
}

fn config(all: u32) -> ProptestConfig {
    ProptestConfig {
        cases: cases(all),
        max_shrink_time: 20_000, // milliseconds
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn capacity_bytes() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![64 << 10, 1 << 20])
}

/// One thread and a reader that pauses: the same operations do nearly the same again.
#[test]
fn owners_of_one_pipe_do_anything_in_turn() {
    in_own_process_with("model::owners_of_one_pipe_do_anything_in_turn", without_stack_guard, || {
        let one = prop_oneof![5 => op(), 1 => reader_op()].prop_map(|op| vec![op]);
        let some = prop_oneof![40 => one, 3 => abort_among_others(), 1 => death_after_a_write()];
        let ops = prop::collection::vec(some, 1..40).prop_map(|ops| ops.concat());
        proptest!(config(500), |(ops in ops, capacity_bytes in capacity_bytes())| {
            watched(&ops, || {
                let case = Case::begin(1, capacity_bytes, 0);
                ops.iter().for_each(|op| case.step(0, op));
                case.finish();
            });
        });
    });
}

#[test]
fn owners_of_one_pipe_do_anything_at_once() {
    in_own_process_with("model::owners_of_one_pipe_do_anything_at_once", without_stack_guard, || {
        let ops = prop::collection::vec(prop::collection::vec(op(), 1..30), 2..=3);
        proptest!(config(500), |(ops in ops, capacity_bytes in capacity_bytes())| {
            watched(&ops, || {
                let case = Case::begin(ops.len(), capacity_bytes, usize::MAX);
                thread::scope(|scope| {
                    for (thread, ops) in ops.iter().enumerate() {
                        let case = &case;
                        scope.spawn(move || ops.iter().for_each(|op| case.step(thread, op)));
                    }
                });
                case.finish();
            });
        });
    });
}
