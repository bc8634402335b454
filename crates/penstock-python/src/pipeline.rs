//! The native parts of `penstock.pipeline`.

use std::mem;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_core::{Error, Writer};
use penstock_pipeline::{
    self as pipeline, ChecksumKind, Codec, Latency, OnError, Options, StageStats, Stats,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::arguments::{self, Ahead, Timeout};
use crate::attach::as_python_thread;
use crate::chunk::{Chunk, seconds};
use crate::errors::{self, OrRaise};
use crate::parked::release_parked;
use crate::pipeline_object::PipelineObject;
use crate::pipes::arm_exit;
use crate::policy::{AppliedPolicy, ThreadPolicy};
use crate::python_stage::{Callable, Iterable, Writables};
use crate::ticket::{LoopWaker, Watch};
use crate::waiting::until;

/// A part of a pipeline and the Python object that it uses, until the pipeline takes both.
struct Part<T>(Mutex<Option<(T, Option<Arc<PipelineObject>>)>>);

impl<T> Part<T> {
    fn new(part: T, object: Option<Arc<PipelineObject>>) -> Self {
        Self(Mutex::new(Some((part, object))))
    }

    /// Takes the part; its Python object goes to what the pipeline owns.
    fn take(&self, owned: &mut Vec<Arc<PipelineObject>>) -> PyResult<T> {
        let part = self.0.lock().ok().and_then(|mut part| part.take());
        let (part, object) = part.ok_or_else(|| {
            PyValueError::new_err("each part must belong to one pipeline only. Make another one")
        })?;
        owned.extend(object);
        Ok(part)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_lock().as_deref() {
            Ok(Some((_, Some(object)))) => object.traverse(visit),
            _ => Ok(()),
        }
    }

    fn clear(&self) {
        let part = self.0.lock().ok().and_then(|mut part| part.take());
        drop(part);
    }
}

/// The source of a pipeline. ``penstock.pipeline`` documents all parts.
#[pyclass(frozen, name = "_Source", module = "penstock._native")]
pub(crate) struct Source(Part<pipeline::Source>, Mutex<Ahead>);

#[pymethods]
impl Source {
    /// Files, each as one chunk.
    #[staticmethod]
    #[pyo3(signature = (paths, workers, policy))]
    fn files(
        paths: Vec<PathBuf>,
        #[pyo3(from_py_with = arguments::workers)] workers: usize,
        policy: Option<ThreadPolicy>,
    ) -> Self {
        Self::new(pipeline::Source::files(paths).workers(workers), policy)
    }

    /// One file in pieces.
    #[staticmethod]
    #[pyo3(signature = (path, piece_bytes, policy))]
    fn file(
        path: PathBuf,
        #[pyo3(from_py_with = arguments::piece_bytes)] piece_bytes: usize,
        policy: Option<ThreadPolicy>,
    ) -> Self {
        Self::new(pipeline::Source::file(path, piece_bytes), policy)
    }

    /// The bytes of a descriptor.
    #[staticmethod]
    #[pyo3(signature = (fd, piece_bytes, policy))]
    fn fd(
        fd: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::piece_bytes)] piece_bytes: usize,
        policy: Option<ThreadPolicy>,
    ) -> PyResult<Self> {
        let py = fd.py();
        let (fd, ahead) = arguments::source(fd)?;
        let bytes = ahead.bytes.clone();
        let source = py.detach(|| pipeline::Source::fd_after(bytes, fd, piece_bytes)).or_raise(py)?;
        Ok(Self(Self::new(source, policy).0, Mutex::new(ahead)))
    }

    /// An iterable of buffers.
    #[staticmethod]
    #[pyo3(signature = (buffers, policy))]
    fn iterable(buffers: &Bound<'_, PyAny>, policy: Option<ThreadPolicy>) -> PyResult<Self> {
        let object = PipelineObject::new(PyIterator::from_object(buffers)?.into_any().unbind());
        let source = pipeline::Source::feed(Iterable::new(Arc::clone(&object))).named("iterable");
        let source = with_policy(source.within(as_python_thread), policy, pipeline::Source::policy);
        Ok(Self(Part::new(source, Some(object)), Mutex::default()))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.traverse(&visit)?;
        self.1.try_lock().map_or(Ok(()), |ahead| ahead.traverse(&visit))
    }

    fn __clear__(&self) {
        self.0.clear();
        drop(self.take_ahead());
    }
}

