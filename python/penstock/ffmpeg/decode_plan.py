"""From a video to the frames that a caller wants: who converts, and FFmpeg's command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import get_args

from penstock._native import _Conversion
from penstock.errors import DecoderError
from penstock.ffmpeg import capabilities, endpoints, timestamps
from penstock.ffmpeg.arguments import checked_size, option_arguments, read_arguments, seek_arguments
from penstock.ffmpeg.media import VideoInfo
from penstock.ffmpeg.pixels import (
    PIXEL_FORMATS,
    FrameLayout,
    canonical,
    divides_evenly,
    frame_layout,
    is_gray,
    is_rgb,
    subsampling,
)
from penstock.ffmpeg.plan import ColorMatrix, Convert, check_choice
from penstock.ffmpeg.probe import first_size

# Bytes of a part that FFmpeg writes, and we read and convert, while it is in a core's second cache (1 MiB and more).
_PART_BYTES = 256 << 10
# What FFmpeg's scaler takes for video that does not say (SWS_CS_DEFAULT in libswscale/swscale.h), whatever its size.
_UNTAGGED = "bt601"
_MATRICES = ("bt601", "bt709", "bt2020")
_RANGES = {"limited": "tv", "full": "pc"}
# For these FFmpeg has code that converts without its scaler, or its scaler does the same (not for nv12).
_AGREED = ("yuv420p", "yuv422p", "yuv444p")
# FFmpeg's names of full-range YUV, which differ from the others in nothing else.
_FULL_RANGE = {"yuvj420p": "yuv420p", "yuvj422p": "yuv422p", "yuvj444p": "yuv444p"}
# Formats with alpha, by FFmpeg's names of them.
_ALPHA = re.compile("yuva|ayuv|vuya|uyva|rgba|bgra|argb|abgr|gbrap|ya8|ya16|ya32|(?:rgb|bgr)32$")
# Those of FFmpeg's decoders that read alpha beside the frames. Its own decoders of these codecs leave it out.
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_CODEC_OPTIONS = ("c", "c:v", "codec", "codec:v", "vcodec")


@dataclass(frozen=True, slots=True)
class DecodeWish:
    """What a decoder was asked for: its arguments of these names, checked by `plan_decode`."""

    pixel_format: str | None
    size: tuple[int | None, int | None] | None
    start: float | None
    count: int | None
    convert: str
    color_matrix: str
    color_range: str
    filters: str | None
    conceal_errors: bool
    input_options: Mapping[str, object]
    follow_playlists: bool = False


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """How frames come about, and by whom.

    Attributes:
        layout: of the frames that the caller gets.
        delivered: FFmpeg's name of the pixel format that it delivers.
        conversion: what the native worker makes of each part of what FFmpeg delivers; None if it is the caller's.
        parts: into how many parts, one above the other, FFmpeg divides a frame.
        converted_by: "penstock", "ffmpeg", or None if the pixels stay what they are in the file.
        filters: FFmpeg's, before those that tell timestamps and divide.
        video: with the pixel format that its decoder gives.
        decoder: FFmpeg's decoder; None leaves it to FFmpeg.
    """

    layout: FrameLayout
    delivered: str
    conversion: _Conversion | None
    parts: int
    converted_by: str | None
    filters: tuple[str, ...]
    wish: DecodeWish
    video: VideoInfo
    decoder: str | None = None

    def arguments(self, source: str, container: str, start_s: float, descriptor: int) -> list[str]:
        """FFmpeg's arguments.

        Args:
            source: what it reads, as `endpoints.source` has it.
            container: of the file, by ffprobe's names.
            start_s: the time of the file's first timestamp.
            descriptor: where it tells timestamps.
        """
        wish = self.wish
        reading, trim = _reading(wish, self.video, self.decoder, source, container, start_s)
        divide = [f"untile=1x{self.parts}"] if self.parts > 1 else []
        told = timestamps.filters(descriptor, self.video.time_base)
        return [
            *reading,
            *("-filter:v", ",".join([*trim, *self.filters, *told, *divide])),
            # No frame is dropped and none repeated, whatever their times.
            *("-fps_mode", "passthrough"),
            *(() if wish.count is None else ("-frames:v", str(wish.count * self.parts))),
            # Packets go straight into the pipe, so that of an FFmpeg that gives up all frames arrive that it has made.
            *("-avioflags", "direct"),
            *("-c:v", "rawvideo", "-pix_fmt", self.delivered, "-f", "rawvideo", "pipe:1"),
        ]


def plan_decode(
    program: str, source: str, container: str, start_s: float, video: VideoInfo, wish: DecodeWish
) -> DecodePlan:
    """What is to be done for `wish` with `video` by the FFmpeg at `program`.

    Runs it for a frame if the size depends on what the filters make.

    Args:
        source, container, start_s: as for `DecodePlan.arguments`.

    Raises:
        ValueError: an argument is none of its choices, or ``convert="native"`` was asked for where there is no native
            conversion.
        DecoderError: alpha was asked for that the FFmpeg cannot decode.
    """
    check_choice("convert", wish.convert, get_args(Convert))
    check_choice("color_matrix", wish.color_matrix, get_args(ColorMatrix))
    check_choice("color_range", wish.color_range, ("auto", *_RANGES))
    name = wish.pixel_format or own_pixel_format(video)
    decoder = _alpha_decoder(program, source, video, wish, name)
    if decoder is not None:
        video = replace(video, pixel_format=own_pixel_format(video))
    own_size = video.width, video.height
    if wish.filters and (wish.size is None or (None in wish.size and wish.size != (None, None))):
        reading, trim = _reading(wish, video, decoder, source, container, start_s)
        filtered = ("-v", "error", *reading, "-filter:v", ",".join([*trim, wish.filters]))
        # Of filters that fail, FFmpeg says why when it is run for all frames.
        own_size = first_size((program, *filtered)) or own_size
    width, height = _delivered_size(own_size, wish.size)
    layout = frame_layout(name, width, height, program)
    own = video.pixel_format or ""
    stored = canonical(_FULL_RANGE.get(own, own))
    given = [wish.filters] if wish.filters else []
    # Nothing to do as a rule, but a video may change its size in the middle, and frames must not.
    scaled = [*given, f"scale={width}:{height}"]
    if layout.pixel_format == canonical(own):
        filters = (*scaled, f"format={own}")
        return DecodePlan(layout, own, None, 1, None, filters, wish, video, decoder)
    parts = _parts(stored, width, height)
    is_left_to_ffmpeg = wish.convert == "ffmpeg" or (wish.convert == "auto" and not _agrees(stored, layout))
    conversion = None if is_left_to_ffmpeg else _native(stored, layout, parts, video, wish)
    if conversion is None:
        scaled[-1] += _colors(wish, own, layout)
        filters = (*scaled, f"format={layout.pixel_format}")
        return DecodePlan(layout, layout.pixel_format, None, 1, "ffmpeg", filters, wish, video, decoder)
    # By the name that it has in the file, full range or not, so that FFmpeg has nothing to do.
    filters = (*scaled, f"format={own}")
    return DecodePlan(layout, own, conversion, parts, "penstock", filters, wish, video)


def own_pixel_format(video: VideoInfo) -> str:
    """What the frames of the file are, alpha that lies beside them included; empty if the file does not tell."""
    own = video.pixel_format or ""
    return "yuva420p" if video.has_separate_alpha and own == "yuv420p" else own


def _alpha_decoder(
    program: str, source: str, video: VideoInfo, wish: DecodeWish, pixel_format: str
) -> str | None:
    """The decoder for alpha that lies beside the frames, if frames of `pixel_format` have any; else None.

    Raises:
        DecoderError: `program` has no such decoder.
    """
    is_chosen = any(name in wish.input_options for name in (*_CODEC_OPTIONS, f"c:{video.index}"))
    if own_pixel_format(video) == video.pixel_format or not _ALPHA.match(pixel_format) or is_chosen:
        return None
    name = _ALPHA_DECODERS[video.codec]
    known = capabilities.decoders(program)
    if known and name not in known:
        raise DecoderError(
            f"{endpoints.without_protocol(source)} has alpha, which only FFmpeg's decoder {name} reads, and {program} "
            "was built without it: install another FFmpeg (Debian's has it), or give a pixel_format without alpha, "
            "such as 'rgb24' or 'yuv420p'"
        )
    return name


def _reading(
    wish: DecodeWish, video: VideoInfo, decoder: str | None, source: str, container: str, start_s: float
) -> tuple[list[str], list[str]]:
    """FFmpeg's arguments that read the stream, and the filters that begin with the right frame."""
    seek, trim = seek_arguments(wish.start, container, start_s)
    return [
        # Timestamps as they are in the file.
        "-copyts",
        *seek,
        *(() if decoder is None else (f"-c:{video.index}", decoder)),
        *endpoints.confining_arguments(source, () if wish.follow_playlists else (container,)),
        *option_arguments(wish.input_options),
        *read_arguments(source, container),
        *("-map", f"0:{video.index}"),
        *("-an", "-sn", "-dn"),
    ], trim


