//! Sinks of chunks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::graph::{Enter, Graph};
use super::stage::Spaces;
use penstock_core::engine::Completion;
use penstock_core::{Buffer, Error, Writer};
use penstock_cpu::ThreadPolicy;

/// The destination of a pipeline's chunks.
#[must_use = "it does nothing until a pipeline is started with it"]
pub struct Sink {
    pub(super) kind: SinkKind,
    pub(super) policy: Option<ThreadPolicy>,
    pub(super) enter: Option<Enter>,
}

pub(super) enum SinkKind {
    Iterate,
    Writer(Writer),
    Spaces(Box<dyn Spaces>),
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            SinkKind::Iterate => "iterate",
            SinkKind::Writer(_) => "writer",
            SinkKind::Spaces(_) => "spaces",
        };
        f.debug_struct("Sink").field("kind", &kind).field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Default for Sink {
    fn default() -> Self {
        Self::iterate()
    }
}

impl Sink {
    fn new(kind: SinkKind) -> Self {
        Self { kind, policy: None, enter: None }
    }

    /// Chunks are returned by [`Pipeline::next`](super::Pipeline::next).
    pub fn iterate() -> Self {
        Self::new(SinkKind::Iterate)
    }

    /// Chunks are written by that writer, in order, without copying them. The writer is closed at the end. After a
    /// failure, everything before it is still written.
    pub fn writer(writer: Writer) -> Self {
        Self::new(SinkKind::Writer(writer))
    }

    /// Each chunk is copied into the caller's next space, until there are no more spaces. Iteration returns chunks that
    /// lie there.
    pub fn spaces(spaces: impl Spaces + 'static) -> Self {
        Self::new(SinkKind::Spaces(Box::new(spaces)))
    }

    /// Priority and CPUs of its thread. Iteration has none.
    pub fn policy(self, policy: ThreadPolicy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Runs the thread that fills spaces within that function, which must call its argument once.
    pub fn within(self, enter: fn(&mut (dyn FnMut() + Send))) -> Self {
        Self { enter: Some(enter), ..self }
    }
}

/// How long the sink's thread waits for room in its stream before it checks whether the graph was stopped. Needed if
/// the writer was aborted while the thread was elsewhere.
const SLICE: Duration = Duration::from_millis(100);

/// The sink's thread: writes all chunks, and ends the ticket.
pub(super) fn write_all(graph: &Graph, completion: Completion) {
    let written = write_until_failure(graph);
    let writer = graph.writer.get().expect("it was set before the thread began");
    let closed = writer.close(None);
    graph.stop(written.and(closed));
    // If the pipeline was stopped before, that is why the writing failed.
    completion.end(graph.outcome());
}

fn write_until_failure(graph: &Graph) -> Result<(), Error> {
    let meter = &graph.parts[graph.parts.len() - 1].workers[0];
    let mut before_ns = graph.now_ns();
    while let Some(chunk) = graph.take_last(None)? {
        let started_ns = graph.now_ns();
        meter.took(started_ns.saturating_sub(chunk.queued_ns()), chunk.len());
        let (bytes, began_ns) = (chunk.len(), chunk.began_ns());
        let ticket = write(graph, chunk.bytes)?;
        let ended_ns = graph.now_ns();
        // Includes the wait for room in the stream: that is the destination's time.
        meter.worked(ended_ns - started_ns, bytes);
        meter.blocked(started_ns - before_ns, 0);
        // Captures nothing else of the graph: its writer must not be dropped by the thread that serves it.
        let (end_to_end, began) = (Arc::clone(&graph.end_to_end), graph.began);
        ticket
            .on_end(move || end_to_end.record((began.elapsed().as_nanos() as u64).saturating_sub(began_ns)));
        before_ns = graph.now_ns();
    }
    Ok(())
}

fn write(graph: &Graph, mut region: Arc<Buffer>) -> Result<penstock_core::Ticket, Error> {
    let writer = graph.writer.get().expect("it was set before the thread began");
    loop {
        match writer.submit(region, Some(SLICE)) {
            Ok(ticket) => return Ok(ticket),
            Err(rejected) if matches!(rejected.error, Error::Stalled { .. }) && !graph.is_stopped() => {
                region = rejected.region;
            }
            Err(rejected) => return Err(rejected.error),
        }
    }
}
