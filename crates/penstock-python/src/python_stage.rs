//! The parts of a pipeline that run Python code: iterables as sources, callables as stages, and buffers to fill.
//!
//! They run on threads of the pipeline, each of which is one Python thread for all its life: a new one for each chunk would lose
//! thread-local variables. The wait for the GIL is measured separately.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;
use std::{io, ptr};

use penstock_core::Region;
use penstock_pipeline::{self as pipeline, Cause, Chunk, Context, Fed, Feed, Map, Space, Spaces};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer;
use crate::chunk;
use crate::finalization::{raw, sleeping_at_finalization};
use crate::parked::release_parked;
use crate::pipeline_object::PipelineObject;

/// From this size on, bytes are copied without the GIL. For less, getting it back may take longer than the copy (5 ms:
/// `sys.getswitchinterval()`).
const COPY_WITHOUT_GIL_BYTES: usize = 1 << 20;

/// Runs the function with the GIL and the object, and records the wait for the GIL. None if the object was released, because the
/// pipeline has ended.
fn attached<T>(
    holder: &PipelineObject,
    context: &mut Context<'_>,
    run: impl FnOnce(&Bound<'_, PyAny>, &mut Context<'_>) -> PyResult<T>,
) -> Result<Option<T>, Cause> {
    let asked = Instant::now();
    Python::try_attach(|py| {
        context.waited_for_lock(asked.elapsed());
        release_parked(py);
        let Some(object) = holder.get(py) else { return Ok(None) };
        let outcome = run(object.bind(py), context);
        outcome.map(Some).map_err(|error| Cause::Failed(holder.keep(py, error)))
    })
    // None if the interpreter cannot run Python code any more.
    .unwrap_or_else(|| Err(Cause::failed(io::Error::other("the interpreter is ending"))))
}

/// The next item of an iterator; none at its end.
fn next_of<'py>(iterator: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = iterator.py();
    // SAFETY: an iterator that lives, and we are attached; the answer is a new reference.
    let item = unsafe {
        let item = sleeping_at_finalization(|| raw::PyIter_Next(iterator.as_ptr()));
        Bound::from_owned_ptr_or_opt(py, item)
    };
    match item {
        None => PyErr::take(py).map_or(Ok(None), Err),
        item => Ok(item),
    }
}

/// The result of a call.
fn answer_of<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both live, and we are attached; the answer is a new reference.
    unsafe {
        let answer = sleeping_at_finalization(|| {
            raw::PyObject_Call(callable.as_ptr(), arguments.as_ptr(), ptr::null_mut())
        });
        Bound::from_owned_ptr_or_err(callable.py(), answer)
    }
}

/// A copy of a buffer in the pipeline's memory, so that its owner may reuse the buffer.
fn copied(data: &Bound<'_, PyAny>, context: &Context<'_>) -> PyResult<Result<pipeline::Buffer, Cause>> {
    let py = data.py();
    let region = buffer::export(data)?;
    let copied = context.take(region.len()).map(|copy| match region.len() {
        0..COPY_WITHOUT_GIL_BYTES => filled(copy, region),
        _ => py.detach(|| filled(copy, region)),
    });
    release_parked(py);
    Ok(copied)
}

/// The copy, with the region's bytes in it.
fn filled(mut copy: pipeline::Buffer, region: Box<dyn Region>) -> pipeline::Buffer {
    // SAFETY: the region is as long as it says, and the copy was made for as many bytes, in memory that nobody else has.
    unsafe { ptr::copy_nonoverlapping(region.as_ptr(), copy.as_mut_ptr(), region.len()) };
    copy
}

/// An iterable of buffers, or of pairs of a name and a buffer.
pub(crate) struct Iterable {
    object: Arc<PipelineObject>,
    /// Whether it gave an item the last time. If that is wrong, the next may be right.
    has_given: bool,
}

impl Iterable {
    pub(crate) fn new(object: Arc<PipelineObject>) -> Self {
        Self { object, has_given: false }
    }
}

impl Feed for Iterable {
    fn goes_on(&self) -> bool {
        self.has_given
    }

    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        self.has_given = false;
        let fed = attached(&self.object, context, |iterator, context| {
            let Some(item) = next_of(iterator)? else { return Ok(None) };
            self.has_given = true;
            let (name, data) = named(item)?;
            Ok(Some(copied(&data, context)?.map(|bytes| Fed { name, bytes })))
        });
        match fed {
            Ok(fed) => fed.flatten(),
            Err(cause) => Some(Err(cause)),
        }
    }
}

fn named(item: Bound<'_, PyAny>) -> PyResult<(Option<OsString>, Bound<'_, PyAny>)> {
    match item.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => Ok((Some(pair.get_item(0)?.extract()?), pair.get_item(1)?)),
        Ok(_) => Err(PyTypeError::new_err("an item must be a buffer or a pair of a name and a buffer")),
        Err(_) => Ok((None, item)),
    }
}

/// A callable that gets each chunk.
pub(crate) struct Callable(pub(crate) Arc<PipelineObject>);

impl Map for Callable {
    fn map(&mut self, chunk: Chunk, context: &mut Context<'_>) -> Result<Option<Chunk>, Cause> {
        let answer = attached(&self.0, context, |function, context| {
            let shared = chunk::Chunk { chunk: chunk.clone(), is_writable: false };
            let arguments = (shared,).into_pyobject(function.py())?;
            let answer = answer_of(function, &arguments)?;
            if answer.is_none() {
                return Ok(Ok(chunk));
            }
            if let Ok(other) = answer.cast::<chunk::Chunk>() {
                let chunk::Chunk { chunk: other, is_writable } = other.get();
                if *is_writable {
                    // Whoever has it may write to it while the next stages read.
                    return Ok(copied(&answer, context)?.map(|bytes| other.clone().with_bytes(bytes)));
                }
                return Ok(Ok(other.clone()));
            }
            Ok(copied(&answer, context)?.map(|bytes| chunk.with_bytes(bytes)))
        })?;
        answer.transpose()
    }
}

/// An iterable of buffers that can be written to.
pub(crate) struct Writables(pub(crate) Arc<PipelineObject>);

impl Spaces for Writables {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Box<dyn Space>, Cause>> {
        let space = attached(&self.0, context, |iterator, _| match next_of(iterator)? {
            Some(data) => buffer::export_space(&data).map(Some),
            None => Ok(None),
        });
        space.map(Option::flatten).transpose()
    }
}
