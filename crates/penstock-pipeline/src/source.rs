//! Sources of chunks.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::chunk::{Cause, Chunk, ChunkError};
use super::graph::{Enter, Graph, Item, Port};
use super::stage::Context;
use penstock_core::engine::{FileSource, PollSource, SysError, handle, lock};
use penstock_core::{AsHandle, Buffer, Error, Pool};
use penstock_cpu::ThreadPolicy;

/// A caller's own source.
pub trait Feed: Send {
    /// Returns the next chunk's bytes; none at the end. An error ends the source too, unless it [goes on](Self::goes_on).
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>>;

    /// Whether only the last chunk was wrong, and others may follow the error. By default none do.
    fn goes_on(&self) -> bool {
        false
    }
}

/// What a [`Feed`] returns.
#[derive(Debug)]
pub struct Fed {
    /// The chunk's name; its index by default.
    pub name: Option<OsString>,
    /// Its bytes, in memory from the [`Context`].
    pub bytes: Buffer,
}

/// The source of a pipeline's chunks.
#[must_use = "it does nothing until a pipeline is started with it"]
pub struct Source {
    pub(super) name: &'static str,
    pub(super) workers: usize,
    pub(super) policy: Option<ThreadPolicy>,
    pub(super) enter: Option<Enter>,
    kind: Origin,
}

enum Origin {
    Files(Paths),
    File { path: PathBuf, piece_bytes: usize },
    Fd { input: PollSource, name: OsString, piece_bytes: usize },
    Feed(Box<dyn Feed>),
}

type Paths = Box<dyn Iterator<Item = PathBuf> + Send>;

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Source");
        told.field("name", &self.name).field("workers", &self.workers).field("policy", &self.policy);
        told.finish_non_exhaustive()
    }
}

impl Source {
    fn new(name: &'static str, kind: Origin) -> Self {
        Self { name, workers: 1, policy: None, enter: None, kind }
    }

