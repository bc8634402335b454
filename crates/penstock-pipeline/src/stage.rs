//! Stages: the work on chunks on their way.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use twox_hash::XxHash3_64;

use super::chunk::{Cause, Checksum, Chunk, ChunkError};
use super::graph::{Enter, Graph, Port};
use super::meter::Meter;
use super::stream;
use crate::codec::{Codec, Decoder, Undecoded};
use penstock_core::engine::{Taken, lock};
use penstock_core::{Buffer, Error, Space};
use penstock_cpu::ThreadPolicy;

/// Work on one chunk after another. Each worker has its own value.
pub trait Map: Send {
    /// Returns the resulting chunk; none leaves the chunk out.
    ///
    /// # Errors
    ///
    /// Why the chunk failed. Later chunks may still come.
    fn map(&mut self, chunk: Chunk, context: &mut Context<'_>) -> Result<Option<Chunk>, Cause>;
}

impl<F: FnMut(Chunk, &mut Context<'_>) -> Result<Option<Chunk>, Cause> + Send> Map for F {
    fn map(&mut self, chunk: Chunk, context: &mut Context<'_>) -> Result<Option<Chunk>, Cause> {
        self(chunk, context)
    }
}

/// Memory and services for sources and stages of the caller's.
pub struct Context<'a> {
    graph: &'a Graph,
    lock_ns: u64,
    failed_at: u64,
    is_over: bool,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl<'a> Context<'a> {
    pub(super) fn new(graph: &'a Graph) -> Self {
        Self { graph, lock_ns: 0, failed_at: 0, is_over: false }
    }

    /// Returns memory for `bytes` bytes. Its content is whatever the last user left.
    ///
    /// # Errors
    ///
    /// [`Cause::TooLarge`] beyond the pipeline's limit; `ENOMEM`.
    pub fn take(&self, bytes: usize) -> Result<Buffer, Cause> {
        let limit_bytes = self.graph.max_chunk_bytes;
        if bytes > limit_bytes {
            return Err(Cause::TooLarge { limit_bytes });
        }
        Ok(self.graph.pool.take(bytes)?)
    }

    /// Returns memory with a copy of those bytes.
    ///
    /// # Errors
    ///
    /// As [`Context::take`].
    pub fn copy(&self, bytes: &[u8]) -> Result<Buffer, Cause> {
        let mut buffer = self.take(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Reports time spent waiting for a lock that the code needs to run, as Python's does for the GIL. It is measured
    /// apart from the work.
    pub fn waited_for_lock(&mut self, waited: Duration) {
        self.lock_ns += waited.as_nanos() as u64;
    }

    /// Sets the byte of the chunk at which the error occurred that is about to be returned.
    pub fn failed_at(&mut self, byte: u64) {
        self.failed_at = byte;
    }

    /// Declares that no further chunk is wanted. All workers of the stage stop, and what they have taken after this chunk is dropped.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// Adds the time to the statistics.
    pub(super) fn report(self, meter: &Meter) -> u64 {
        if self.lock_ns > 0 {
            meter.waited_for_lock(self.lock_ns);
        }
        self.lock_ns
    }
}

/// A kind of checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksumKind {
    /// XXH3 with 64 bits: the fastest.
    #[default]
    Xxh3,
    /// CRC-32 as zlib, gzip and PNG have it.
    Crc32,
}

/// A caller's memory for chunks.
pub trait Spaces: Send {
    /// Returns the memory for the next chunk; none when there is no more.
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Box<dyn Space>, Cause>>;
}

/// Work on every chunk, on threads of its own.
#[must_use = "it does nothing until a pipeline is started with it"]
pub struct Stage {
    pub(super) name: String,
    pub(super) workers: usize,
    policy: Option<ThreadPolicy>,
    enter: Option<Enter>,
    kind: StageKind,
}

enum StageKind {
    Decompress { codec: Codec, is_stream: Option<bool> },
    Map(MakeMap),
}

type MakeMap = Arc<dyn Fn() -> Box<dyn Map> + Send + Sync>;

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Stage");
        told.field("name", &self.name).field("workers", &self.workers).field("policy", &self.policy);
        told.finish_non_exhaustive()
    }
}

impl Stage {
    fn new(name: impl Into<String>, kind: StageKind) -> Self {
        Self { name: name.into(), workers: 1, policy: None, enter: None, kind }
    }