impl Source {
    fn new(source: pipeline::Source, policy: Option<ThreadPolicy>) -> Self {
        Self(Part::new(with_policy(source, policy, pipeline::Source::policy), None), Mutex::default())
    }

    /// Takes the stream out, so that nothing is done with it under the lock.
    fn take_ahead(&self) -> Ahead {
        self.1.lock().map(|mut ahead| mem::take(&mut *ahead)).unwrap_or_default()
    }
}

/// The part with that policy, if there is one.
fn with_policy<P>(part: P, policy: Option<ThreadPolicy>, set: fn(P, penstock_core::ThreadPolicy) -> P) -> P {
    match policy {
        Some(ThreadPolicy(policy)) => set(part, policy),
        None => part,
    }
}

/// A stage of a pipeline.
#[pyclass(frozen, name = "_Stage", module = "penstock._native")]
pub(crate) struct Stage(Part<pipeline::Stage>);

#[pymethods]
impl Stage {
    /// Decompress chunks.
    #[staticmethod]
    #[pyo3(signature = (codec, streamed, name, workers, policy))]
    fn decompress(
        codec: &str,
        streamed: Option<bool>,
        name: String,
        #[pyo3(from_py_with = arguments::workers)] workers: usize,
        policy: Option<ThreadPolicy>,
    ) -> PyResult<Self> {
        let codecs = [Codec::Auto, Codec::Zlib, Codec::Gzip, Codec::Zstd, Codec::Lz4];
        let codec = arguments::choice("codec", codec, &codecs.map(|codec| (codec.name(), codec)))?;
        let stage = pipeline::Stage::decompress(codec);
        let stage = match streamed {
            Some(streamed) => stage.streamed(streamed),
            None => stage,
        };
        Ok(Self::new(stage, name, workers, policy))
    }

    /// Compute checksums.
    #[staticmethod]
    #[pyo3(signature = (kind, name, workers, policy))]
    fn checksum(
        kind: &str,
        name: String,
        #[pyo3(from_py_with = arguments::workers)] workers: usize,
        policy: Option<ThreadPolicy>,
    ) -> PyResult<Self> {
        let kinds = [("xxh3", ChecksumKind::Xxh3), ("crc32", ChecksumKind::Crc32)];
        let kind = arguments::choice("kind", kind, &kinds)?;
        Ok(Self::new(pipeline::Stage::checksum(kind), name, workers, policy))
    }

    /// Call a Python callable.
    #[staticmethod]
    #[pyo3(signature = (function, name, workers, policy))]
    fn call(
        function: Py<PyAny>,
        name: String,
        #[pyo3(from_py_with = arguments::workers)] workers: usize,
        policy: Option<ThreadPolicy>,
    ) -> Self {
        let object = PipelineObject::new(function);
        let own = Arc::clone(&object);
        let make = move || Box::new(Callable(Arc::clone(&own))) as Box<dyn pipeline::Map>;
        let stage = pipeline::Stage::map("call", make).within(as_python_thread);
        let stage = with_policy(stage.named(name).workers(workers), policy, pipeline::Stage::policy);
        Self(Part::new(stage, Some(object)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.traverse(&visit)
    }

    fn __clear__(&self) {
        self.0.clear();
    }
}

impl Stage {
    fn new(stage: pipeline::Stage, name: String, workers: usize, policy: Option<ThreadPolicy>) -> Self {
        let stage = with_policy(stage.named(name).workers(workers), policy, pipeline::Stage::policy);
        Self(Part::new(stage, None))
    }
}

/// The sink of a pipeline.
#[pyclass(frozen, name = "_Sink", module = "penstock._native")]
pub(crate) struct Sink(Part<pipeline::Sink>);

#[pymethods]
impl Sink {
    /// A descriptor, through a ``Writer`` whose queue is as deep as the pipeline's.
    #[staticmethod]
    #[pyo3(signature = (fd, queue_items, queue_bytes, policy))]
    fn fd(
        fd: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::queue_bytes)] queue_bytes: Option<usize>,
        policy: Option<ThreadPolicy>,
    ) -> PyResult<Self> {
        arm_exit(fd.py())?;
        let mut options = penstock_core::WriterOptions::default();
        (options.queue_items, options.queue_bytes) = (queue_items, queue_bytes);
        options.policy = policy.as_ref().map(|policy| policy.0.clone());
        let py = fd.py();
        let fd = arguments::destination(fd, "fd")?;
        let writer = py.detach(|| Writer::new(fd, &options)).or_raise(py)?;
        let sink = with_policy(pipeline::Sink::writer(writer), policy, pipeline::Sink::policy);
        Ok(Self(Part::new(sink, None)))
    }