    /// Reads files, each as one chunk named by its path. They are opened one after another. Only regular files and
    /// block devices are read.
    pub fn files<P: Into<PathBuf> + 'static>(
        paths: impl IntoIterator<Item = P, IntoIter: Send + 'static>,
    ) -> Self {
        Self::new("files", Origin::Files(Box::new(paths.into_iter().map(Into::into))))
    }

    /// Reads one file, in pieces of `piece_bytes`; the last one may be shorter.
    pub fn file(path: impl Into<PathBuf>, piece_bytes: usize) -> Self {
        Self::new("file", Origin::File { path: path.into(), piece_bytes })
    }

    /// Reads a descriptor until its end, in pieces of at most `piece_bytes`. What is available is passed on before more
    /// is waited for. The caller keeps the descriptor; a duplicate is read.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`]: `EBADF` if the descriptor is not open for reading, or what the system reports.
    /// - [`Error::Unsuitable`]: a socket that keeps messages apart.
    pub fn fd(fd: impl AsHandle, piece_bytes: usize) -> Result<Self, Error> {
        Self::fd_after(Vec::new(), fd, piece_bytes)
    }

    /// As [`fd`](Self::fd), with bytes that come first: the caller has read them from the descriptor before.
    ///
    /// # Errors
    ///
    /// As [`fd`](Self::fd).
    pub fn fd_after(ahead: Vec<u8>, fd: impl AsHandle, piece_bytes: usize) -> Result<Self, Error> {
        let name = format!("fd {}", handle::number(fd.as_handle())).into();
        let input = PollSource::open(ahead, fd.as_handle())?;
        input.check_is_stream("a pipeline")?;
        Ok(Self::new("fd", Origin::Fd { input, name, piece_bytes }))
    }

    /// Copies a caller's buffers into the pipeline's memory, each as one chunk.
    pub fn buffers<B: AsRef<[u8]> + 'static>(
        buffers: impl IntoIterator<Item = B, IntoIter: Send + 'static>,
    ) -> Self {
        Self::feed(Buffers(buffers.into_iter()))
    }

    /// Takes chunks from a caller's own source.
    pub fn feed(feed: impl Feed + 'static) -> Self {
        Self::new("feed", Origin::Feed(Box::new(feed)))
    }

    /// Number of threads that read, each a file of its own. Only files can have several.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Priority and CPUs of its threads.
    pub fn policy(self, policy: ThreadPolicy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// Runs its threads within that function, which must call its argument once.
    pub fn within(self, enter: fn(&mut (dyn FnMut() + Send))) -> Self {
        Self { enter: Some(enter), ..self }
    }

    /// Its name in statistics and errors.
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let why = match &self.kind {
            Origin::Files(_) if self.workers == 0 => "workers must be at least 1",
            Origin::Files(_) => return Ok(()),
            _ if self.workers != 1 => "workers must be 1 for a source that is not files",
            _ if self.piece_bytes() == Some(0) => "piece_bytes must be at least 1",
            _ => return Ok(()),
        };
        Err(Error::Unsuitable(why.into()))
    }

    /// The name of the source as a whole.
    pub(super) fn label(&self) -> Arc<OsStr> {
        match &self.kind {
            Origin::File { path, .. } => path.as_os_str().into(),
            Origin::Fd { name, .. } => name.as_os_str().into(),
            _ => OsStr::new(self.name).into(),
        }
    }

    /// The largest piece, if the chunks are pieces of one stream, and not assets of their own.
    pub(super) fn piece_bytes(&self) -> Option<usize> {
        match self.kind {
            Origin::File { piece_bytes, .. } | Origin::Fd { piece_bytes, .. } => Some(piece_bytes),
            _ => None,
        }
    }

    pub(super) fn start(self, graph: &Arc<Graph>) -> Result<(), Error> {
        let one: Box<dyn FnOnce(&Port<'_>) + Send> = match self.kind {
            Origin::Files(paths) => {
                let paths = Arc::new(Mutex::new(paths.enumerate()));
                let read = move |port: &Port<'_>| read_files(port, &paths);
                return graph.spawn_workers(0, self.policy.as_ref(), self.enter, vec![read; self.workers]);
            }
            Origin::File { path, piece_bytes } => Box::new(move |port| read_file(port, &path, piece_bytes)),
            Origin::Fd { input, name, piece_bytes } => {
                Box::new(move |port| read_fd(port, &input, &name, piece_bytes))
            }
            Origin::Feed(feed) => Box::new(move |port| run_feed(port, feed)),
        };
        graph.spawn_workers(0, self.policy.as_ref(), self.enter, vec![one])
    }
}

struct Buffers<I>(I);

impl<B: AsRef<[u8]>, I: Iterator<Item = B> + Send> Feed for Buffers<I> {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        let buffer = self.0.next()?;
        let copy = context.copy(buffer.as_ref());
        Some(copy.map(|bytes| Fed { name: None, bytes }))
    }
}

impl Port<'_> {
    fn chunk(&self, bytes: Buffer, name: &Arc<OsStr>, offset: u64, index: u64, started_ns: u64) -> Chunk {
        let mut times = Vec::with_capacity(self.graph.parts.len());
        times.push((started_ns, self.graph.now_ns()));
        Chunk {
            bytes: Arc::new(bytes),
            name: Arc::clone(name),
            offset,
            index,
            checksum: None,
            place: index,
            parts: Arc::clone(&self.graph.names),
            times,
        }
    }

    /// Passes a chunk or a failure on. `waited_ns` and `lock_ns` are the parts of its time in which the source waited
    /// for its input, and for the lock that it needs to run. Returns false if the graph was stopped.
    fn send(&self, item: Result<Chunk, ChunkError>, number: u64, waited_ns: u64, lock_ns: u64) -> bool {
        let sent_ns = self.graph.now_ns();
        let item: Item = match item {
            Ok(chunk) => {
                let (started_ns, ended_ns) = chunk.times[0];
                self.meter.worked((ended_ns - started_ns).saturating_sub(waited_ns + lock_ns), chunk.len());
                Ok(chunk)
            }
            Err(error) => {
                self.meter.failed();
                Err(Arc::new(error))
            }
        };
        let goes_on = self.put(number, Some(item));
        self.meter.blocked(waited_ns, self.graph.now_ns() - sent_ns);
        goes_on
    }
}

