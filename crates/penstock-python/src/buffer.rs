//! Exports of the caller's memory, which only Python threads take and release.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;
use std::sync::Mutex;

use crate::interned::intern;
use penstock_core::{Region, Space};
use penstock_frames::Strided;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::finalization::{raw, sleeping_at_finalization};
pub(crate) use crate::parked::release_parked;
use crate::parked::{Held, Parcel, ReleaseAtEnd};

/// A `Py_buffer`: while it lives, the memory can be neither freed nor resized.
///
/// A worker, which must not touch Python, may drop it: the drop only parks it. See [`release_parked`].
struct Export(Held);

// SAFETY: the memory is pinned by the export, whatever thread reads it; the view itself is only handed around.
unsafe impl Send for Export {}

// SAFETY: `PyBUF_SIMPLE` gave one contiguous, initialized block, which the exporter keeps in place until the release.
//
// Nothing keeps Python code from changing the content meanwhile. Its promise is the documented one, that borrowed memory does not
// change until the write has ended (docs/concepts/ownership.md). Code that breaks it gets a mixture of old and new bytes: we copy
// them, hand them to the kernel, or convert pixels, whose loops and indices do not depend on the content. By Rust's rules the
// conversion is a data race all the same, as with every extension that computes on a buffer without the GIL.
unsafe impl Region for Export {
    fn as_ptr(&self) -> *const u8 {
        self.start()
    }
    fn len(&self) -> usize {
        // Never negative: the protocol says so of every filled view.
        self.0.view().len as usize
    }
}

/// An export of writable memory.
struct WritableExport(Export);

// SAFETY: nothing of it changes while it is shared.
unsafe impl Sync for WritableExport {}

