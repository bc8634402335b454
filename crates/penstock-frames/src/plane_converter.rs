//! Frames of planes that lie anywhere, as a decoder leaves them, made into frames in one piece by the crew of the process.

use std::fmt;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use penstock_core::engine::{Own, Stopwatch};
use penstock_core::{Buffer, Error, Pool, Region};
use penstock_pixels::{Band, Conversion, CopyBand, Delivery, PlaneCopy, PlaneSize, Planes};

use crate::crew::{Part, Work, WorkGroup};

/// Bytes of output that a band has at least, so that a frame is one piece of work for one thread unless it is large: frames that follow
/// each other keep the others busy. Chosen: a quarter of 2160p in rgb24.
const BAND_BYTES: usize = 6 << 20;

/// How a frame is made of its planes.
#[derive(Debug)]
pub enum PlaneMethod {
    /// Pixels are converted.
    Convert(Arc<Conversion>),
    /// Rows are copied, whatever they hold.
    Copy(PlaneCopy),
}

/// A part of a frame that one thread makes.
enum FrameBand {
    Convert(Band<'static>),
    Copy(CopyBand<'static>),
}

impl PlaneMethod {
    fn input_sizes(&self) -> Vec<PlaneSize> {
        match self {
            Self::Convert(conversion) => conversion.input_sizes().collect(),
            Self::Copy(copy) => copy.input_sizes().to_vec(),
        }
    }

    fn output_bytes(&self) -> usize {
        match self {
            Self::Convert(conversion) => conversion.output_bytes(),
            Self::Copy(copy) => copy.output_bytes(),
        }
    }

    fn bands(&self, count: usize, output: &'static mut [u8]) -> Vec<FrameBand> {
        match self {
            Self::Convert(conversion) => {
                conversion.bands(count, output).into_iter().map(FrameBand::Convert).collect()
            }
            Self::Copy(copy) => copy.bands(count, output).into_iter().map(FrameBand::Copy).collect(),
        }
    }

    /// The size of its output as the only plane; none if it has several.
    fn packed_size(&self) -> Option<PlaneSize> {
        match self {
            Self::Convert(conversion) => conversion.packed_size(),
            Self::Copy(copy) => match copy.input_sizes() {
                [only] => Some(*only),
                _ => None,
            },
        }
    }

    fn deliver(&self, planes: &Planes<'_>, delivery: &Delivery, output: &mut [u8]) {
        match self {
            Self::Convert(conversion) => delivery.convert(conversion, planes, output),
            Self::Copy(_) => delivery.copy(planes, output),
        }
    }

    fn make(&self, planes: &Planes<'_>, band: FrameBand) {
        match (self, band) {
            (Self::Convert(conversion), FrameBand::Convert(mut band)) => {
                conversion.convert_band(planes, &mut band);
            }
            (Self::Copy(copy), FrameBand::Copy(band)) => copy.copy_band(planes, band),
            _ => unreachable!("a band is of the method that made it"),
        }
    }
}

/// Makes frames of planes, in memory that is used again.
#[derive(Debug)]
pub struct PlaneConverter {
    shared: Arc<Shared>,
    sizes: Vec<PlaneSize>,
    pool: Pool,
    group: WorkGroup,
    bands: usize,
}

#[derive(Debug)]
struct Shared {
    method: PlaneMethod,
    delivery: Option<Delivery>,
    converting: Stopwatch,
}

impl Shared {
    fn output_bytes(&self) -> usize {
        self.delivery.as_ref().map_or_else(|| self.method.output_bytes(), Delivery::output_bytes)
    }

    /// The work on a frame, in so many parts; in one if it is delivered in another form.
    fn parts(self: &Arc<Self>, planes: Planes<'static>, bands: usize, frame: &'static mut [u8]) -> Vec<Part> {
        if self.delivery.is_some() {
            return vec![self.part(move |shared| {
                let delivery = shared.delivery.as_ref().expect("it is there, as seen above");
                shared.method.deliver(&planes, delivery, frame);
            })];
        }
        let bands = self.method.bands(bands, frame).into_iter();
        bands.map(|band| self.part(move |shared| shared.method.make(&planes, band))).collect()
    }

    fn part(self: &Arc<Self>, make: impl FnOnce(&Self) + Send + 'static) -> Part {
        let shared = Arc::clone(self);
        Box::new(move || {
            let start = Instant::now();
            make(&shared);
            shared.converting.add(start.elapsed());
        })
    }
}

impl PlaneConverter {
    /// Creates a converter that keeps at most `keep_slots` unused frames, and that at most `most_workers` of the crew serve at the same
    /// time. With 0, each frame is made by whoever waits for it; also on a process that may use a single CPU only.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`]: the method doesn't make the picture that is delivered.
    pub fn new(
        method: PlaneMethod,
        delivery: Option<Delivery>,
        keep_slots: usize,
        most_workers: usize,
    ) -> Result<Self, Error> {
        if let Some(delivery) = &delivery
            && method.packed_size() != Some(delivery.picture())
        {
            return Err(Error::Unsuitable("the planes do not become the picture that is delivered".into()));
        }
        let sizes = method.input_sizes();
        let shared = Arc::new(Shared { method, delivery, converting: Stopwatch::default() });
        let pool = Pool::of_slots(shared.output_bytes(), keep_slots);
        let group = WorkGroup::new(most_workers);
        let bands = (shared.output_bytes() / BAND_BYTES).clamp(1, group.most_workers() + 1);
        Ok(Self { shared, sizes, pool, group, bands })
    }

    /// Begins to make a frame of planes, each with the bytes from a row to the one below it (negative if rows lie bottom-up; then the
    /// memory begins with the last row): in `output`, or else in memory of the converter's.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`]: the planes or the output do not have the sizes that the method needs. [`Error::Io`]: `ENOMEM`.
    pub fn begin(
        &self,
        planes: Vec<(Box<dyn Region>, isize)>,
        output: Option<Buffer>,
    ) -> Result<PlaneJob, Error> {
        let given = planes.iter().map(|(region, stride)| {
            // SAFETY: by the contract of a region, which the job owns until no thread reads the slice: see `InFlight`.
            let bytes: &'static [u8] = unsafe { slice::from_raw_parts(region.as_ptr(), region.len()) };
            (bytes, *stride)
        });
        let sources =
            Planes::new(&self.sizes, given).map_err(|error| Error::Unsuitable(error.to_string().into()))?;
        let (wanted, got) = (self.shared.output_bytes(), output.as_ref().map(Buffer::len));
        if let Some(got) = got
            && got != wanted
        {
            return Err(Error::Unsuitable(format!("the output must have {wanted} bytes, not {got}").into()));
        }
        let mut output = output.map_or_else(|| self.pool.take(wanted), Ok)?;
        // SAFETY: the buffer's memory stays where it is when the buffer moves. The job owns it, and uses it for nothing else until no
        // thread writes to the slice: see `InFlight`.
        let frame: &'static mut [u8] =
            unsafe { slice::from_raw_parts_mut(output.as_mut_ptr(), output.len()) };
        let work = self.group.begin(self.shared.parts(sources, self.bands, frame));
        Ok(PlaneJob(Own::new(InFlight { work, output, _planes: planes })))
    }

    /// The sum of the times that threads spent on bands.
    #[must_use]
    pub fn converting(&self) -> &Stopwatch {
        &self.shared.converting
    }
}

/// Frees the unused memory. Frames that are in use free theirs when they are dropped.
impl Drop for PlaneConverter {
    fn drop(&mut self) {
        self.pool.keep_nothing();
    }
}

/// A frame that is being made.
///
/// Its drop drops what no thread has begun, and waits for the bands that threads are at. In the child of a fork, where no such thread
/// exists, it leaks its memory.
pub struct PlaneJob(Own<InFlight>);

/// The work borrows from the other two. It is dropped first, and has no part left when it is gone.
struct InFlight {
    work: Work,
    output: Buffer,
    _planes: Vec<(Box<dyn Region>, isize)>,
}

impl fmt::Debug for PlaneJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaneJob").field("has_ended", &self.has_ended()).finish_non_exhaustive()
    }
}

