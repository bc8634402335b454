//! Planes of decoded frames to pixels, in Python.

use std::sync::{Mutex, PoisonError};

use penstock_core::{Buffer, Error};
use penstock_frames::PlaneMethod;
use penstock_pixels::{PlaneCopy, PlaneSize};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::{export_plane, export_space, release_parked};
use crate::conversion::Conversion;
use crate::delivery::Delivery;
use crate::errors::{OrRaise, no_memory};
use crate::parked::ReleaseAtEnd;
use crate::slot::Slot;

/// Makes the bytes of frames from planes that lie anywhere, as a decoder leaves them. The native threads that do it
/// serve all converters of the process.
///
/// Args:
///     conversion: None copies the rows of the planes one after another, without padding, whatever they hold.
///     rows: of each plane, the number of rows, and the bytes of a row that hold samples.
///     keep_slots: how many unused frames are kept for use again, until the converter is gone.
///     threads: how many threads may work for this converter at the same time. With 0, and in a process that may use a
///         single CPU, the thread that waits for a frame makes it.
///     delivery: makes arrays of that. None: the frames are those.
///
/// Raises:
///     ValueError: ``rows`` are not those of the conversion's input, or too many; or they don't become the picture that
///         is delivered.
#[pyclass(frozen, name = "_PlaneConverter", module = "penstock._native")]
pub(crate) struct PlaneConverter(penstock_frames::PlaneConverter);

#[pymethods]
impl PlaneConverter {
    #[new]
    #[pyo3(signature = (conversion, rows, keep_slots, threads, delivery=None))]
    fn new(
        py: Python<'_>,
        conversion: Option<&Conversion>,
        rows: Vec<(usize, usize)>,
        keep_slots: usize,
        threads: usize,
        delivery: Option<&Delivery>,
    ) -> PyResult<Self> {
        let sizes: Vec<_> = rows.into_iter().map(|(rows, row_bytes)| PlaneSize { rows, row_bytes }).collect();
        let method = match conversion {
            Some(conversion) if conversion.0.input_sizes().ne(sizes.iter().copied()) => {
                let wanted: Vec<_> =
                    conversion.0.input_sizes().map(|size| (size.rows, size.row_bytes)).collect();
                let message = format!("rows must be {wanted:?} for this conversion");
                return Err(PyValueError::new_err(message));
            }
            Some(conversion) => PlaneMethod::Convert(conversion.0.clone()),
            None => PlaneMethod::Copy(
                PlaneCopy::new(sizes).ok_or_else(|| PyValueError::new_err("the planes are too large"))?,
            ),
        };
        let delivery = delivery.map(|delivery| delivery.0.clone());
        let made = penstock_frames::PlaneConverter::new(method, delivery, keep_slots, threads);
        made.or_raise_of(py, "decoder").map(Self)
    }

    /// Begin a frame. Its job holds ``planes`` and ``out`` until ``wait`` returns or the job is dropped. Nobody may
    /// write to them meanwhile.
    ///
    /// Args:
    ///     planes: C-contiguous buffers, each with all rows of a plane.
    ///     strides: of each plane, the bytes from a row to the one below it. If they are negative, the rows lie
    ///         bottom-up, and the buffer begins with the last row.
    ///     out: a writable, C-contiguous buffer of a frame's size. None: a slot.
    ///
    /// Raises:
    ///     ValueError: the planes, strides or ``out`` do not fit to the frame or to each other.
    ///     TypeError: one of them is no buffer.
    ///     MemoryError: there is none for a slot.
    #[pyo3(signature = (planes, strides, out=None))]
    fn begin(
        &self,
        py: Python<'_>,
        planes: Vec<Bound<'_, PyAny>>,
        strides: Vec<isize>,
        out: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PlaneJob> {
        let (given, wanted) = (strides.len(), planes.len());
        if given != wanted {
            return Err(PyValueError::new_err(format!(
                "there must be {wanted} strides, one for each plane, not {given}"
            )));
        }
        let _release = ReleaseAtEnd(py);
        let planes = planes.iter().zip(strides).map(|(plane, stride)| Ok((export_plane(plane)?, stride)));
        let planes = planes.collect::<PyResult<_>>()?;
        let output = out.map(export_space).transpose()?.map(Buffer::foreign);
        let is_slot = output.is_none();
        match self.0.begin(planes, output) {
            Err(error @ Error::Io { .. }) => Err(no_memory(error)),
            begun => {
                begun.or_raise_of(py, "decoder").map(|job| PlaneJob { job: Mutex::new(Some(job)), is_slot })
            }
        }
    }

    /// Seconds that threads spent on making frames, all together.
    #[getter]
    fn converting_s(&self) -> f64 {
        self.0.converting().sum().as_secs_f64()
    }
}

/// A frame that is being made. Its drop waits for the threads that are at it, and leaves the rest out.
#[pyclass(frozen, name = "_PlaneJob", module = "penstock._native")]
pub(crate) struct PlaneJob {
    /// None once somebody waits for it. Locked by attached threads, and for a moment only.
    job: Mutex<Option<penstock_frames::PlaneJob>>,
    is_slot: bool,
}

#[pymethods]
impl PlaneJob {
    /// Make what no other thread has begun, wait for the rest, and return the slot; None if ``out`` was given. Can
    /// be called once. Releases the GIL.
    ///
    /// Raises:
    ///     ValueError: it was waited for before.
    ///     ClosedError: the parent process began it.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Slot>> {
        let taken = self.job.lock().unwrap_or_else(PoisonError::into_inner).take();
        let job = taken.ok_or_else(|| PyValueError::new_err("wait() was called before"))?;
        let _release = ReleaseAtEnd(py);
        let made = if job.has_ended() { job.wait() } else { py.detach(|| job.wait()) };
        let output = made.or_raise_of(py, "decoder")?;
        Ok(self.is_slot.then(|| Slot::of(output)))
    }

    /// Whether ``wait`` would neither wait nor work.
    #[getter]
    fn done(&self) -> bool {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        job.as_ref().is_none_or(penstock_frames::PlaneJob::has_ended)
    }
}

impl Drop for PlaneJob {
    fn drop(&mut self) {
        let job = self.job.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if job.is_some() {
            drop(job);
            Python::try_attach(release_parked); // attached already, unless the interpreter ends
        }
    }
}