// SAFETY: as for the export, and `PyBUF_WRITABLE` was asked for. That the caller of `penstock.pipeline.into` does not touch the memory
// meanwhile is again a promise which nothing enforces.
unsafe impl Space for WritableExport {
    fn as_mut_ptr(&self) -> *mut u8 {
        self.0.start()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Export {
    /// The first byte. The protocol allows a view of no bytes to have no address, which a slice does not.
    fn start(&self) -> *mut u8 {
        NonNull::new(self.0.view().buf).unwrap_or(NonNull::dangling()).as_ptr().cast()
    }
}

/// Exports the bytes of a C-contiguous buffer; those of a ModernGL buffer are copied.
pub(crate) fn export(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn Region>> {
    region_of(data, |_| {})
}

/// As [`export`], for a write. The child of a fork releases its copy of what the parent's writes hold.
pub(crate) fn export_for_write(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn Region>> {
    region_of(data, Parcel::note_write)
}

/// Exports the bytes of a C-contiguous buffer that is no ModernGL buffer's: those of a decoder's planes. For such memory, to look
/// for OpenGL's takes longer than the rest.
pub(crate) fn export_plane(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn Region>> {
    Ok(Box::new(Export(Held::of_view(simple_view(data, ffi::PyBUF_SIMPLE)?))))
}

fn region_of(data: &Bound<'_, PyAny>, note: impl FnOnce(&mut Parcel)) -> PyResult<Box<dyn Region>> {
    let exporter = exporter_of(data)?;
    let mut view = simple_view(&exporter, ffi::PyBUF_SIMPLE)?;
    note(&mut view);
    let export = Export(Held::of_view(view));
    if is_gl_mapping(&exporter)? {
        let copy = data.py().detach(move || Copied::of(&export));
        release_parked(data.py()); // unmaps: while it is mapped, OpenGL ignores reads into it and writes
        return Ok(Box::new(copy));
    }
    Ok(Box::new(export))
}

/// What the function makes of the bytes of a C-contiguous buffer, without the GIL.
pub(crate) fn of_bytes<T: Send>(
    data: &Bound<'_, PyAny>,
    make: impl FnOnce(&[u8]) -> T + Send,
) -> PyResult<T> {
    let export = Export(Held::of_view(simple_view(&exporter_of(data)?, ffi::PyBUF_SIMPLE)?));
    let made = data.py().detach(move || {
        // SAFETY: by the contract of a region. The caller must not write there meanwhile, as with any other function that computes
        // without the GIL.
        make(unsafe { slice::from_raw_parts(export.as_ptr(), Region::len(&export)) })
    });
    release_parked(data.py()); // unmaps
    Ok(made)
}

/// Copy the bytes of a buffer into another of the same size. Releases the GIL.
#[pyfunction]
pub(crate) fn _copy(source: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = source.py();
    let source = Export(Held::of_view(simple_view(&exporter_of(source)?, ffi::PyBUF_SIMPLE)?));
    let target = WritableExport(Export(Held::of_view(simple_view(target, ffi::PyBUF_WRITABLE)?)));
    let is_possible = source.len() == target.0.len();
    py.detach(move || {
        if is_possible {
            // SAFETY: both are as long as that, and pinned by their exports; they may overlap. The caller must not write there
            // meanwhile, as with any other function that computes without the GIL.
            unsafe { std::ptr::copy(source.as_ptr(), target.as_mut_ptr(), source.len()) };
        }
    });
    release_parked(py); // unmaps
    if is_possible { Ok(()) } else { Err(PyValueError::new_err("the buffers must have the same size")) }
}

/// The bytes of a buffer for the time of a call, so that a ModernGL buffer is not mapped for longer.
pub(crate) struct BorrowedBuffer<'py> {
    parcel: Held,
    _release: ReleaseAtEnd<'py>,
}

impl<'py> BorrowedBuffer<'py> {
    pub(crate) fn of(data: &Bound<'py, PyAny>) -> PyResult<Self> {
        let view = get_buffer(&exporter_of(data)?, ffi::PyBUF_STRIDED_RO)?;
        Ok(Self { parcel: Held::of_view(view), _release: ReleaseAtEnd(data.py()) })
    }

    /// The size of all elements.
    pub(crate) fn bytes(&self) -> usize {
        self.parcel.view().len as usize
    }

    /// The bytes as they lie in memory; none if they do not follow each other in C order.
    pub(crate) fn contiguous(&self) -> Option<&[u8]> {
        let view = self.parcel.view();
        // SAFETY: a filled view.
        if unsafe { ffi::PyBuffer_IsContiguous(view, b'C' as c_char) } == 0 {
            return None;
        }
        if view.len == 0 {
            return Some(&[]); // whose address may be null
        }
        // SAFETY: the export keeps the memory in place and readable until it is released. The caller must not write there
        // meanwhile, as with any other function that computes without the GIL.
        Some(unsafe { slice::from_raw_parts(view.buf.cast_const().cast(), view.len as usize) })
    }

    /// The layout of the elements; without axes if the exporter does not tell their strides, as for a single one.
    pub(crate) fn strided(&self) -> Strided<'_> {
        let view = self.parcel.view();
        let axes = if view.shape.is_null() || view.strides.is_null() { 0 } else { view.ndim as usize };
        if axes == 0 {
            return Strided {
                start: view.buf.cast_const().cast(),
                shape: &[],
                strides: &[],
                item_bytes: view.itemsize as usize,
            };
        }
        // SAFETY: both have as many entries; lengths are never negative, and have the size of a usize.
        let (shape, strides) = unsafe {
            (slice::from_raw_parts(view.shape.cast(), axes), slice::from_raw_parts(view.strides, axes))
        };
        Strided { start: view.buf.cast_const().cast(), shape, strides, item_bytes: view.itemsize as usize }
    }
}

/// Exports the memory of a writable, C-contiguous buffer.
pub(crate) fn export_space(data: &Bound<'_, PyAny>) -> PyResult<Box<dyn Space>> {
    let exporter = exporter_of(data)?;
    if is_gl_mapping(&exporter)? {
        // The export would last until its chunk is gone, and OpenGL silently ignores reads and writes during an export.
        return Err(PyValueError::new_err(
            "memory of a ModernGL buffer can't be filled by another thread. Pass a bytearray or an array",
        ));
    }
    Ok(Box::new(WritableExport(Export(Held::of_view(simple_view(&exporter, ffi::PyBUF_WRITABLE)?)))))
}

/// Fills a view of memory that belongs to an object of ours, for its `__getbuffer__`.
///
/// # Safety
///
/// The view is null, or one that the interpreter wants to have filled. The memory stays where it is while the owner lives, and nobody
/// forms a reference into it, unless it is read-only.
pub(crate) unsafe fn fill_view(
    owner: &Bound<'_, PyAny>,
    (start, bytes): (*mut u8, usize),
    is_read_only: bool,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let (start, bytes, is_read_only) = (start.cast(), bytes as ffi::Py_ssize_t, c_int::from(is_read_only));
    // SAFETY: the view keeps the owner alive, which keeps the memory in place, by this function's own contract.
    match unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, bytes, is_read_only, flags) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(owner.py())),
    }
}

/// The object with the buffer protocol: `data` itself, the `mglo` of a `moderngl.Buffer`, or the array on the same memory that
/// the `numpy()` of a tensor returns.
fn exporter_of<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    // SAFETY: a borrowed reference that lives for the call.
    if unsafe { ffi::PyObject_CheckBuffer(data.as_ptr()) } == 1 {
        return Ok(data.clone());
    }
    if let Some(mglo) = data.getattr_opt(intern!(py, "mglo"))? {
        return Ok(mglo);
    }
    if data.hasattr(intern!(py, "numpy"))? {
        let detached = match data.getattr_opt(intern!(py, "detach"))? {
            Some(detach) => detach.call0()?,
            None => data.clone(),
        };
        return detached.call_method0(intern!(py, "numpy"));
    }
    if data.hasattr(intern!(py, "__array_interface__"))? {
        let kind = data.get_type().name()?;
        return Err(PyTypeError::new_err(format!("{kind} has no buffer. Pass numpy.asarray(data)"))); // a PIL image, say
    }
    Ok(data.clone()) // the buffer protocol raises the error
}

