//! The state that all threads of a pipeline share, and the threads' start and end.

use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::chunk::{Cause, Chunk, ChunkError};
use super::failures::{Failures, OnError};
use super::meter::{Meter, Part};
use crate::latency::Recorder;
use penstock_core::engine::{
    self, Channel, Fault, Limits, Signals, Taken, Waker, deadline_after, lock, passed, wait_until,
};
use penstock_core::{Error, Pool, Writer};
use penstock_cpu::ThreadPolicy;

/// How much may wait between two parts of a pipeline. One chunk always fits, whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Depth {
    /// Number of chunks.
    pub items: usize,
    /// Bytes of memory of all of them together.
    pub bytes: usize,
}

impl Default for Depth {
    /// 16 chunks and 64 MiB: enough that a short pause of one part stops no other, and small assets stay in the cache.
    fn default() -> Self {
        Self { items: 16, bytes: 64 << 20 }
    }
}

/// Options of a pipeline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How much may wait between two parts.
    pub depth: Depth,
    /// What happens when a chunk fails.
    pub on_error: OnError,
    /// Largest size of a chunk in bytes, read or decompressed. A larger one fails, and so does a zstd stream whose window is
    /// larger, from 8 MiB on. 256 MiB by default.
    pub max_chunk_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { depth: Depth::default(), on_error: OnError::Raise, max_chunk_bytes: 256 << 20 }
    }
}

impl Options {
    /// Sets how many chunks, and bytes of memory, may wait between two parts.
    #[must_use]
    pub fn depth(self, items: usize, bytes: usize) -> Self {
        Self { depth: Depth { items, bytes }, ..self }
    }

    /// Sets what happens when a chunk fails.
    #[must_use]
    pub fn on_error(self, on_error: OnError) -> Self {
        Self { on_error, ..self }
    }

    /// Sets the largest size of a chunk.
    #[must_use]
    pub fn max_chunk_bytes(self, max_chunk_bytes: usize) -> Self {
        Self { max_chunk_bytes, ..self }
    }
}

/// What goes through the channels: a chunk or its failure, which keeps its place in the order.
pub(super) type Item = Result<Chunk, Arc<ChunkError>>;

/// Runs a worker within a function of the caller's.
pub(super) type Enter = fn(&mut (dyn FnMut() + Send));

pub(super) struct Graph {
    pub(super) began: Instant,
    pub(super) pool: Pool,
    pub(super) max_chunk_bytes: usize,
    pub(super) failures: Failures,
    pub(super) parts: Vec<Part>,
    pub(super) names: Arc<[String]>,
    /// The name of the source, for failures without a chunk.
    pub(super) label: Arc<OsStr>,
    /// Channel `n` follows part `n`.
    pub(super) channels: Vec<Channel<Item>>,
    /// Wakes a source that waits for its descriptor.
    pub(super) waker: Waker,
    pub(super) end_to_end: Arc<Recorder>,
    /// The sink's writer, so that a stop reaches a thread that waits for room in its stream.
    pub(super) writer: OnceLock<Writer>,
    /// How the pipeline ended, and when. The first to end it sets this, before it stops the channels: so whoever finds one
    /// stopped finds here why.
    end: OnceLock<End>,
    /// Threads that have not ended.
    running: Mutex<Vec<ThreadId>>,
    left: Condvar,
}

impl Graph {
    pub(super) fn new(parts: Vec<Part>, label: Arc<OsStr>, options: &Options) -> Result<Self, Error> {
        let Depth { items, bytes } = options.depth;
        Ok(Self {
            began: Instant::now(),
            pool: Pool::new(bytes),
            max_chunk_bytes: options.max_chunk_bytes,
            failures: Failures::new(options.on_error),
            names: parts.iter().map(|part| part.name.clone()).collect(),
            channels: (1..parts.len()).map(|_| Channel::new(Limits { bytes, items })).collect(),
            parts,
            label,
            waker: Waker::new()?,
            end_to_end: Arc::default(),
            writer: OnceLock::new(),
            end: OnceLock::new(),
            running: Mutex::new(Vec::new()),
            left: Condvar::new(),
        })
    }

    /// Nanoseconds since the pipeline began.
    pub(super) fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Whether somebody has ended the pipeline.
    pub(super) fn is_stopped(&self) -> bool {
        self.end.get().is_some()
    }

    /// How the pipeline ended: with everything, or why not. For those who know that it has ended.
    pub(super) fn outcome(&self) -> Result<(), Error> {
        self.end.get().map_or_else(|| Err(Fault::Panicked.into()), |end| end.outcome.clone())
    }

    /// When the pipeline ended, in nanoseconds since it began.
    pub(super) fn ended_ns(&self) -> Option<u64> {
        self.end.get().map(|end| end.at_ns)
    }

    /// Whether it belongs to the parent of a fork: its threads are not here, and its locks may be held for ever.
    pub(super) fn is_inherited(&self) -> bool {
        self.waker.is_inherited()
    }

    /// Ends the pipeline, with that outcome unless it has ended before: all threads end soon, wherever they wait. Does not
    /// wait: destructors call it.
    pub(super) fn stop(&self, outcome: Result<(), Error>) {
        let _ = self.end.set(End { at_ns: self.now_ns(), outcome });
        self.channels.iter().for_each(Channel::stop);
        self.pool.keep_nothing();
        self.waker.wake();
        if let Some(writer) = self.writer.get() {
            writer.abort_now();
        }
    }

