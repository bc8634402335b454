"""What a raw frame is made of: the shapes of its planes, and its bytes.

The names are those of ``ffmpeg -pix_fmts``. The planes lie one after another without padding, as FFmpeg's
``rawvideo`` wants them (``av_image_get_buffer_size`` with an alignment of 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

# Channels a pixel, and bytes a channel.
_PACKED = {
    "gray": (1, 1),
    "gray16le": (1, 2),
    "rgb24": (3, 1),
    "bgr24": (3, 1),
    "rgb48le": (3, 2),
    "rgba": (4, 1),
    "bgra": (4, 1),
    "argb": (4, 1),
    "abgr": (4, 1),
    "rgb0": (4, 1),
    "bgr0": (4, 1),
    "rgba64le": (4, 2),
}

# Columns and rows of pixels that share one chroma sample; a rest at the edge has a sample of its own.
_SUBSAMPLED = {
    "yuv420p": (2, 2),
    "nv12": (2, 2),
    "yuv422p": (2, 1),
    "yuv444p": (1, 1),
}

PIXEL_FORMATS = (*_PACKED, *_SUBSAMPLED)


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """The layout of raw frames of `width` by `height` pixels in `pixel_format`.

    Attributes:
        planes: shape of each plane in memory, rows first: ``((height, width, channels),)`` if packed.
        sample_bytes: bytes of one sample, 1 (uint8) or 2 (uint16, little-endian).
        frame_bytes: bytes of a whole frame.
    """

    pixel_format: str
    width: int
    height: int
    planes: tuple[tuple[int, ...], ...]
    sample_bytes: int
    frame_bytes: int

    def __str__(self) -> str:
        planes = " + ".join(str(plane) for plane in self.planes)
        return f"{planes} of uint{8 * self.sample_bytes}, {self.frame_bytes} bytes"


def frame_layout(pixel_format: str, width: int, height: int) -> FrameLayout:
    """The layout of raw frames of `width` by `height` pixels in `pixel_format`.

    Raises:
        ValueError: `pixel_format` is none of `PIXEL_FORMATS`.
    """
    if pixel_format not in PIXEL_FORMATS:
        raise ValueError(f"unknown raw pixel format {pixel_format!r}; known are {', '.join(PIXEL_FORMATS)}")
    planes = _planes(pixel_format, width, height)
    sample_bytes = _PACKED[pixel_format][1] if pixel_format in _PACKED else 1
    frame_bytes = sample_bytes * sum(prod(plane) for plane in planes)
    return FrameLayout(pixel_format, width, height, planes, sample_bytes, frame_bytes)


def divides_evenly(pixel_format: str, width: int, height: int) -> bool:
    """Whether every chroma sample of `pixel_format` has all of its pixels; True for formats unknown here."""
    columns, rows = _SUBSAMPLED.get(pixel_format, (1, 1))
    return width % columns == 0 and height % rows == 0


def _planes(pixel_format: str, width: int, height: int) -> tuple[tuple[int, ...], ...]:
    if pixel_format in _PACKED:
        channels = _PACKED[pixel_format][0]
        return ((height, width) if channels == 1 else (height, width, channels),)
    columns, rows = _SUBSAMPLED[pixel_format]
    chroma = (-(-height // rows), -(-width // columns))
    if pixel_format == "nv12":
        return ((height, width), (*chroma, 2))
    return ((height, width), chroma, chroma)
