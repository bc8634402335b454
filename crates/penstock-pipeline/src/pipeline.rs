//! Running pipelines.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::chunk::{Chunk, ChunkError};
use super::graph::{Graph, Options};
use super::meter::{Meter, Part};
use super::sink::{self, Sink, SinkKind};
use super::source::Source;
use super::stage::Stage;
use super::stats::Stats;
use crate::latency::merged;
use penstock_core::engine::{lock, ticket};
use penstock_core::{Error, Ticket};
use penstock_cpu::ThreadPolicy;

/// How long a close waits for the threads. They take microseconds, unless one is in a call that cannot be interrupted;
/// that one is left behind and ends with its call. The same as an exit waits for a stalled reader.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// Size of the pieces of a decompressed stream whose source has no pieces. Guessed, in the range where the overhead of
/// a piece no longer counts.
const PIECE_BYTES: usize = 1 << 20;

/// A running pipeline. See the [`crate`].
#[must_use = "dropping it stops it"]
pub struct Pipeline {
    /// Never dropped in the child of a fork, where its locks may be held for ever.
    graph: ManuallyDrop<Arc<Graph>>,
    /// Ends with the sink, if the sink is a writer.
    written: Option<Ticket>,
    /// When the caller got its last chunk, in nanoseconds since the beginning.
    given_ns: Mutex<Option<u64>>,
    is_closed: AtomicBool,
}

impl Pipeline {
    /// Starts all threads.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`] for parts that do not fit together, such as several workers on one stream;
    /// [`Error::NoThread`]; [`Error::Io`] if no descriptor is left.
    pub fn start(
        source: Source,
        mut stages: Vec<Stage>,
        sink: Sink,
        options: &Options,
    ) -> Result<Self, Error> {
        let Sink { kind, policy, enter } = sink;
        let (sink_name, writer, spaces) = match kind {
            SinkKind::Iterate => ("consumer", None, None),
            SinkKind::Writer(writer) => ("writer", Some(writer), None),
            SinkKind::Spaces(spaces) => ("consumer", None, Some(spaces)),
        };
        stages.extend(spaces.map(|spaces| Stage::into_spaces(spaces, enter)));
        check(&source, &mut stages, options)?;
        let mut parts = vec![Part::new(source.name, source.workers)];
        parts.extend(stages.iter().map(|stage| Part::new(&*stage.name, stage.workers)));
        parts.push(Part::new(sink_name, 1));
        let graph = Arc::new(Graph::new(parts, source.label(), options)?);
        let mut pipeline = Self {
            graph: ManuallyDrop::new(Arc::clone(&graph)),
            written: None,
            given_ns: Mutex::default(),
            is_closed: AtomicBool::new(false),
        };
        // From here on a failure drops the pipeline, which stops the threads that run.
        let piece_bytes = source.piece_bytes().unwrap_or(PIECE_BYTES).min(options.max_chunk_bytes);
        for (number, stage) in stages.into_iter().enumerate() {
            stage.start(&graph, number + 1, piece_bytes)?;
        }
        if let Some(writer) = writer {
            let _ = graph.writer.set(writer);
            pipeline.written = Some(pipeline.start_sink(policy)?);
        }
        source.start(&graph)?;
        Ok(pipeline)
    }

    fn start_sink(&self, policy: Option<ThreadPolicy>) -> Result<Ticket, Error> {
        let (completion, ticket) = ticket();
        let last = self.graph.parts.len() - 1;
        self.graph.spawn(policy, None, (last, 0), move |graph| sink::write_all(graph, completion))?;
        Ok(ticket)
    }