    /// Buffers of the caller.
    #[staticmethod]
    fn into(buffers: &Bound<'_, PyAny>) -> PyResult<Self> {
        let object = PipelineObject::new(PyIterator::from_object(buffers)?.into_any().unbind());
        let spaces = pipeline::Sink::spaces(Writables(Arc::clone(&object)));
        Ok(Self(Part::new(spaces.within(as_python_thread), Some(object))))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.traverse(&visit)
    }

    fn __clear__(&self) {
        self.0.clear();
    }
}

/// A running pipeline, with the Python objects that it lends to its threads.
#[pyclass(frozen, name = "_Pipeline", module = "penstock._native")]
pub(crate) struct Pipeline(pipeline::Pipeline, Vec<Arc<PipelineObject>>);

#[pymethods]
impl Pipeline {
    #[new]
    #[pyo3(signature = (source, stages, sink, *, queue_items, queue_bytes, max_chunk_bytes, on_error))]
    #[allow(clippy::too_many_arguments)] // keyword-only options
    fn new(
        py: Python<'_>,
        source: &Source,
        stages: Vec<PyRef<'_, Stage>>,
        sink: Option<&Sink>,
        #[pyo3(from_py_with = arguments::queue_items)] queue_items: Option<usize>,
        #[pyo3(from_py_with = arguments::queue_bytes)] queue_bytes: Option<usize>,
        #[pyo3(from_py_with = arguments::max_chunk_bytes)] max_chunk_bytes: usize,
        on_error: &str,
    ) -> PyResult<Self> {
        let reactions = [("raise", OnError::Raise), ("skip", OnError::Skip)];
        let on_error = arguments::choice("on_error", on_error, &reactions)?;
        let mut options = Options::default();
        options.depth.items = queue_items.unwrap_or(options.depth.items);
        options.depth.bytes = queue_bytes.unwrap_or(options.depth.bytes);
        (options.on_error, options.max_chunk_bytes) = (on_error, max_chunk_bytes);
        let mut object = Vec::new();
        let ahead = source.take_ahead();
        let source = source.0.take(&mut object)?;
        let stages = stages.iter().map(|stage| stage.0.take(&mut object)).collect::<PyResult<Vec<_>>>()?;
        let sink = sink.map_or_else(|| Ok(pipeline::Sink::iterate()), |sink| sink.0.take(&mut object))?;
        // Detached: its threads begin with becoming Python threads, where they are.
        let started = py.detach(|| pipeline::Pipeline::start(source, stages, sink, &options));
        release_parked(py);
        match started {
            Ok(pipeline) => {
                let own = Self(pipeline, object);
                ahead.take(py)?;
                Ok(own)
            }
            Err(error) => {
                object.iter().for_each(|object| object.clear(py));
                Err(errors::to_python(py, &error))
            }
        }
    }

