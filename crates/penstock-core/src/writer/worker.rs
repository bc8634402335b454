//! The native thread that serves one stream. It starts with the first write and leaves when it has been idle for a
//! while.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::memory::region::Region;
use crate::pipe::budget;
use crate::runtime::fork_fd::ForkFd;
use crate::runtime::thread::{self, Signals};
use crate::sync::deadline_after;
use crate::sync::queue::Next;
use crate::sync::ticket::Ticket;
use crate::sys::{AsHandle, Borrowed, SysError, fd, handle, pipe};
use crate::writer::exit;
use crate::writer::job::{Awaiting, Destination, Job, WriteView};
use crate::writer::read_watch::ReadWatch;
use crate::writer::rejected::Rejected;
use crate::writer::stream::{IDLE, Stream};
use crate::writer::transformer::Transformer;
use crate::writer::transport::choice::{Transport, WriteOptions};
use crate::writer::transport::engine::Engine;
use crate::writer::transport::sink::{Sink, Stop};
use crate::writer::transport::write::BouncePipe;

/// How long an idle worker stays: longer than a frame at one a second lasts. Guessed. A new thread costs some 50 µs, an
/// idle one only its staging memory.
const LINGER: Duration = Duration::from_millis(1500);

/// Idle workers of the whole process at most. Guessed: few programs write to more streams at once. Beyond, a write
/// costs the start of a thread.
const MAX_IDLE: usize = 16;

/// How long `close` waits for idle workers to leave, which takes microseconds.
pub(crate) const WORKERS_LEAVE_WITHIN: Duration = Duration::from_millis(200);

/// Makes all idle workers leave. Waits until they have left, or for the deadline.
pub(crate) fn dismiss_all(deadline: Instant) {
    let streams = Stream::all();
    // All are told first, then each is awaited.
    streams.iter().for_each(|stream| stream.queue.dismiss_worker(Some(Instant::now())));
    streams.iter().for_each(|stream| stream.queue.dismiss_worker(Some(deadline)));
}

/// Queues a write, and starts the stream's worker if it has none. Waits for room until the deadline.
pub(crate) fn push<R: Region>(
    stream: &Arc<Stream>,
    region: R,
    destination: &mut Option<Arc<Destination>>,
    options: WriteOptions,
    timeout: Option<Duration>,
) -> Result<Ticket, Rejected<R>> {
    let (mode, reader, bytes) = (options.mode, options.reader, region.len());
    let pushed = stream.push(Box::new(region), destination, options, deadline_after(timeout));
    let (ticket, start_worker) = pushed.map_err(Rejected::unboxed)?;
    exit::DRAIN.arm();
    if start_worker {
        start(stream, BouncePipe::suited(stream.kind, mode, reader, bytes));
    }
    Ok(ticket)
}

fn start(stream: &Arc<Stream>, bounce: Option<BouncePipe>) {
    let own = Arc::clone(stream);
    let waker = stream.make_waker();
    let started = thread::spawn(Signals::Blocked, move || {
        let mut watch = ReadWatch::new(waker);
        if thread::guarded(|| serve(&own, bounce, &mut watch)).is_err() {
            fail_after_panic(&own, &mut watch);
            own.queue.sign_off();
        }
        own.copies.free_unused();
    });
    if let Err(fault) = started {
        stream.fail_after(0, |delivered, lost| fault.of_stream(delivered, lost), |_| {});
        // Only now: otherwise a push would start another worker, which would write from memory that was released here.
        stream.queue.sign_off();
    }
}

/// Fails the stream after the panic of a transform, in the middle of any write.
fn fail_after_panic(stream: &Arc<Stream>, watch: &mut ReadWatch) {
    // The descriptor of any write: all lead to the pipe in which pages may be.
    let destination = stream.queue.select(|job| job.destination().cloned()).into_iter().next();
    let Some(destination) = destination else { return stream.fail(SysError::IO, 0) };
    let fd = destination.fd.as_handle();
    let has_spliced = stream.meter.written_by()[Transport::ZeroCopy as usize].1 > 0;
    let transport = if has_spliced { Transport::ZeroCopy } else { Transport::Write };
    wait_for_spliced_pages(stream, fd, transport, watch);
    fail(stream, fd, SysError::IO, transport);
}