    /// Takes the next chunk that the last stage gave; none at the end. A failure that ends the pipeline comes for every caller,
    /// whoever takes the failed chunk itself, and however often they call.
    pub(super) fn take_last(&self, timeout: Option<Duration>) -> Result<Option<Chunk>, Error> {
        let asked_ns = self.now_ns();
        let deadline = deadline_after(timeout);
        loop {
            let (chunk, place) = match self.channels[self.channels.len() - 1].take(deadline) {
                Taken::Item(_, Ok(chunk)) => {
                    let place = chunk.place;
                    (Some(chunk), place)
                }
                Taken::Item(_, Err(fault)) if self.failures.skip(&fault) => continue,
                Taken::Item(_, Err(_)) | Taken::Ended => (None, u64::MAX),
                Taken::NotYet => {
                    let waited = Duration::from_nanos(self.now_ns() - asked_ns);
                    return Err(Error::Stalled { waited, bytes_pending: 0 });
                }
                Taken::Stopped => return self.outcome().map(|()| None),
            };
            return self.failures.check(place).map(|()| chunk);
        }
    }

    /// Whether the calling thread is one of its own.
    pub(super) fn is_at_work_here(&self) -> bool {
        lock(&self.running).contains(&thread::current().id())
    }

    /// Waits until all threads have ended, for at most `at_most`. Returns whether they have. Does not wait if called by
    /// one of them.
    pub(super) fn wait_for_threads(&self, at_most: Duration) -> bool {
        let deadline = deadline_after(Some(at_most));
        let own = thread::current().id();
        let mut running = lock(&self.running);
        while !running.is_empty() {
            if running.contains(&own) || passed(deadline) {
                return false;
            }
            running = wait_until(&self.left, running, deadline);
        }
        true
    }

    /// Starts a thread for each of the works. Their channel ends when all of them have returned by themselves. So it never ends
    /// if one of them panics, or leaves because the pipeline was stopped.
    pub(super) fn spawn_workers<W: FnOnce(&Port<'_>) + Send + 'static>(
        self: &Arc<Self>,
        part: usize,
        policy: Option<&ThreadPolicy>,
        enter: Option<Enter>,
        works: Vec<W>,
    ) -> Result<(), Error> {
        let working = Arc::new(AtomicUsize::new(works.len()));
        for (worker, work) in works.into_iter().enumerate() {
            let working = Arc::clone(&working);
            self.spawn(policy.cloned(), enter, (part, worker), move |graph| {
                work(&Port { graph, part, meter: &graph.parts[part].workers[worker] });
                // AcqRel: the other workers' items are in before the last worker ends the channel. The channel's lock
                // would do as well.
                if !graph.is_stopped() && working.fetch_sub(1, Ordering::AcqRel) == 1 {
                    graph.channels[part].end();
                }
            })?;
        }
        Ok(())
    }

    /// Starts a thread that runs `work`. Its policy stands in the statistics of that worker of that part.
    pub(super) fn spawn(
        self: &Arc<Self>,
        policy: Option<ThreadPolicy>,
        enter: Option<Enter>,
        (part, worker): (usize, usize),
        work: impl FnOnce(&Self) + Send + 'static,
    ) -> Result<(), Error> {
        let graph = Arc::clone(self);
        // Held until the thread is listed, so that it cannot end before.
        let mut running = lock(&self.running);
        // A thread that runs the caller's code may start processes, which inherit its signal mask.
        let signals = if enter.is_some() { Signals::AsStarter } else { Signals::Blocked };
        let thread = engine::spawn(signals, move || {
            let mut work = Some(work);
            let mut has_returned = false;
            let _ = engine::guarded(|| {
                if let Some(policy) = policy {
                    let _ = graph.parts[part].workers[worker].policy.set(policy.apply());
                }
                let mut body = || {
                    if let Some(work) = work.take() {
                        work(&graph);
                        has_returned = true;
                    }
                };
                match enter {
                    Some(enter) => enter(&mut body),
                    None => body(),
                }
            });
            if !has_returned {
                // A defect of ours, of an iterator over paths, or of `enter`. Nobody may wait for ever.
                graph.stop(Err(Fault::Panicked.into()));
            }
            let own = thread::current().id();
            lock(&graph.running).retain(|id| *id != own);
            graph.left.notify_all();
        })?;
        running.push(thread.thread().id());
        Ok(())
    }
}

/// How a pipeline ended.
struct End {
    at_ns: u64,
    outcome: Result<(), Error>,
}

/// One worker of a part, with its input and output.
pub(super) struct Port<'a> {
    pub(super) graph: &'a Graph,
    pub(super) part: usize,
    pub(super) meter: &'a Meter,
}

impl<'a> Port<'a> {
    pub(super) fn fault(&self, name: &Arc<OsStr>, offset: u64, index: u64, cause: Cause) -> ChunkError {
        let stage = self.graph.parts[self.part].name.clone();
        ChunkError { name: Arc::clone(name), offset, index, stage, cause }
    }

    fn output(&self) -> &Channel<Item> {
        &self.graph.channels[self.part]
    }

    /// The output of the part before.
    pub(super) fn input(&self) -> &'a Channel<Item> {
        &self.graph.channels[self.part - 1]
    }

    fn is_last(&self) -> bool {
        self.part + 1 == self.graph.channels.len()
    }

    /// Lets nothing after that number through, of what other workers have taken meanwhile.
    pub(super) fn end_after(&self, number: u64) {
        if self.is_last() {
            self.graph.failures.end_after(number);
        }
        self.output().end_after(number);
    }

    /// Passes a result on. Returns false if the graph was stopped, or the result is not wanted any more.
    pub(super) fn put(&self, number: u64, mut item: Option<Item>) -> bool {
        let mut memory_bytes = 0;
        match &mut item {
            Some(Ok(chunk)) => {
                chunk.place = number;
                memory_bytes = chunk.bytes.capacity();
            }
            Some(Err(fault)) if self.is_last() => self.graph.failures.note(number, fault),
            _ => {}
        }
        self.output().put(number, item, memory_bytes).is_ok()
    }
}