fn read_files(port: &Port<'_>, paths: &Mutex<std::iter::Enumerate<Paths>>) {
    loop {
        let Some((number, path)) = lock(paths).next() else { return };
        let number = number as u64;
        let started_ns = port.graph.now_ns();
        let read = read_whole(&path, &port.graph.pool, port.graph.max_chunk_bytes);
        let name: Arc<OsStr> = path.into_os_string().into();
        let item = match read {
            Ok(bytes) => Ok(port.chunk(bytes, &name, 0, number, started_ns)),
            Err((cause, offset)) => Err(port.fault(&name, offset, number, cause)),
        };
        if !port.send(item, number, 0, 0) {
            return;
        }
    }
}

/// Reads all of a file. The failure comes with the byte at which it occurred.
///
/// Does not map the file: if it were cut short meanwhile, that would kill the process (`SIGBUS`, mmap(2)).
fn read_whole(path: &Path, pool: &Pool, max_bytes: usize) -> Result<Buffer, (Cause, u64)> {
    let (file, size_bytes) = FileSource::open(path).map_err(|error| (Cause::of_system(error), 0))?;
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    if size > max_bytes {
        return Err((Cause::TooLarge { limit_bytes: max_bytes }, 0));
    }
    // One byte more, so that the read of the last byte also sees the end.
    let mut buffer = pool.take(size + 1).map_err(|error| (error.into(), 0))?;
    let mut bytes = 0;
    loop {
        let space = &mut buffer.space_mut()[bytes..];
        let asked = space.len();
        match file.read(space) {
            Ok(0) => break,
            Ok(read) => {
                bytes += read;
                // If a file has a size, a short read is the last. Files in /proc have none.
                if bytes == size && read < asked {
                    break;
                }
            }
            Err(errno) => return Err((Cause::of_system(errno), bytes as u64)),
        }
        if bytes > max_bytes {
            return Err((Cause::TooLarge { limit_bytes: max_bytes }, 0));
        }
        if bytes == buffer.capacity() {
            buffer = enlarged(&mut buffer, bytes, pool).map_err(|error| (error.into(), bytes as u64))?;
        }
    }
    buffer.set_len(bytes);
    Ok(buffer)
}

/// Copies the first `bytes` bytes into a buffer of twice the size.
fn enlarged(buffer: &mut Buffer, bytes: usize, pool: &Pool) -> Result<Buffer, Error> {
    let mut larger = pool.take(bytes.saturating_mul(2))?;
    larger.space_mut()[..bytes].copy_from_slice(&buffer.space_mut()[..bytes]);
    Ok(larger)
}

fn read_file(port: &Port<'_>, path: &Path, piece_bytes: usize) {
    let name: Arc<OsStr> = path.as_os_str().into();
    let opened = FileSource::open(path);
    if let Ok((file, _)) = &opened {
        file.is_read_in_order();
    }
    send_pieces(port, &name, |offset, _| {
        let (file, _) = opened.as_ref().map_err(|errno| Cause::of_system(*errno))?;
        read_piece(file, offset, piece_bytes, &port.graph.pool)
    });
}

