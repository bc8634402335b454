"""The layouts of raw frames: the shapes of their planes, and their bytes.

The shapes of the common formats are known here. For all others FFmpeg is asked for the number of bytes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from math import prod

from penstock._common.messages import PROBABLY_A_BUG
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.capabilities import find_ffmpeg
from penstock._ffmpeg.program.messages import listing_arguments
from penstock._formats.pixel_formats import PIXEL_FORMATS, in_order, is_float, planes_of, sample_bytes_of
from penstock._platform.descriptors import zeros
from penstock.errors import EncoderError

# Chosen: more than any format has, with its padding.
_MOST_BYTES = 64


class DefaultFormat(str):
    """A pixel format that nobody asked for."""


#: What a `Decoder` gives if it is not told.
DEFAULT_FORMAT = DefaultFormat("rgb24")
#: The pixel format of the file.
SOURCE = "source"


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """The layout of raw frames of `width` by `height` pixels in `pixel_format`.

    Attributes:
        planes: shape of each plane in memory, rows first: ``((height, width, channels),)`` if packed.
        sample_bytes: bytes of one sample: 1 (uint8), 2 (uint16 or float16) or 4 (uint32 or float32).
        frame_bytes: bytes of a whole frame.
    """

    pixel_format: str
    width: int
    height: int
    planes: tuple[tuple[int, ...], ...]
    sample_bytes: int
    frame_bytes: int

    @property
    def dtype(self) -> str:
        """NumPy's name of a sample's type: ``"<u2"``, or ``">u2"`` where the format's name ends in "be"."""
        is_plain = self.sample_bytes == 1  # also the bytes of a format of which no more is known
        kind = "f" if not is_plain and is_float(self.pixel_format) else "u"
        return f"{'>' if not is_plain and self.pixel_format.endswith('be') else '<'}{kind}{self.sample_bytes}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame in memory: that of its plane, or one dimension if there are several planes."""
        return self.planes[0] if len(self.planes) == 1 else (self.frame_bytes // self.sample_bytes,)

    def __str__(self) -> str:
        planes = " + ".join(str(plane) for plane in self.planes)
        kind = "float" if self.dtype[1] == "f" else "uint"
        return f"{planes} of {kind}{8 * self.sample_bytes}, {self.frame_bytes} bytes"


def frame_layout(
    pixel_format: str, width: int, height: int, ffmpeg: str | os.PathLike[str] | None = None
) -> FrameLayout:
    """The layout of raw frames of `width` by `height` pixels in `pixel_format`.

    A format outside `PIXEL_FORMATS` has one flat plane, with as many bytes as FFmpeg reads for a frame. ``"rgb48"``
    and the like, without ``le`` or ``be``, have the byte order of this machine, and the layout names it.

    Args:
        ffmpeg: the program to ask about other formats; None finds one (see `penstock.video.find_ffmpeg`).

    Raises:
        ValueError: FFmpeg has no raw format of that name.
        EncoderError: there is no FFmpeg to be asked, or it does not answer.
    """
    name = raw_format_name(pixel_format, ffmpeg)
    if name not in PIXEL_FORMATS:
        frame_bytes = _bytes_by_ffmpeg(find_ffmpeg(ffmpeg), name, width, height)
        return FrameLayout(name, width, height, ((frame_bytes,),), 1, frame_bytes)
    planes = planes_of(name, width, height)
    sample_bytes = sample_bytes_of(name)
    frame_bytes = sample_bytes * sum(prod(plane) for plane in planes)
    return FrameLayout(name, width, height, planes, sample_bytes, frame_bytes)


def raw_format_name(pixel_format: str, ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The name of the raw format `pixel_format` with its byte order. Arguments and errors are as for `frame_layout`."""
    if (name := in_order(pixel_format, PIXEL_FORMATS)) is not None:
        return name
    known = capabilities.pixel_formats(find_ffmpeg(ffmpeg))
    if (name := in_order(pixel_format, known)) is None:
        near = capabilities.did_you_mean(pixel_format, known or PIXEL_FORMATS)
        raise ValueError(f"unknown raw pixel format {pixel_format!r}.{near} `ffmpeg -pix_fmts` lists them")
    if known[name]:
        raise ValueError(
            f"{name} frames are in GPU memory and can't be written. Use another pixel format, such as nv12"
        )
    return name


def _bytes_by_ffmpeg(program: str, pixel_format: str, width: int, height: int) -> int:
    """The size of the packets that FFmpeg's raw video demuxer makes. They are not decoded.

    This covers formats that FFmpeg reads but cannot write (bayer_bggr8), and padded and bit-packed ones.
    """
    listing = capabilities.stdout_of(
        program,
        *("-f", "rawvideo", "-pixel_format", pixel_format, "-video_size", f"{width}x{height}"),
        *("-i", zeros(width * height * _MOST_BYTES), "-frames:v", "1", "-c:v", "copy", *listing_arguments()),
    )
    packet = re.search(r"^0,(?: *\d+,){3} *(\d+), *0x", listing, re.MULTILINE)
    if packet is None:
        raise EncoderError(
            f"{program} didn't tell the bytes of a {pixel_format} frame of {width}x{height} pixels. {PROBABLY_A_BUG}"
        )
    return int(packet[1])