fn serve(stream: &Arc<Stream>, bounce: Option<BouncePipe>, watch: &mut ReadWatch) {
    stream.policy.begin();
    let mut engine = Engine::new(bounce);
    let mut transformer = Transformer::default();
    let mut yields = false;
    loop {
        stream.policy.apply();
        let next = match stream.oldest_awaiting() {
            Some(oldest) => next_beside_reader(stream, oldest, watch),
            None => next_when_idle(stream),
        };
        match next {
            Next::Write(work) => {
                if work.options.transform.is_some() && !std::mem::replace(&mut yields, true) {
                    yield_to_callers(stream);
                }
                let start = Instant::now();
                watch.end();
                write(stream, &work, &mut engine, &mut transformer, watch);
                stream.meter.worker_busy.add(start.elapsed());
            }
            Next::Reap => {}
            Next::Leave => return,
        }
        look_at_reader(stream, watch);
    }
}

fn next_when_idle(stream: &Stream) -> Next<WriteView> {
    // Relaxed: an approximate count is enough.
    let others_idle = IDLE.get().fetch_add(1, Ordering::Relaxed);
    let patience = if others_idle < MAX_IDLE { LINGER } else { Duration::ZERO };
    let next = stream.queue.next(Some(Instant::now() + patience), Job::view);
    IDLE.get().fetch_sub(1, Ordering::Relaxed);
    next
}

/// The next write, if there is one. Otherwise, perhaps because the queue is full of writes that the reader has not read, waits
/// for the reader or a change of the queue.
fn next_beside_reader(stream: &Stream, oldest: Awaiting, watch: &mut ReadWatch) -> Next<WriteView> {
    let start = Instant::now();
    let next = match watch.first_pause() {
        Some(pause) => stream.queue.next(Some(start + pause), Job::view),
        None => {
            watch.wake_at(|| stream.queue.arrival());
            let next = stream.queue.next(Some(start), Job::view);
            if let Next::Reap = next {
                // SAFETY: the job that waits holds the descriptor, and only this thread ends it.
                watch.wait(unsafe { handle::borrow(oldest.fd) });
            }
            next
        }
    };
    stream.meter.worker_blocked.add(start.elapsed());
    stream.meter.worker_busy.add(start.elapsed());
    next
}

/// Lets a caller whose write woke this thread keep its CPU during a transform. Measured with frames of 1080p at 30 a
/// second into x264, 2-core x86-64 VM, Linux 6.18, 2026-11-21: the 99th percentile of `write` fell from 2 to 5 ms to
/// 0.25 to 0.36 ms, and nothing was slower at full speed. A caller's policy stays.
fn yield_to_callers(stream: &Stream) {
    if !stream.policy.is_wanted() {
        penstock_cpu::yield_when_woken();
    }
}

fn write(
    stream: &Arc<Stream>,
    work: &WriteView,
    engine: &mut Engine,
    transformer: &mut Transformer,
    watch: &mut ReadWatch,
) {
    // SAFETY: the job at the cursor holds the descriptor, and only this thread ends jobs that it has begun.
    let fd = unsafe { handle::borrow(work.fd) };
    let work = match stream.transform(transformer, work) {
        Ok(work) => work,
        Err(errno) => {
            wait_for_spliced_pages(stream, fd, Transport::Write, watch);
            return fail(stream, fd, errno, Transport::Write);
        }
    };
    let waker = watch.waker.clone();
    let beside = RefCell::new((transformer, &mut *watch));
    // Only for this write: while it is open, the terminal's other side gets no hangup.
    let terminal = ForkFd::of_terminal(fd, stream.kind);
    let sink = Sink {
        fd: terminal.as_ref().map_or(fd, AsHandle::as_handle),
        kind: stream.kind,
        meter: &stream.meter,
        cut: &stream.cut,
        number: work.number,
        waker: waker.as_deref(),
        on_progress: &|| reap_what_must_have_been_read(stream),
        use_wait: &|| {
            // The reader may wait for the end of what it has read before it makes room.
            if stream.oldest_awaiting().is_some() {
                reap_what_was_read(stream);
            }
            let (transformer, watch) = &mut *beside.borrow_mut();
            if !stream.has_transforms() {
                return false; // so that the next write need not wake this thread
            }
            watch.wake_at(|| stream.queue.arrival());
            stream.transform_following(transformer)
        },
    };
    let written_before = stream.meter.written_bytes();
    let outcome = match work.failure {
        Some(errno) => Err((Stop::Failed { errno, rest: work.span }, Transport::Write)),
        // SAFETY: the job at the cursor holds the region; after a zero-copy write it keeps it until the reader is through.
        None => unsafe { engine.push(&sink, work.span, &work.options) },
    };
    drop(terminal);
    match outcome {
        Ok(transport) => stream.mark_written(transport == Transport::ZeroCopy),
        Err((Stop::Cut, transport)) => {
            stream.mark_cut(written_before, transport == Transport::ZeroCopy);
        }
        Err((Stop::Failed { errno, .. }, transport)) => {
            wait_for_spliced_pages(stream, fd, transport, watch);
            fail(stream, fd, errno, transport);
        }
    }
    reap_what_was_read(stream);
}

