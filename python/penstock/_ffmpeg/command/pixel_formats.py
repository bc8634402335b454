"""Pixel formats: what their samples are, and the layouts of raw frames, with the shapes of planes and their bytes.

The names are those of ``ffmpeg -pix_fmts``. The planes lie one after another without padding, as FFmpeg's
``rawvideo`` wants them (``av_image_get_buffer_size`` with an alignment of 1). The shapes of the common formats are
written here. For all others FFmpeg is asked for the number of bytes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container
from dataclasses import dataclass
from math import prod

from penstock._common.messages import PROBABLY_A_BUG
from penstock._ffmpeg.program import capabilities
from penstock._ffmpeg.program.capabilities import find_ffmpeg
from penstock.errors import EncoderError

# Channels a pixel, and bytes a channel.
_PACKED = {
    "gray": (1, 1),
    **dict.fromkeys(("gray10le", "gray12le", "gray16le"), (1, 2)),
    "grayf32le": (1, 4),
    "ya8": (2, 1),
    "ya16le": (2, 2),
    **dict.fromkeys(("rgb24", "bgr24"), (3, 1)),
    **dict.fromkeys(("rgb48le", "bgr48le"), (3, 2)),
    **dict.fromkeys(("rgba", "bgra", "argb", "abgr", "rgb0", "bgr0", "0rgb", "0bgr"), (4, 1)),
    **dict.fromkeys(("rgba64le", "bgra64le"), (4, 2)),
}

# Planar formats: the bytes of a sample, and whether both chroma samples share a plane.
_PLANAR = {
    **dict.fromkeys(("yuv420p", "yuv422p", "yuv444p"), (1, False)),
    "nv12": (1, True),
    **dict.fromkeys(("yuv420p10le", "yuv422p10le", "yuv444p10le"), (2, False)),
    **dict.fromkeys(("yuv420p12le", "yuv422p12le", "yuv444p12le"), (2, False)),
    "p010le": (2, True),
    # Green, blue, red.
    "gbrp": (1, False),
    **dict.fromkeys(("gbrp10le", "gbrp12le", "gbrp16le"), (2, False)),
    "gbrpf32le": (4, False),
}

PIXEL_FORMATS = (*_PACKED, *_PLANAR)
"""Formats whose planes are known here. FFmpeg knows more."""


class DefaultFormat(str):
    """A pixel format that nobody asked for."""


#: What a `Decoder` gives if it is not told.
DEFAULT_FORMAT = DefaultFormat("rgb24")
#: The pixel format of the file.
SOURCE = "source"

# Columns and rows of pixels that share one chroma sample. An incomplete group at the edge has its own sample.
_SUBSAMPLED = (
    (r"yuv[aj]?420p|nv12|nv21|p01[026]", (2, 2)),
    (r"yuv[aj]?422p|nv16|nv20|p21[026]|yuyv422|uyvy422|yvyu422|y21[026]", (2, 1)),
    (r"yuv[aj]?440p", (1, 2)),
    (r"yuv[aj]?411p|uyyvyy411", (4, 1)),
    (r"yuv410p", (4, 4)),
)

# Bits a sample, by the names of formats, which saves a run of FFmpeg before each encode; the first that matches.
_DEPTHS: tuple[tuple[str, int | None], ...] = (
    (r"mono[bw]|(?:rgb|bgr)4(?:_byte)?", 1),
    (r"(?:rgb|bgr)8", 2),
    (r"(?:rgb|bgr)([45])\d\d(?:[lb]e)?", None),
    (r"\w+f(16|32)(?:[lb]e)?", None),
    (r"(?:rgba|bgra|ayuv)64(?:[lb]e)?|(?:rgb|bgr)48(?:[lb]e)?|xv48(?:[lb]e)?", 16),
    (r"(?:rgb96|rgba128)(?:[lb]e)?", 32),
    (r"(?:xv36|xyz12)(?:[lb]e)?", 12),
    (r"(?:v30x|xv30|x2rgb10|x2bgr10|nv20)(?:[lb]e)?", 10),
    (r"[py][0234]?[0-4](1[0246])(?:[lb]e)?", None),
    (r"(?:yuva?4\d\dp|gbra?p|gray|ya|bayer_[rgb]{4})(\d\d?)(?:msb)?(?:[lb]e)?", None),
    (r"yuv[aj]?4\d\dp|gbra?p|gray|y400a|pal8|nv(?:12|21|16|24|42)|(?:rgb|bgr)24|[rgba0]{4}", 8),
    (r"yuyv422|uyvy422|yvyu422|uyyvyy411|ayuv|vuy[ax]|vyu444|uyva", 8),
)

_NATIVE_ENDIAN = "le" if sys.byteorder == "little" else "be"
# FFmpeg's other names for the formats of 32-bit integers (av_get_pix_fmt).
_INTEGERS = {"rgb32": ("bgra", "argb"), "bgr32": ("rgba", "abgr")}


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """A pixel format: what its samples are.

    Attributes:
        kind: "rgb", "yuv", "gray" or "xyz".
        depth: bits of a sample.
        subsampling: columns and rows of pixels that share one chroma sample.
    """

    name: str
    kind: str
    has_alpha: bool
    depth: int
    subsampling: tuple[int, int]


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
    planes = _planes(name, width, height)
    sample_bytes = _PACKED[name][1] if name in _PACKED else _PLANAR[name][0]
    frame_bytes = sample_bytes * sum(prod(plane) for plane in planes)
    return FrameLayout(name, width, height, planes, sample_bytes, frame_bytes)


def raw_format_name(pixel_format: str, ffmpeg: str | os.PathLike[str] | None = None) -> str:
    """The name of the raw format `pixel_format` with its byte order. Arguments and errors are as for `frame_layout`."""
    if (name := _native(pixel_format, PIXEL_FORMATS)) is not None:
        return name
    known = capabilities.pixel_formats(find_ffmpeg(ffmpeg))
    if (name := _native(pixel_format, known)) is None:
        near = capabilities.did_you_mean(pixel_format, known or PIXEL_FORMATS)
        raise ValueError(f"unknown raw pixel format {pixel_format!r}.{near} `ffmpeg -pix_fmts` lists them")
    if known[name]:
        raise ValueError(
            f"{name} frames are in GPU memory and can't be written. Use another pixel format, such as nv12"
        )
    return name


def is_packed(pixel_format: str) -> bool:
    """Whether it is one of `PIXEL_FORMATS` that has one plane, whose shape tells the size of a picture."""
    return pixel_format in _PACKED


def canonical(pixel_format: str) -> str:
    """The name of `pixel_format` with its byte order, if it is one of `PIXEL_FORMATS`; else the name itself."""
    return _native(pixel_format, PIXEL_FORMATS) or pixel_format


def subsampling(pixel_format: str) -> tuple[int, int]:
    """Columns and rows of pixels that share one chroma sample; (1, 1) for other and unknown formats."""
    # What follows the name tells the depth and the byte order: yuv420p10le.
    found = (parts for name, parts in _SUBSAMPLED if re.fullmatch(rf"(?:{name})\d*(?:[lb]e)?", pixel_format))
    return next(found, (1, 1))


def divides_evenly(pixel_format: str, width: int, height: int) -> bool:
    """Whether the size is a multiple of the chroma subsampling of `pixel_format`; True for unknown formats."""
    columns, rows = subsampling(pixel_format)
    return width % columns == 0 and height % rows == 0


def is_rgb(pixel_format: str) -> bool:
    """Whether the samples are red, green and blue, or indices of a palette of such colors."""
    return re.search("rgb|bgr|gbr|pal8|bayer", pixel_format) is not None


def is_gray(pixel_format: str) -> bool:
    """Whether there is only brightness, with or without alpha."""
    return re.match(r"gray|ya\d|y400a|mono", pixel_format) is not None


def is_float(pixel_format: str) -> bool:
    """Whether the samples are floating-point numbers."""
    return re.search(r"f(16|32)([lb]e)?$", pixel_format) is not None


def in_native_order(pixel_format: str) -> str:
    """The name of the format whose samples are the same, in the byte order of this machine."""
    return re.sub(r"(?<=\d)[lb]e$", _NATIVE_ENDIAN, pixel_format)


def has_alpha(pixel_format: str) -> bool:
    """Whether there is alpha, in the samples or in the colors of a palette."""
    return (
        re.match(r"yuva|gbrap|rgba|bgra|argb|abgr|ya[f\d]|y400a|ayuv|vuya|uyva|pal8", pixel_format)
        is not None
    )


def pixel_format_of(name: str) -> PixelFormat | None:
    """The format `name`; None for device memory and unknown names."""
    for pattern, bits in _DEPTHS:
        if found := re.fullmatch(pattern, name):
            return PixelFormat(name, _kind(name), has_alpha(name), bits or int(found[1]), subsampling(name))
    return None


def _kind(name: str) -> str:
    if is_rgb(name):
        return "rgb"
    if name.startswith("xyz"):
        return "xyz"
    return "gray" if is_gray(name) or name.startswith("yaf") else "yuv"


def _native(pixel_format: str, known: Container[str]) -> str | None:
    """The name of `pixel_format` in `known`: itself, or with this machine's byte order; None if there is none."""
    little, big = _INTEGERS.get(pixel_format, (pixel_format, pixel_format))
    name = little if _NATIVE_ENDIAN == "le" else big
    return next((name for name in (name, name + _NATIVE_ENDIAN) if name in known), None)


