//! Pixel formats: which planes a frame has.

/// How the bytes of a frame lie, by FFmpeg's names. Planes follow each other without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
#[non_exhaustive]
pub enum PixelFormat {
    Gray,
    Rgb24,
    Bgr24,
    Rgba,
    Bgra,
    Rgb0,
    Bgr0,
    /// 16 bits a channel, little-endian.
    Rgb48,
    /// 16 bits a channel, little-endian.
    Rgba64,
    Yuv420p,
    Yuv422p,
    Yuv444p,
    Nv12,
    /// 10 bits in 16, little-endian.
    Yuv420p10,
    /// 10 bits in 16, little-endian.
    Yuv422p10,
    /// 10 bits in 16, little-endian.
    Yuv444p10,
}

/// A plane: how many columns and rows of pixels share a sample, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

const fn plane(columns: usize, rows: usize, bytes: usize) -> Plane {
    Plane { columns, rows, bytes }
}

impl PixelFormat {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Gray,
        Self::Rgb24,
        Self::Bgr24,
        Self::Rgba,
        Self::Bgra,
        Self::Rgb0,
        Self::Bgr0,
        Self::Rgb48,
        Self::Rgba64,
        Self::Yuv420p,
        Self::Yuv422p,
        Self::Yuv444p,
        Self::Nv12,
        Self::Yuv420p10,
        Self::Yuv422p10,
        Self::Yuv444p10,
    ];

    /// FFmpeg's name of it (`ffmpeg -pix_fmts`).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gray => "gray",
            Self::Rgb24 => "rgb24",
            Self::Bgr24 => "bgr24",
            Self::Rgba => "rgba",
            Self::Bgra => "bgra",
            Self::Rgb0 => "rgb0",
            Self::Bgr0 => "bgr0",
            Self::Rgb48 => "rgb48le",
            Self::Rgba64 => "rgba64le",
            Self::Yuv420p => "yuv420p",
            Self::Yuv422p => "yuv422p",
            Self::Yuv444p => "yuv444p",
            Self::Nv12 => "nv12",
            Self::Yuv420p10 => "yuv420p10le",
            Self::Yuv422p10 => "yuv422p10le",
            Self::Yuv444p10 => "yuv444p10le",
        }
    }

    /// The format of that name; none if it is not known here.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    pub(super) fn planes(self) -> &'static [Plane] {
        const fn planar(columns: usize, rows: usize, bytes: usize) -> [Plane; 3] {
            let chroma = plane(columns, rows, bytes);
            [plane(1, 1, bytes), chroma, chroma]
        }
        match self {
            Self::Gray => &const { [plane(1, 1, 1)] },
            Self::Rgb24 | Self::Bgr24 => &const { [plane(1, 1, 3)] },
            Self::Rgba | Self::Bgra | Self::Rgb0 | Self::Bgr0 => &const { [plane(1, 1, 4)] },
            Self::Rgb48 => &const { [plane(1, 1, 6)] },
            Self::Rgba64 => &const { [plane(1, 1, 8)] },
            Self::Yuv420p => &const { planar(2, 2, 1) },
            Self::Yuv422p => &const { planar(2, 1, 1) },
            Self::Yuv444p => &const { planar(1, 1, 1) },
            Self::Nv12 => &const { [plane(1, 1, 1), plane(2, 2, 2)] },
            Self::Yuv420p10 => &const { planar(2, 2, 2) },
            Self::Yuv422p10 => &const { planar(2, 1, 2) },
            Self::Yuv444p10 => &const { planar(1, 1, 2) },
        }
    }

    /// Bits of a sample, of gray and YUV.
    pub(super) fn bits(self) -> u32 {
        if self.planes()[0].bytes == 1 { 8 } else { 10 }
    }

    /// The highest level of a channel of RGB.
    pub(super) fn channel_peak(self) -> u16 {
        if matches!(self, Self::Rgb48 | Self::Rgba64) { u16::MAX } else { 255 }
    }

    /// Whether blue comes before red.
    pub(super) fn is_blue_first(self) -> bool {
        matches!(self, Self::Bgr24 | Self::Bgra | Self::Bgr0)
    }

    /// How many columns and rows of pixels share a chroma sample.
    pub(super) fn subsampling(self) -> (usize, usize) {
        let coarsest = self.planes()[self.planes().len() - 1];
        (coarsest.columns, coarsest.rows)
    }

    pub(super) fn frame_bytes(self, width: usize, height: usize) -> Option<usize> {
        self.planes().iter().try_fold(0_usize, |sum, plane| {
            sum.checked_add(plane.row_bytes(width).checked_mul(plane.rows_of(height))?)
        })
    }
}

impl Plane {
    pub(super) fn row_bytes(&self, width: usize) -> usize {
        width.div_ceil(self.columns) * self.bytes
    }

    pub(super) fn rows_of(&self, height: usize) -> usize {
        height.div_ceil(self.rows)
    }
}