/// Looks at the reader only when a pipe's capacity has been written after the oldest write that waits for it: each look
/// takes the pipe's lock, which the reader needs.
fn reap_what_must_have_been_read(stream: &Arc<Stream>) {
    let position = stream.meter.written_bytes();
    if stream.oldest_awaiting().is_some_and(|oldest| position >= oldest.end + budget::WANTED_BYTES as u64) {
        reap_what_was_read(stream);
    }
}

/// Ends what the reader has read.
fn reap_what_was_read(stream: &Arc<Stream>) {
    match stream.oldest_awaiting() {
        None => stream.reap(u64::MAX),
        Some(oldest) => {
            // SAFETY: the job that waits holds the descriptor, and only this thread ends it.
            let fd = unsafe { handle::borrow(oldest.fd) };
            if let Ok(unread) = pipe::unread_bytes(fd) {
                stream.reap(stream.meter.written_bytes().saturating_sub(unread));
            }
        }
    }
}

/// As [`reap_what_was_read`], and fails the stream if the reader is gone.
fn look_at_reader(stream: &Arc<Stream>, watch: &mut ReadWatch) {
    let Some(oldest) = stream.oldest_awaiting() else {
        return;
    };
    // SAFETY: the job that waits holds the descriptor, and only this thread ends it.
    let fd = unsafe { handle::borrow(oldest.fd) };
    // Check for the reader before counting unread bytes: in the other order, a reader that drains the pipe and exits
    // looks as if it had left bytes.
    let gone = fd::peer_is_gone(fd);
    let unread = pipe::unread_bytes(fd).unwrap_or(0);
    watch.note(unread);
    if gone && unread > 0 {
        // `fail` may end that write, and with it the last use of the descriptor.
        let held = stream.queue.front(|job| job.destination().cloned()).flatten();
        fail(stream, fd, SysError::NO_READER, Transport::ZeroCopy);
        drop(held);
    } else {
        stream.reap(stream.meter.written_bytes().saturating_sub(unread));
    }
}

/// Waits until a living reader has read the caller's pages in the pipe, whatever else failed.
fn wait_for_spliced_pages(
    stream: &Arc<Stream>,
    fd: Borrowed<'_>,
    transport: Transport,
    watch: &mut ReadWatch,
) {
    let has_own_pages =
        |unread: u64| stream.oldest_awaiting().is_some() || (transport == Transport::ZeroCopy && unread > 0);
    loop {
        let unread = pipe::unread_bytes(fd).unwrap_or(0);
        watch.note(unread);
        if !has_own_pages(unread) || fd::peer_is_gone(fd) {
            return;
        }
        watch.wait(fd);
        reap_what_was_read(stream);
    }
}

/// Fails the stream. If the pipe has no reader, its content is lost.
fn fail(stream: &Arc<Stream>, fd: Borrowed<'_>, errno: SysError, transport: Transport) {
    reap_what_was_read(stream);
    let unread = if stream.kind.is_pipe() { pipe::unread_bytes(fd).unwrap_or(0) } else { 0 };
    let has_spliced = transport == Transport::ZeroCopy || stream.oldest_awaiting().is_some();
    if unread == 0 || !has_spliced {
        let is_lost = fd::peer_is_gone(fd);
        return stream.fail(errno, if is_lost { unread } else { 0 });
    }
    // After the failure the caller may write to these pages again, and whoever opens a FIFO next would read that.
    stream.begin_to_take_back(unread);
    match take_back_pages(fd) {
        Ok(taken_back) => stream.fail(errno, taken_back),
        Err(_) if pipe::is_anonymous(fd) => stream.fail(errno, unread),
        Err(_) => stream.fail_keeping_memory(errno, unread),
    }
}

fn take_back_pages(fd: Borrowed<'_>) -> Result<u64, SysError> {
    let reader = ForkFd::make(|| pipe::reopen_reader(fd))?;
    pipe::discard(reader.as_handle())
}
