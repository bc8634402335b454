"""What happens to pixels between the frames that the caller writes and the encoder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import NamedTuple

from penstock._encoding.input_layout import InputLayout
from penstock._encoding.request import Request
from penstock._ffmpeg.command.arguments import PALETTE_FILTERS, check_even, conversion_filters
from penstock._ffmpeg.command.colors import VideoColors, jpeg_pixel_format
from penstock._ffmpeg.command.pixel_formats import FrameLayout, frame_layout
from penstock._ffmpeg.command.settings import Colors, native_conversion
from penstock._ffmpeg.program import capabilities
from penstock._formats.encoders import known
from penstock._formats.pixel_formats import canonical, divides_evenly, has_alpha, has_palette, without_range
from penstock._native import _Conversion

# Encoders that need the same conversion have the same object: a fan-out does it once for all of them.
_conversion = lru_cache(maxsize=16)(_Conversion)


class Video(NamedTuple):
    """The encoder, its options, and what it gets. The attributes are those of `EncodePlan`, but for these.

    Attributes:
        size: width and height of the frames.
        asked_colors: the colors that were asked for.
        colors: the colors of frames and video.
    """

    codec: str
    options: Mapping[str, object]
    pixel_format: str
    input_layout: InputLayout
    size: tuple[int, int]
    output_pixel_format: str | None
    asked_colors: Colors
    colors: VideoColors
    warnings: tuple[str, ...]


class Pixels(NamedTuple):
    """What is done with the pixels.

    Attributes:
        frames: layout of the frames that the caller writes.
        fed: layout of the frames that FFmpeg gets.
        named: the pixel format of the video, as FFmpeg's arguments name it; None if FFmpeg is to choose it.
        conversion: the native conversion; None if FFmpeg gets the frames as they are.
        filters: FFmpeg's filters.
    """

    frames: FrameLayout
    fed: FrameLayout
    named: str | None
    conversion: _Conversion | None
    filters: list[str]


def pixels_of(request: Request, program: str, video: Video) -> Pixels:
    width, height = video.size
    frames = frame_layout(video.pixel_format, width, height, program)
    if request.odd_size == "error":
        check_even(frames, video.output_pixel_format, video.options)
    conversion = _native(frames, video.output_pixel_format, video.colors, request)
    chosen, codec = video.output_pixel_format, video.codec
    named = None if chosen is None else jpeg_pixel_format(codec, chosen)
    if conversion is None:
        fed = frame_layout(without_range(video.pixel_format), width, height, program)
        filters = conversion_filters(fed, named, video.colors, odd_size=request.odd_size, vflip=request.vflip)
        if has_palette(named) and named != video.pixel_format and known(codec).has_palettes:
            filters.append(PALETTE_FILTERS)
    else:
        fed = frame_layout(without_range(named or video.pixel_format), *conversion.output_size, program)
        filters = []
    if known(codec).multiplies_alpha and has_alpha(named or video.pixel_format):
        filters += _kept_alpha(program)
    return Pixels(frames, fed, named, conversion, filters)


def _kept_alpha(program: str) -> list[str]:
    """Filters without which FFmpeg would multiply colors by their alpha, as EXR has them: some versions would not."""
    is_known = "alpha_mode" in capabilities.filter_options(program, "setparams")
    return ["setparams=alpha_mode=premultiplied"] if is_known else []


def _native(
    layout: FrameLayout, output_pixel_format: str | None, colors: VideoColors, request: Request
) -> _Conversion | None:
    """The native conversion; None if there is nothing to convert, or no native code for it."""
    output = canonical(output_pixel_format or layout.pixel_format)
    odd_size, vflip = request.odd_size, request.vflip
    is_fitted = odd_size != "error" and not divides_evenly(output, layout.width, layout.height)
    if output == layout.pixel_format and not (is_fitted or vflip):
        return None
    make = partial(
        _conversion,
        layout.pixel_format,
        output,
        layout.width,
        layout.height,
        matrix=colors.converted,
        range=colors.range,
        vflip=vflip,
        odd_size=odd_size if is_fitted else "keep",
    )
    return native_conversion(request.settings._overrides.convert, make)