fn simple_view(exporter: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Box<Parcel>> {
    get_buffer(exporter, flags).map_err(|error| {
        let is_strided = BorrowedBuffer::of(exporter).is_ok_and(|borrowed| borrowed.contiguous().is_none());
        if !is_strided {
            return error;
        }
        let remedy = PyValueError::new_err(
            "data is not C-contiguous (strided, flipped or in Fortran order). Pass numpy.ascontiguousarray(data)",
        );
        remedy.set_cause(exporter.py(), Some(error));
        remedy
    })
}

/// Fills a view in place.
fn get_buffer(exporter: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Box<Parcel>> {
    // SAFETY: all zeros is a view of nothing.
    let mut parcel = Parcel::of_view(unsafe { MaybeUninit::zeroed().assume_init() });
    let view: *mut ffi::Py_buffer = parcel.view_mut();
    // SAFETY: the view is large enough, and is used only if the call succeeds.
    if sleeping_at_finalization(|| unsafe { raw::PyObject_GetBuffer(exporter.as_ptr(), view, flags) }) == -1 {
        return Err(PyErr::fetch(exporter.py()));
    }
    Ok(parcel)
}

/// The first address and the length of the memory that an object views, including gaps; none for ModernGL buffers, whose bytes
/// were copied.
pub(crate) fn extent(data: &Bound<'_, PyAny>) -> PyResult<Option<(*const u8, usize)>> {
    let exporter = exporter_of(data)?;
    if is_gl_mapping(&exporter)? {
        return Ok(None);
    }
    Ok(Some(strided_extent(BorrowedBuffer::of(&exporter)?.parcel.view())))
}

fn strided_extent(view: &ffi::Py_buffer) -> (*const u8, usize) {
    let start: *const u8 = view.buf.cast_const().cast();
    if view.len == 0 || view.shape.is_null() || view.strides.is_null() {
        return (start, view.len as usize);
    }
    let (mut low, mut high) = (0isize, view.itemsize);
    for axis in 0..view.ndim as usize {
        // SAFETY: `PyBUF_STRIDED_RO` fills `ndim` entries of both, and neither is null.
        let (length, stride) = unsafe { (*view.shape.add(axis), *view.strides.add(axis)) };
        let reach = (length - 1) * stride;
        low += reach.min(0);
        high += reach.max(0);
    }
    (start.wrapping_offset(low), (high - low) as usize)
}

/// Whether the memory is a mapped OpenGL buffer, or a view of one through memoryviews and arrays.
///
/// Its bytes are copied during the call, because Python does not protect such memory: it vanishes with `release()`, with its
/// context, and when the buffer is mapped again. And while it is mapped, reads into the buffer do nothing.
fn is_gl_mapping(exporter: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = exporter.py();
    let mut owner = exporter.clone();
    for _ in 0..MAX_VIEWS {
        // The viewed object is the `obj` of a memoryview and the `base` of an array. A search for what is not there costs as
        // much as the rest of a write.
        let next = if owner.is_instance_of::<PyBytes>() {
            None
        } else if owner.is_instance_of::<PyMemoryView>() {
            Some(owner.getattr(intern!(py, "obj"))?)
        } else if is_of_moderngl(&owner)? {
            return Ok(true);
        } else {
            owner.getattr_opt(intern!(py, "base"))?
        };
        match next {
            Some(next) if !next.is_none() => owner = next,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// The most views of views that are followed. NumPy flattens its own chains, so this is plenty.
const MAX_VIEWS: usize = 32;

fn is_of_moderngl(owner: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = owner.get_type().getattr(intern!(owner.py(), "__module__"))?;
    let Ok(module) = module.extract::<String>() else { return Ok(false) };
    Ok(matches!(module.split('.').next(), Some("mgl" | "moderngl")))
}

/// Copied bytes, in recycled memory: fresh pages cost more than the copy.
struct Copied(Vec<u8>);

/// Copies that are kept for reuse: enough for a program that renders while one frame is in flight.
const SPARE_COPIES: usize = 3;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

impl Copied {
    fn of(export: &Export) -> Self {
        // `try_lock`, here and below: a fork may have left the lock taken.
        let mut bytes = SPARE.try_lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default();
        bytes.clear();
        bytes.reserve_exact(export.len());
        // SAFETY: the export pins the source, the reservation makes room for it, and the two do not overlap. Copied by
        // `copy_nonoverlapping`, because an empty export has no valid pointer for a slice.
        unsafe {
            std::ptr::copy_nonoverlapping(export.as_ptr(), bytes.as_mut_ptr(), export.len());
            bytes.set_len(export.len());
        }
        Self(bytes)
    }
}

// SAFETY: as for the vector that it is.
unsafe impl Region for Copied {
    fn as_ptr(&self) -> *const u8 {
        Region::as_ptr(&self.0)
    }
    fn len(&self) -> usize {
        Region::len(&self.0)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Ok(mut spare) = SPARE.try_lock()
            && spare.len() < SPARE_COPIES
        {
            spare.push(std::mem::take(&mut self.0));
        }
    }
}