    /// The next chunk; None at the end.
    fn next(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<Option<Chunk>> {
        let outcome = until(py, timeout, |slice| self.0.next(Some(slice)).into())?;
        if !matches!(outcome, Ok(Some(_)) | Err(Error::Stalled { .. })) {
            self.release(py);
        }
        outcome.map(|chunk| chunk.map(Chunk::own)).or_raise_of(py, "pipeline")
    }

    /// Wait for the end of a pipeline whose sink is a descriptor.
    fn wait(&self, py: Python<'_>, timeout: Option<Timeout>) -> PyResult<()> {
        let outcome = until(py, timeout, |slice| self.0.wait(Some(slice)).into())?;
        if !matches!(outcome, Err(Error::Stalled { .. })) {
            self.release(py);
        }
        outcome.or_raise_of(py, "pipeline")
    }

    /// Whether ``next`` or ``wait`` would return at once.
    fn done(&self) -> bool {
        self.0.ready().has_ended()
    }

    /// Tell the waker that number when ``done`` becomes true.
    fn _notify(&self, waker: &LoopWaker, number: u64) -> Watch {
        Watch::start(&self.0.ready(), waker, number)
    }

    /// End the pipeline and return whether all threads have ended. Waits for them at most 5 seconds.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        if self.0.is_at_work_here() {
            return Ok(self.cancel(py));
        }
        self.cancel(py);
        let closed =
            until(py, Some(Timeout(pipeline::LEAVE_WITHIN)), |slice| self.0.close_within(slice).into())?;
        Ok(closed.is_ok())
    }

    /// End the pipeline without waiting, and return whether all threads have ended.
    fn cancel(&self, py: Python<'_>) -> bool {
        // Detached, because a thread of the pipeline may need the GIL before it can end.
        let have_ended = py.detach(|| self.0.close_within(Duration::ZERO));
        self.release(py);
        have_ended
    }

    /// Whether the pipeline was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The errors of skipped chunks.
    #[getter]
    fn skipped<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for error in py.detach(|| self.0.skipped()) {
            list.append(errors::chunk_error(py, &error)?.into_value(py))?;
        }
        Ok(list)
    }

    /// The statistics as dicts, which ``penstock.pipeline`` turns into records.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.read_stats(py)?;
        let record = PyDict::new(py);
        let stages =
            stats.stages.iter().map(|stage| stage_record(py, stage)).collect::<PyResult<Vec<_>>>()?;
        record.set_item("stages", PyTuple::new(py, stages)?)?;
        record.set_item("end_to_end", latency_record(py, &stats.end_to_end)?)?;
        record.set_item("elapsed_s", seconds(stats.elapsed_ns))?;
        record.set_item("pool_free_bytes", stats.pool_free_bytes)?;
        Ok(record)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.1.iter().try_for_each(|object| object.traverse(&visit))
    }

    fn __clear__(&self, py: Python<'_>) {
        // Does not wait, and lets no other thread run: the garbage collector calls it.
        self.0.close_within(Duration::ZERO);
        self.1.iter().for_each(|object| object.clear(py));
    }

    /// The name of the slowest part; None if it is nobody clearly.
    fn bottleneck(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.read_stats(py)?.bottleneck().map(|part| part.name.clone()))
    }
}

impl Pipeline {
    /// Drops what the threads no longer use: a generator, for instance, whose end the program may wait for.
    fn release(&self, py: Python<'_>) {
        self.1.iter().for_each(|object| object.release(py));
    }

    fn read_stats(&self, py: Python<'_>) -> PyResult<Stats> {
        py.detach(|| self.0.stats()).or_raise_of(py, "pipeline")
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        Python::attach(|py| self.__clear__(py));
    }
}

fn latency_record<'py>(py: Python<'py>, latency: &Latency) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    record.set_item("count", latency.count)?;
    record.set_item("min_s", seconds(latency.min_ns))?;
    record.set_item("p50_s", seconds(latency.p50_ns))?;
    record.set_item("p95_s", seconds(latency.p95_ns))?;
    record.set_item("p99_s", seconds(latency.p99_ns))?;
    record.set_item("max_s", seconds(latency.max_ns))?;
    record.set_item("mean_s", latency.mean_ns / 1e9)?;
    Ok(record)
}

fn stage_record<'py>(py: Python<'py>, stage: &StageStats) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    record.set_item("name", &stage.name)?;
    record.set_item("workers", stage.workers)?;
    record.set_item("bytes_in", stage.bytes_in)?;
    record.set_item("bytes_out", stage.bytes_out)?;
    record.set_item("failed", stage.failed)?;
    record.set_item("work", latency_record(py, &stage.work)?)?;
    record.set_item("queued", latency_record(py, &stage.queued)?)?;
    record.set_item("gil", latency_record(py, &stage.lock)?)?;
    record.set_item("input_wait_s", seconds(stage.input_blocked_ns))?;
    record.set_item("output_wait_s", seconds(stage.output_blocked_ns))?;
    record.set_item("queue_items", stage.queue_items)?;
    record.set_item("queue_bytes", stage.queue_bytes)?;
    record.set_item("policies", PyTuple::new(py, stage.policies.iter().cloned().map(AppliedPolicy))?)?;
    Ok(record)
}