/// Passes the pieces of one stream on, up to an empty one or a failure. `next` gets a piece's offset, and adds the
/// time that it waits for input.
fn send_pieces(
    port: &Port<'_>,
    name: &Arc<OsStr>,
    mut next: impl FnMut(u64, &mut u64) -> Result<Buffer, Cause>,
) {
    let mut offset = 0;
    for index in 0.. {
        let started_ns = port.graph.now_ns();
        let mut waited_ns = 0;
        let item = match next(offset, &mut waited_ns) {
            Ok(piece) if piece.is_empty() => return,
            Ok(piece) => Ok(port.chunk(piece, name, offset, index, started_ns)),
            Err(cause) => Err(port.fault(name, offset, index, cause)),
        };
        let bytes = item.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if !port.send(item, index, waited_ns, 0) || bytes == 0 {
            return;
        }
        offset += bytes;
    }
}

/// Reads the bytes at an offset; fewer than `piece_bytes` only at the end of the file.
fn read_piece(file: &FileSource, offset: u64, piece_bytes: usize, pool: &Pool) -> Result<Buffer, Cause> {
    let mut piece = pool.take(piece_bytes)?;
    let mut bytes = 0;
    while bytes < piece_bytes {
        match file.read_at(&mut piece.space_mut()[bytes..piece_bytes], offset + bytes as u64) {
            Ok(0) => break,
            Ok(read) => bytes += read,
            Err(errno) => return Err(Cause::of_system(errno)),
        }
    }
    piece.set_len(bytes);
    Ok(piece)
}

fn read_fd(port: &Port<'_>, input: &PollSource, name: &OsStr, piece_bytes: usize) {
    let mut failure = None;
    send_pieces(port, &name.into(), |_, waited_ns| {
        gather(port.graph, input, piece_bytes, &mut failure, waited_ns)
    });
}

/// Reads what is available, and waits if nothing is. Returns no bytes at the end, and when the graph was stopped. A
/// failure after some bytes is kept for the next call: a socket reports its error once, and then its end.
fn gather(
    graph: &Graph,
    input: &PollSource,
    piece_bytes: usize,
    failure: &mut Option<SysError>,
    waited_ns: &mut u64,
) -> Result<Buffer, Cause> {
    if let Some(errno) = failure.take() {
        return Err(Cause::of_system(errno));
    }
    let mut piece = graph.pool.take(piece_bytes)?;
    let mut bytes = 0;
    while bytes < piece_bytes && !graph.is_stopped() {
        match input.read(&mut piece.space_mut()[bytes..piece_bytes]) {
            Ok(Some(0)) => break,
            Ok(Some(read)) => bytes += read,
            Ok(None) if bytes > 0 => break,
            Ok(None) => *waited_ns += input.wait(&graph.waker).as_nanos() as u64,
            Err(errno) if bytes > 0 => {
                *failure = Some(errno);
                break;
            }
            Err(errno) => return Err(Cause::of_system(errno)),
        }
    }
    piece.set_len(bytes);
    Ok(piece)
}

fn run_feed(port: &Port<'_>, mut feed: Box<dyn Feed>) {
    let mut offset = 0;
    for index in 0.. {
        let started_ns = port.graph.now_ns();
        let mut context = Context::new(port.graph);
        let fed = catch_unwind(AssertUnwindSafe(|| feed.next(&mut context)));
        let lock_ns = context.report(port.meter);
        let limit_bytes = port.graph.max_chunk_bytes;
        let (fed, goes_on) = match fed {
            Ok(None) => return,
            Ok(Some(Ok(fed))) if fed.bytes.len() > limit_bytes => {
                (Err(Cause::TooLarge { limit_bytes }), true)
            }
            Ok(Some(fed)) => (fed, feed.goes_on()),
            Err(panic) => (Err(Cause::of_panic(&*panic)), false),
        };
        let unnamed = || Arc::from(OsString::from(index.to_string()));
        let is_last = fed.is_err() && !goes_on;
        let item = match fed {
            Ok(Fed { name, bytes }) => {
                let name = name.map_or_else(unnamed, Arc::from);
                Ok(port.chunk(bytes, &name, offset, index, started_ns))
            }
            Err(cause) => Err(port.fault(&unnamed(), offset, index, cause)),
        };
        offset += item.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if !port.send(item, index, 0, lock_ns) || is_last {
            return;
        }
    }
}
