"""Pixel formats: what their samples are, and the shapes of planes in memory.

The names are those of ``ffmpeg -pix_fmts``. The planes lie one after another without padding, as FFmpeg's
``rawvideo`` wants them (``av_image_get_buffer_size`` with an alignment of 1). libav's descriptors tell the same, after
the 0.1 s that importing it takes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container
from dataclasses import dataclass

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
#: The channels that OpenGL reads, by the pixel formats that they are.
OPENGL = {"gray": 1, "rgb24": 3, "rgb0": 4, "rgba": 4}
# Pixel formats for 1, 3 and 4 channels, by the bytes of a sample. None stands for floats: FFmpeg has no packed RGB of
# floats, and the planes are green, blue, red and alpha.
_BY_CHANNELS = {
    1: {1: "gray", 3: "rgb24", 4: "rgba"},
    2: {1: "gray16le", 3: "rgb48le", 4: "rgba64le"},
    None: {1: "grayf32le", 3: "gbrpf32le", 4: "gbrapf32le"},
}
#: YUV with a chroma sample for each pixel instead. From these formats our conversion to RGB and FFmpeg's make the same
#: pixels. (FFmpeg's scaler makes others of nv12.)
FULL_CHROMA = {
    f"yuv{chroma}p{depth}": f"yuv444p{depth}" for chroma in (420, 422, 444) for depth in ("", "10le")
}
#: What users probably mean by a name that isn't FFmpeg's.
MEANT = {"acc": "aac", "rgb": "rgb24", "bgr": "bgr24"}


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


#: What every player shows, and the same with alpha.
PLAYABLE = PixelFormat("yuv420p", "yuv", False, 8, (2, 2))
PLAYABLE_WITH_ALPHA = PixelFormat("yuva420p", "yuv", True, 8, (2, 2))
#: The format of pictures whose samples are indices of 256 colors.
PALETTE = "pal8"


def of_channels(channels: int, sample_bytes: int | None) -> str | None:
    """The format of arrays with that many channels and bytes a sample, which is None for floats; None if unknown."""
    return _BY_CHANNELS[sample_bytes].get(channels)


def with_full_chroma(pixel_format: str, bits: int) -> tuple[str, str]:
    """Formats that may have the same samples and a chroma sample for each pixel, the likelier one first."""
    same = re.sub(r"4[1-4]\d(?=p)", "444", pixel_format)
    return same, f"yuv444p{bits}le" if bits > 8 else "yuv444p"


def with_alpha_beside(pixel_format: str) -> str:
    """The format of frames beside which there is alpha: of VP8 and VP9, libvpx takes only this one."""
    return "yuva420p" if pixel_format == "yuv420p" else pixel_format


def with_unused_alpha(pixel_format: str) -> str | None:
    """The format with the same bytes, of which those of alpha are not looked at; None if there is none."""
    return f"{pixel_format[:3]}0" if pixel_format in ("rgba", "bgra") else None


def blue_first(pixel_format: str) -> str:
    """The format with the same samples of RGB in the other order."""
    return pixel_format.replace("rgb", "bgr")


def is_reordered(pixel_format: str) -> bool:
    """Whether samples of RGB are packed in another order than red, green, blue, alpha."""
    return re.match("bgr|[a0](?:rgb|bgr)", pixel_format) is not None


def has_palette(pixel_format: str | None) -> bool:
    """Whether samples are indices of 256 colors."""
    return pixel_format == PALETTE


def has_v_first(pixel_format: str) -> bool:
    """Whether the second chroma sample comes first in a plane of both."""
    return pixel_format in ("nv21", "nv42")


def without_range(pixel_format: str) -> str:
    """The name of a pixel format without its range: yuv420p for yuvj420p."""
    return pixel_format.replace("yuvj", "yuv")


def as_jpeg(pixel_format: str) -> str:
    """The name of `pixel_format` for encoders of JPEG, which call yuv420p ``yuvj420p``."""
    is_yuv = pixel_format in ("yuv420p", "yuv422p", "yuv444p")
    return pixel_format.replace("yuv", "yuvj") if is_yuv else pixel_format


def is_packed(pixel_format: str) -> bool:
    """Whether it is one of `PIXEL_FORMATS` that has one plane, whose shape tells the size of a picture."""
    return pixel_format in _PACKED


def canonical(pixel_format: str) -> str:
    """The name of `pixel_format` with its byte order, if it is one of `PIXEL_FORMATS`; else the name itself."""
    return in_order(pixel_format, PIXEL_FORMATS) or pixel_format


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
    return re.match(r"gray|ya[f\d]|y400a|mono", pixel_format) is not None


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
    return "gray" if is_gray(name) else "yuv"


def in_order(pixel_format: str, known: Container[str]) -> str | None:
    """The name of `pixel_format` in `known`: itself, or with this machine's byte order; None if there is none."""
    little, big = _INTEGERS.get(pixel_format, (pixel_format, pixel_format))
    name = little if _NATIVE_ENDIAN == "le" else big
    return next((name for name in (name, name + _NATIVE_ENDIAN) if name in known), None)


def sample_bytes_of(pixel_format: str) -> int:
    """The bytes of a sample of one of `PIXEL_FORMATS`."""
    return _PACKED[pixel_format][1] if pixel_format in _PACKED else _PLANAR[pixel_format][0]


def planes_of(pixel_format: str, width: int, height: int) -> tuple[tuple[int, ...], ...]:
    if pixel_format in _PACKED:
        channels = _PACKED[pixel_format][0]
        return ((height, width) if channels == 1 else (height, width, channels),)
    columns, rows = subsampling(pixel_format)
    chroma = (-(-height // rows), -(-width // columns))
    if _PLANAR[pixel_format][1]:
        return ((height, width), (*chroma, 2))
    return ((height, width), chroma, chroma)