    /// Returns the next chunk, waiting at most for `timeout`; none at the end. Further calls, and those of other threads, return
    /// the same end or error.
    ///
    /// # Errors
    ///
    /// - [`Error::Custom`] with a [`ChunkError`]: the next chunk has failed, and with it the pipeline.
    /// - [`Error::Stalled`]: no chunk came in time.
    /// - [`Error::Closed`]: the pipeline was closed.
    /// - [`Error::Io`] with `EIO`: a thread of the pipeline panicked.
    /// - [`Error::Unsuitable`]: the chunks go to a writer.
    /// - [`Error::Forked`]: the pipeline belongs to the parent of a fork.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<Chunk>, Error> {
        self.check_own()?;
        if self.written.is_some() {
            return Err(Error::Unsuitable("the chunks go to a descriptor. Wait for the end instead".into()));
        }
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let asked_ns = self.graph.now_ns();
        self.book_use(asked_ns);
        match self.graph.take_last(timeout) {
            Ok(Some(chunk)) => {
                self.book_chunk(&chunk, asked_ns);
                Ok(Some(chunk))
            }
            Err(Error::Stalled { waited, bytes_pending }) => {
                self.consumer().blocked(waited.as_nanos() as u64, 0);
                Err(Error::Stalled { waited, bytes_pending })
            }
            end => {
                self.graph.stop(end.map(drop));
                self.graph.outcome().map(|()| None)
            }
        }
    }

    fn consumer(&self) -> &Meter {
        &self.graph.parts[self.graph.parts.len() - 1].workers[0]
    }

    /// The time between two calls is the caller's work on a chunk.
    fn book_use(&self, asked_ns: u64) {
        if let Some(given_ns) = lock(&self.given_ns).take() {
            self.consumer().worked(asked_ns.saturating_sub(given_ns), 0);
        }
    }

    fn book_chunk(&self, chunk: &Chunk, asked_ns: u64) {
        let now_ns = self.graph.now_ns();
        self.consumer().took(now_ns.saturating_sub(chunk.queued_ns()), chunk.len());
        self.consumer().blocked(now_ns.saturating_sub(asked_ns), 0);
        self.graph.end_to_end.record(now_ns.saturating_sub(chunk.began_ns()));
        *lock(&self.given_ns) = Some(now_ns);
    }

    /// Waits until the sink, a writer, has written everything, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::next`], and the writer's failure.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        self.check_own()?;
        let Some(written) = &self.written else {
            return Err(Error::Unsuitable(
                "the chunks go to no descriptor. Iterate over them instead".into(),
            ));
        };
        written.wait_for(timeout).unwrap_or_else(|| {
            let (waited, bytes_pending) = (timeout.unwrap_or_default(), 0);
            Err(Error::Stalled { waited, bytes_pending })
        })
    }

    /// A ticket that ends when [`Pipeline::next`] or [`Pipeline::wait`] would not wait.
    #[must_use]
    pub fn ready(&self) -> Ticket {
        if let Some(written) = &self.written {
            return written.clone();
        }
        if self.graph.is_inherited() {
            return Ticket::ended(Err(Error::Forked));
        }
        self.graph.channels[self.graph.channels.len() - 1].ready()
    }

    /// The failures skipped so far, in order.
    #[must_use]
    pub fn skipped(&self) -> Vec<Arc<ChunkError>> {
        if self.graph.is_inherited() { Vec::new() } else { self.graph.failures.skipped() }
    }

    /// Statistics. They stay after the end.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in the child of a fork.
    pub fn stats(&self) -> Result<Stats, Error> {
        self.check_own()?;
        let graph = &self.graph;
        let queue = |part: usize| part.checked_sub(1).map_or((0, 0), |before| graph.channels[before].load());
        Ok(Stats {
            stages: graph.parts.iter().enumerate().map(|(number, part)| part.stats(queue(number))).collect(),
            end_to_end: merged([&*graph.end_to_end]),
            elapsed_ns: graph.ended_ns().unwrap_or_else(|| graph.now_ns()),
            pool_free_bytes: graph.pool.free_bytes(),
        })
    }

    /// Stops the pipeline, and waits for its threads for at most [`LEAVE_WITHIN`]. Returns whether they have all ended.
    /// Its content is dropped, and a writer discards what it has not written. Closing again only waits.
    pub fn close(&self) -> bool {
        self.close_within(LEAVE_WITHIN)
    }

    /// As [`close`](Self::close), with another limit.
    pub fn close_within(&self, at_most: Duration) -> bool {
        if self.graph.is_inherited() {
            return true;
        }
        // Before the stop, so that a caller who learns of it also sees it closed.
        self.is_closed.store(true, Ordering::Relaxed);
        self.graph.stop(Err(Error::Closed));
        self.graph.wait_for_threads(at_most)
    }

    /// Whether the calling thread belongs to the pipeline, so that a close cannot wait for it.
    #[must_use]
    pub fn is_at_work_here(&self) -> bool {
        !self.graph.is_inherited() && self.graph.is_at_work_here()
    }

    /// Whether [`close`](Self::close) was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn check_own(&self) -> Result<(), Error> {
        if self.graph.is_inherited() { Err(Error::Forked) } else { Ok(()) }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if self.graph.is_inherited() {
            return;
        }
        self.close_within(Duration::ZERO);
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.graph) };
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("parts", &self.graph.names).finish_non_exhaustive()
    }
}

fn check(source: &Source, stages: &mut [Stage], options: &Options) -> Result<(), Error> {
    source.check()?;
    if options.depth.items == 0 || options.depth.bytes == 0 {
        return Err(Error::Unsuitable("depth must be at least 1".into()));
    }
    if options.max_chunk_bytes == 0 {
        return Err(Error::Unsuitable("max_chunk_bytes must be at least 1".into()));
    }
    if source.piece_bytes().is_some_and(|bytes| bytes > options.max_chunk_bytes) {
        return Err(Error::Unsuitable("piece_bytes must be at most max_chunk_bytes".into()));
    }
    stages.iter_mut().try_for_each(|stage| stage.settle(source.piece_bytes().is_some()))
}