    /// Decompresses. Chunks of files, buffers and feeds are decompressed one by one. Pieces of a file and of a
    /// descriptor are decompressed as one stream, by a single worker.
    pub fn decompress(codec: Codec) -> Self {
        Self::new("decompress", StageKind::Decompress { codec, is_stream: None })
    }

    /// Computes a checksum of each chunk: see [`Chunk::checksum`].
    pub fn checksum(kind: ChecksumKind) -> Self {
        Self::map_each("checksum", move |mut chunk| {
            chunk.checksum = Some(match kind {
                ChecksumKind::Xxh3 => Checksum::Xxh3(XxHash3_64::oneshot(&chunk)),
                ChecksumKind::Crc32 => Checksum::Crc32(crc32fast::hash(&chunk)),
            });
            Ok(chunk)
        })
    }

    /// Runs the caller's code. `make` is called once for each worker, and again after that worker's code has panicked.
    pub fn map(name: impl Into<String>, make: impl Fn() -> Box<dyn Map> + Send + Sync + 'static) -> Self {
        Self::new(name, StageKind::Map(Arc::new(make)))
    }

    /// Runs the caller's code on each chunk. What it shares with other workers, it locks; see [`map`](Self::map) for code with state
    /// of its own, or that takes memory or leaves chunks out.
    ///
    /// ```
    /// use penstock_pipeline::{Options, Pipeline, Sink, Source, Stage};
    /// let longest = Stage::map_each("text", |chunk| {
    ///     std::str::from_utf8(&chunk).map_err(std::io::Error::other)?;
    ///     Ok(chunk)
    /// });
    /// let source = Source::buffers(["one", "two"]);
    /// let pipeline = Pipeline::start(source, vec![longest], Sink::iterate(), &Options::default())?;
    /// assert_eq!(&*pipeline.next(None)?.expect("there are two"), b"one");
    /// # Ok::<(), penstock_pipeline::Error>(())
    /// ```
    pub fn map_each(
        name: impl Into<String>,
        work: impl Fn(Chunk) -> Result<Chunk, Cause> + Send + Sync + 'static,
    ) -> Self {
        let work = Arc::new(work);
        Self::map(name, move || {
            let work = Arc::clone(&work);
            Box::new(move |chunk: Chunk, _: &mut Context<'_>| work(chunk).map(Some))
        })
    }

    /// Copies each chunk into the caller's next space, until there is none.
    pub(super) fn into_spaces(spaces: Box<dyn Spaces>, enter: Option<Enter>) -> Self {
        let spaces = Mutex::new(Some(spaces));
        Self { enter, ..Self::map("into", move || fill(lock(&spaces).take())) }
    }

    /// Number of threads, each with a chunk of its own. The order of chunks stays.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Its name in statistics and errors.
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Priority and CPUs of its threads.
    pub fn policy(self, policy: ThreadPolicy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Runs its threads within that function, which must call its argument once.
    pub fn within(self, enter: fn(&mut (dyn FnMut() + Send))) -> Self {
        Self { enter: Some(enter), ..self }
    }

    /// Sets whether a decompressing stage gets pieces of one stream. By default, the source decides.
    pub fn streamed(mut self, streamed: bool) -> Self {
        if let StageKind::Decompress { is_stream, .. } = &mut self.kind {
            *is_stream = Some(streamed);
        }
        self
    }

    /// Decides what depends on the source.
    pub(super) fn settle(&mut self, comes_as_stream: bool) -> Result<(), Error> {
        if self.workers == 0 {
            return Err(Error::Unsuitable("workers must be at least 1".into()));
        }
        if let StageKind::Decompress { codec, .. } = &self.kind {
            codec.check_built_in()?;
        }
        if let StageKind::Decompress { is_stream, .. } = &mut self.kind
            && *is_stream.get_or_insert(comes_as_stream)
            && self.workers > 1
        {
            let why = "workers must be 1 to decompress a stream in pieces";
            return Err(Error::Unsuitable(why.into()));
        }
        Ok(())
    }

    /// Starts its workers. `piece_bytes` is the size of the pieces of a decompressed stream.
    pub(super) fn start(self, graph: &Arc<Graph>, part: usize, piece_bytes: usize) -> Result<(), Error> {
        let work: Arc<dyn Fn(&Port<'_>) + Send + Sync> = match self.kind {
            StageKind::Decompress { codec, is_stream: Some(true) } => {
                Arc::new(move |port| stream::decompress(port, codec, piece_bytes))
            }
            StageKind::Decompress { codec, .. } => Arc::new(move |port| run(port, &|| decompress(codec))),
            StageKind::Map(make) => Arc::new(move |port| run(port, &*make)),
        };
        let work = move |port: &Port<'_>| work(port);
        graph.spawn_workers(part, self.policy.as_ref(), self.enter, vec![work; self.workers])
    }
}

/// Runs one worker of a stage, until no more chunks come or the graph is stopped.
fn run(port: &Port<'_>, make: &dyn Fn() -> Box<dyn Map>) {
    let mut map = make();
    let mut free_ns = port.graph.now_ns();
    while let Taken::Item(number, item) = port.input().take(None) {
        let started_ns = port.graph.now_ns();
        let mut context = Context::new(port.graph);
        let item = item.map(|chunk| {
            port.meter.took(started_ns.saturating_sub(chunk.queued_ns()), chunk.len());
            guarded(port, &mut map, make, chunk, &mut context)
        });
        let ended_ns = port.graph.now_ns();
        let is_over = context.is_over;
        let lock_ns = context.report(port.meter);
        let item = match item {
            Ok(Ok(chunk)) => {
                let bytes = chunk.as_ref().map_or(0, |chunk| chunk.len());
                port.meter.worked((ended_ns - started_ns).saturating_sub(lock_ns), bytes);
                chunk.map(|mut chunk| {
                    chunk.times.push((started_ns, ended_ns));
                    Ok(chunk)
                })
            }
            Ok(Err(error)) => {
                port.meter.failed();
                Some(Err(Arc::new(error)))
            }
            Err(error) => Some(Err(error)), // of a part before
        };
        if is_over {
            port.end_after(number); // first: no later chunk can have passed this one
        }
        let goes_on = port.put(number, item);
        let put_ns = port.graph.now_ns();
        port.meter.blocked(started_ns - free_ns, put_ns - ended_ns);
        free_ns = put_ns;
        if is_over || !goes_on {
            port.input().stop(); // or those before would wait for room for ever
            return;
        }
    }
}

/// Works on one chunk. A panic counts as the chunk's failure, and the next chunk gets a new worker.
fn guarded(
    port: &Port<'_>,
    map: &mut Box<dyn Map>,
    make: &dyn Fn() -> Box<dyn Map>,
    chunk: Chunk,
    context: &mut Context<'_>,
) -> Result<Option<Chunk>, ChunkError> {
    // What an error tells of the chunk, after it is gone.
    let (name, offset, index) = (Arc::clone(&chunk.name), chunk.offset, chunk.index);
    let outcome = catch_unwind(AssertUnwindSafe(|| map.map(chunk, context))).unwrap_or_else(|panic| {
        *map = make();
        Err(Cause::of_panic(&*panic))
    });
    outcome.map_err(|cause| port.fault(&name, offset + context.failed_at, index, cause))
}

/// Decompresses assets.
fn decompress(codec: Codec) -> Box<dyn Map> {
    let mut decoder = Decoder::default();
    Box::new(move |chunk: Chunk, context: &mut Context<'_>| {
        let limit_bytes = context.graph.max_chunk_bytes;
        match decoder.decode(codec, &chunk, &context.graph.pool, limit_bytes) {
            Ok(bytes) => Ok(Some(chunk.with_bytes(bytes))),
            Err(Undecoded::At { byte, error }) => {
                context.failed_at(byte);
                Err(Cause::of_decoding(error))
            }
            Err(Undecoded::TooLarge) => Err(Cause::TooLarge { limit_bytes }),
            Err(Undecoded::NoMemory(error)) => Err(error.into()),
        }
    })
}

/// Fills the caller's memory.
fn fill(mut spaces: Option<Box<dyn Spaces>>) -> Box<dyn Map> {
    Box::new(move |mut chunk: Chunk, context: &mut Context<'_>| {
        let Some(space) = spaces.as_mut().and_then(|spaces| spaces.next(context)) else {
            context.finish();
            return Ok(None);
        };
        let mut buffer = Buffer::foreign(space?);
        let limit_bytes = buffer.capacity();
        if chunk.len() > limit_bytes {
            return Err(Cause::TooLarge { limit_bytes });
        }
        buffer.set_len(chunk.len());
        buffer.copy_from_slice(&chunk);
        chunk.bytes = Arc::new(buffer); // the same bytes, so that a checksum stays right
        Ok(Some(chunk))
    })
}