def _delivered_size(own: tuple[int, int], size: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """`size`, with what it leaves open such that a picture of the size `own` keeps its shape, to an even number."""
    width, height = own if size is None else size
    if width is None and height is None:
        raise ValueError("size is width and height in pixels, one of which may be None; got (None, None)")
    if width is None:
        width = _even(Fraction(height or 0) * own[0] / own[1])
    if height is None:
        height = _even(Fraction(width) * own[1] / own[0])
    return checked_size((width, height))


def _even(length: Fraction) -> int:
    return max(2, round(length / 2) * 2)


def _colors(wish: DecodeWish, own: str, layout: FrameLayout) -> str:
    """What the scaler is to take the file's YUV for. On the way to YUV again it would change the range."""
    matrix = "" if wish.color_matrix == "auto" else f":in_color_matrix={wish.color_matrix}"
    if is_gray(layout.pixel_format) and not is_rgb(own):
        # Gray is the luma. FFmpeg 9 makes RGB of YUV first, and gray of that by BT.601: the luma again, if that is the
        # matrix on both ways. Its values for BT.709 are up to 28 off otherwise; 5.1 and 7.1 take the luma as it is.
        matrix = ":in_color_matrix=bt601"
    color_range = "" if wish.color_range == "auto" else f":in_range={_RANGES[wish.color_range]}"
    return matrix + color_range


def _agrees(stored: str, layout: FrameLayout) -> bool:
    """Whether FFmpeg left alone makes nearly the same of it, so that a picture does not depend on who converts.

    It has a chroma sample stand for its pixels where samples have 8 bits and are shared out evenly. All else goes
    through its scaler, which smooths chroma over edges: by up to 57 code values, seen with yuv420p10le of hard edges.
    """
    is_even = divides_evenly(stored, layout.width, layout.height)
    is_plain = (stored in _AGREED or is_gray(stored)) and stored != layout.pixel_format
    return is_gray(layout.pixel_format) or (is_plain and layout.sample_bytes == 1 and is_even)


def _native(
    stored: str, layout: FrameLayout, parts: int, video: VideoInfo, wish: DecodeWish
) -> _Conversion | None:
    """The native conversion of a part, where there is one."""
    matrix = video.color_matrix or _UNTAGGED if wish.color_matrix == "auto" else wish.color_matrix
    try:
        if stored == layout.pixel_format:
            raise ValueError(f"{video.pixel_format} to {stored} is a change of the range")
        if matrix not in _MATRICES:
            raise ValueError(f"the colour matrix is {matrix}")
        return _Conversion(
            stored,
            layout.pixel_format,
            layout.width,
            layout.height // parts,
            matrix=matrix,
            range=_color_range(stored, video, wish),
            vflip=False,
            odd_size="keep",
        )
    except ValueError as error:
        if wish.convert == "native":
            raise ValueError(f"convert='native' is not possible: {error}") from None
        return None


def _color_range(stored: str, video: VideoInfo, wish: DecodeWish) -> str:
    if is_gray(
        stored
    ):  # for FFmpeg's scaler gray is full, whatever it says (handle_jpeg in libswscale/utils.c)
        return "full"
    if wish.color_range != "auto":
        return wish.color_range
    return video.color_range or ("full" if video.pixel_format in _FULL_RANGE else "limited")


def _parts(stored: str, width: int, height: int) -> int:
    """Into how many parts of equal, whole rows of chroma a frame of YUV can be divided, so that they are small enough.

    One if there is no such number.
    """
    rows = subsampling(stored)[1]
    frame_bytes = frame_layout(stored, width, height).frame_bytes if stored in PIXEL_FORMATS else 0
    for parts in range(1, height // rows + 1):
        if height % (parts * rows) == 0 and frame_bytes <= parts * _PART_BYTES:
            return parts
    return 1
