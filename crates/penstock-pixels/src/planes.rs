//! The planes of an input frame, wherever their rows lie.

use std::fmt;
use std::ops::Range;

/// The most planes that a pixel format has: of YUV or RGB, and alpha.
const MOST_PLANES: usize = 4;

/// The planes of an input frame. Their rows may be padded, and may lie from the last one to the first.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a>([PlaneMemory<'a>; MOST_PLANES]);

/// How many rows a plane has, and how many bytes of each row hold samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneSize {
    /// Rows.
    pub rows: usize,
    /// Bytes of a row, without padding.
    pub row_bytes: usize,
}

impl PlaneSize {
    /// Size of the rows one after another; none if no memory holds them.
    pub(super) fn bytes(self) -> Option<usize> {
        self.rows.checked_mul(self.row_bytes).filter(|bytes| isize::try_from(*bytes).is_ok())
    }
}

#[derive(Clone, Copy, Debug)]
struct PlaneMemory<'a> {
    bytes: &'a [u8],
    size: PlaneSize,
    /// From a row to the next one in memory.
    stride: usize,
    is_bottom_up: bool,
}

/// The planes that were given are not those of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongPlanes(String);

impl fmt::Display for WrongPlanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongPlanes {}

impl<'a> Planes<'a> {
    /// Planes of these sizes: each one's memory, and the bytes from a row to the row below it. If they are negative, the
    /// rows lie bottom-up, and the memory begins with the last row. The padding of the row at the memory's end may be missing.
    ///
    /// # Errors
    ///
    /// Their number is another one, a stride is shorter than a row, or the memory does not hold the rows.
    pub fn new(
        sizes: &[PlaneSize],
        given: impl ExactSizeIterator<Item = (&'a [u8], isize)>,
    ) -> Result<Self, WrongPlanes> {
        if given.len() != sizes.len() || sizes.len() > MOST_PLANES {
            return Err(WrongPlanes(format!("there must be {} planes, not {}", sizes.len(), given.len())));
        }
        let mut planes = [PlaneMemory::NONE; MOST_PLANES];
        for (index, ((bytes, stride), size)) in given.zip(sizes).enumerate() {
            planes[index] = PlaneMemory::new(bytes, stride, *size)
                .map_err(|wrong| WrongPlanes(format!("plane {index} {wrong}")))?;
        }
        Ok(Self(planes))
    }

    /// Planes one after another, without padding.
    pub(super) fn contiguous(sizes: impl Iterator<Item = PlaneSize>, mut bytes: &'a [u8]) -> Self {
        let mut planes = [PlaneMemory::NONE; MOST_PLANES];
        for (plane, size) in planes.iter_mut().zip(sizes) {
            let (own, others) = bytes.split_at(size.rows * size.row_bytes);
            *plane = PlaneMemory { bytes: own, size, stride: size.row_bytes, is_bottom_up: false };
            bytes = others;
        }
        Self(planes)
    }

    /// The samples of a row. Row 0 is the first in the order of the strides.
    #[inline]
    pub(super) fn row(&self, plane: usize, row: usize) -> &'a [u8] {
        let plane = &self.0[plane];
        let row = if plane.is_bottom_up { plane.size.rows - 1 - row } else { row };
        &plane.bytes[row * plane.stride..][..plane.size.row_bytes]
    }

    pub(super) fn stride(&self, plane: usize) -> usize {
        self.0[plane].stride
    }

    pub(super) fn is_bottom_up(&self, plane: usize) -> bool {
        self.0[plane].is_bottom_up
    }

    /// The memory of these rows, in its order there; none if it ends without the padding of the last.
    pub(super) fn memory(&self, plane: usize, rows: Range<usize>) -> Option<&'a [u8]> {
        let plane = &self.0[plane];
        let rows =
            if plane.is_bottom_up { plane.size.rows - rows.end..plane.size.rows - rows.start } else { rows };
        plane.bytes.get(rows.start * plane.stride..rows.end * plane.stride)
    }
}

impl<'a> PlaneMemory<'a> {
    const NONE: Self =
        Self { bytes: &[], size: PlaneSize { rows: 0, row_bytes: 0 }, stride: 0, is_bottom_up: false };

    fn new(bytes: &'a [u8], stride: isize, size: PlaneSize) -> Result<Self, String> {
        let is_bottom_up = stride < 0;
        let stride = stride.unsigned_abs();
        if size.rows > 1 && stride < size.row_bytes {
            return Err(format!("has a stride of {stride} bytes, but rows of {}", size.row_bytes));
        }
        let needed = match size.rows {
            0 => Some(0),
            rows => (rows - 1).checked_mul(stride).and_then(|bytes| bytes.checked_add(size.row_bytes)),
        };
        if needed.is_none_or(|needed| bytes.len() < needed) {
            let PlaneSize { rows, row_bytes } = size;
            let got = bytes.len();
            return Err(format!(
                "has {got} bytes, which do not hold {rows} rows of {row_bytes} bytes with a stride of {stride}"
            ));
        }
        Ok(Self { bytes, size, stride, is_bottom_up })
    }
}
