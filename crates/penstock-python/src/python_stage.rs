//! What of a pipeline runs in Python: iterables as sources, callables as stages, buffers to be filled.
//!
//! They run on the pipeline's threads, each of which is a Python thread for all its life: a new one for each chunk would lose
//! what the code keeps in thread-local variables. How long they wait for the GIL is measured apart from how long they run.

use std::ffi::OsString;
use std::time::Instant;

use penstock_core::Region;
use penstock_core::pipeline::{self, Cause, Chunk, Context, Fed, Feed, Map, Space, Spaces};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyTuple};

use crate::buffer;
use crate::chunk;

/// From this size on, bytes are copied without the GIL: to get it back may take longer than to copy less (5 ms:
/// `sys.getswitchinterval()`).
const COPY_WITHOUT_GIL_BYTES: usize = 1 << 20;

/// Makes the calling thread a Python thread for as long as the body runs, without the GIL meanwhile.
pub(crate) fn as_python_thread(body: &mut (dyn FnMut() + Send)) {
    // Not attached where the interpreter is ending: then the body finds that out when it wants to run something.
    let mut body = Some(body);
    Python::try_attach(|py| {
        let body = body.take().expect("it is taken here or below");
        py.detach(body);
    });
    if let Some(body) = body {
        body();
    }
}

/// Runs that with the GIL, and books the wait for it.
fn attached<T>(
    context: &mut Context<'_>,
    run: impl FnOnce(Python<'_>, &mut Context<'_>) -> PyResult<T>,
) -> Result<T, Cause> {
    let asked = Instant::now();
    Python::try_attach(|py| {
        context.waited_for_lock(asked.elapsed());
        buffer::release_parked(py);
        run(py, context)
    })
    .unwrap_or_else(|| Err(PyRuntimeError::new_err("the interpreter is ending")))
    .map_err(Cause::failed)
}

/// A copy of what an object's buffer has, in the pipeline's memory: nothing of the object is needed any more, and its owner
/// may fill it with the next bytes.
fn copied(data: &Bound<'_, PyAny>, context: &Context<'_>) -> PyResult<Result<pipeline::Buffer, Cause>> {
    let py = data.py();
    let region = buffer::export(data)?;
    let copied = context.take(region.len()).map(|copy| match region.len() {
        0..COPY_WITHOUT_GIL_BYTES => filled(copy, region),
        _ => py.detach(|| filled(copy, region)),
    });
    buffer::release_parked(py);
    Ok(copied)
}

/// The copy, with the region's bytes in it.
fn filled(mut copy: pipeline::Buffer, region: Box<dyn Region>) -> pipeline::Buffer {
    // SAFETY: the region is as long as it says, and the copy was made for as many bytes, in memory that nobody else has.
    unsafe { std::ptr::copy_nonoverlapping(region.as_ptr(), copy.as_mut_ptr(), region.len()) };
    copy
}

/// An iterable of buffers, or of pairs of a name and a buffer.
pub(crate) struct Iterable(pub(crate) Py<PyIterator>);

impl Feed for Iterable {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Fed, Cause>> {
        let fed = attached(context, |py, context| {
            let Some(item) = self.0.bind(py).clone().next() else { return Ok(None) };
            let (name, data) = named(item?)?;
            Ok(Some(copied(&data, context)?.map(|bytes| Fed { name, bytes })))
        });
        match fed {
            Ok(fed) => fed,
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
pub(crate) struct Callable(pub(crate) Py<PyAny>);

impl Map for Callable {
    fn map(&mut self, chunk: Chunk, context: &mut Context<'_>) -> Result<Option<Chunk>, Cause> {
        attached(context, |py, context| {
            let answer = self.0.bind(py).call1((chunk::Chunk::shared(chunk.clone()),))?;
            if answer.is_none() {
                return Ok(Ok(chunk));
            }
            if let Ok(other) = answer.cast::<chunk::Chunk>() {
                return Ok(Ok(other.get().get().clone()));
            }
            Ok(copied(&answer, context)?.map(|bytes| chunk.with_bytes(bytes)))
        })?
        .map(Some)
    }
}

/// An iterable of buffers that can be written to.
pub(crate) struct Writables(pub(crate) Py<PyIterator>);

impl Spaces for Writables {
    fn next(&mut self, context: &mut Context<'_>) -> Option<Result<Box<dyn Space>, Cause>> {
        let space = attached(context, |py, _| match self.0.bind(py).clone().next() {
            Some(data) => buffer::export_space(&data?).map(Some),
            None => Ok(None),
        });
        space.transpose()
    }
}