def _planes(pixel_format: str, width: int, height: int) -> tuple[tuple[int, ...], ...]:
    if pixel_format in _PACKED:
        channels = _PACKED[pixel_format][0]
        return ((height, width) if channels == 1 else (height, width, channels),)
    columns, rows = subsampling(pixel_format)
    chroma = (-(-height // rows), -(-width // columns))
    if _PLANAR[pixel_format][1]:
        return ((height, width), (*chroma, 2))
    return ((height, width), chroma, chroma)


def _bytes_by_ffmpeg(program: str, pixel_format: str, width: int, height: int) -> int:
    """The size of the packets that FFmpeg's raw video demuxer makes. They are not decoded.

    This covers formats that FFmpeg reads but cannot write (bayer_bggr8), and padded and bit-packed ones.
    """
    listing = capabilities.stdout_of(
        program,
        *("-f", "rawvideo", "-pixel_format", pixel_format, "-video_size", f"{width}x{height}"),
        *("-i", "/dev/zero", "-frames:v", "1", "-c:v", "copy", "-f", "framecrc", "pipe:1"),
    )
    # stream, dts, pts, duration, bytes, checksum
    packet = re.search(r"^0,(?: *\d+,){3} *(\d+), *0x", listing, re.MULTILINE)
    if packet is None:
        raise EncoderError(
            f"{program} didn't tell the bytes of a {pixel_format} frame of {width}x{height} pixels. {PROBABLY_A_BUG}"
        )
    return int(packet[1])