impl PlaneJob {
    /// Makes the bands that no other thread has begun, waits for the others, and returns the frame. The planes are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]: the parent process began it. [`Error::Io`] with `EIO`: a conversion panicked.
    pub fn wait(self) -> Result<Buffer, Error> {
        let InFlight { work, output, _planes } = self.0.into_inner().ok_or(Error::Forked)?;
        work.wait()?;
        Ok(output)
    }

    /// Whether a wait would neither wait nor work.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.get().is_none_or(|in_flight| in_flight.work.has_ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copying(keep_slots: usize, most_workers: usize) -> PlaneConverter {
        let sizes = vec![PlaneSize { rows: 3, row_bytes: 2 }, PlaneSize { rows: 1, row_bytes: 4 }];
        PlaneConverter::new(PlaneMethod::Copy(PlaneCopy::new(sizes).unwrap()), None, keep_slots, most_workers)
            .unwrap()
    }

    fn planes(first: Vec<u8>) -> Vec<(Box<dyn Region>, isize)> {
        vec![(Box::new(first), -3), (Box::new(vec![7, 8, 9, 10]), 4)]
    }

    const MADE: [u8; 10] = [5, 6, 3, 4, 1, 2, 7, 8, 9, 10];

    #[test]
    fn frames_are_made_in_memory_that_is_used_again() {
        for most_workers in [0, 2] {
            let converter = copying(1, most_workers);
            let mut places = Vec::new();
            for _ in 0..3 {
                let job = converter.begin(planes(vec![1, 2, 0, 3, 4, 0, 5, 6]), None).unwrap();
                let frame = job.wait().unwrap();
                assert_eq!(*frame, MADE);
                places.push(frame.start());
            }
            assert_eq!(places, [places[0]; 3]);
        }
    }

    #[test]
    fn dropped_job_releases_its_planes() {
        let converter = copying(0, 2);
        let shared: Arc<[u8]> = Arc::from([1, 2, 0, 3, 4, 0, 5, 6]);
        for _ in 0..20 {
            let mut given = planes(Vec::new());
            given[0].0 = Box::new(Arc::clone(&shared));
            drop(converter.begin(given, None).unwrap());
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    }

    #[test]
    fn planes_and_outputs_that_do_not_fit_are_unsuitable() {
        let converter = copying(0, 0);
        let too_short = converter.begin(planes(vec![0; 7]), None).unwrap_err();
        assert!(matches!(too_short, Error::Unsuitable(_)), "{too_short:?}");
        let frame = Pool::new(0).take(9).unwrap();
        let too_small = converter.begin(planes(vec![0; 8]), Some(frame)).unwrap_err();
        assert!(matches!(too_small, Error::Unsuitable(_)), "{too_small:?}");
    }
}
