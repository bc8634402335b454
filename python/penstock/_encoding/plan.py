"""Plans an encode of pictures of one size: who converts pixels, and FFmpeg's arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial

from penstock._common.log import logger
from penstock._encoding import encoders, sound
from penstock._encoding.labels import NO_LABELS
from penstock._encoding.nut import NutStream
from penstock._encoding.request import EncodeRequest
from penstock._ffmpeg.command.arguments import (
    PALETTE,
    PALETTE_FILTERS,
    check_even,
    checked_size,
    conversion_filters,
    input_arguments,
    output_arguments,
    stream_arguments,
    with_filters,
)
from penstock._ffmpeg.command.colors import (
    VideoColors,
    colors_for,
    hdr_arguments,
    input_color_arguments,
    is_centered,
    jpeg_pixel_format,
    output_color_arguments,
)
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import (
    FrameLayout,
    canonical,
    divides_evenly,
    frame_layout,
    is_gray,
    is_rgb,
)
from penstock._ffmpeg.command.settings import native_conversion
from penstock._native import _Conversion

# Encoders that need the same conversion have the same object: a fan-out does it once for all of them.
_conversion = lru_cache(maxsize=16)(_Conversion)

# Codecs whose frames have a palette each. (QuickTime and APNG have one for the whole video.)
_PALETTES_BY_FRAME = ("gif", "png")
# Each frame is encoded once, at its own time.
_TIMED_OPTIONS = {"fps_mode": "passthrough"}
_TIME_BASE = "enc_time_base:v"
# The rate of a trial encode, whose frame has no time: FFmpeg's default.
_TRIAL_RATE = Fraction(25)
# Options that a trial leaves out: those of sound and subtitles (``b:a``), and `map`, which names streams.
_CONCERNS_OTHERS = re.compile(r"map|[^:]+:[as]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodePlan:
    """What is done with each frame, and by whom.

    Attributes:
        request: what was asked for.
        arguments: FFmpeg's arguments for its input and its output, whose name comes last.
        stream: the NUT stream that FFmpeg reads; None if it reads raw frames at a constant rate.
        frames: layout of the frames that the caller writes.
        ffmpeg_frames: layout of the frames that FFmpeg gets.
        conversion: the native conversion; None if FFmpeg gets the frames as they are.
        color_arguments: those of the `arguments` that tag the video with its colors.
        colors: the colors of a YUV video; None for other videos, and if filters may change them.
        skipped_encoders: why the encoders of hardware before this one were not taken, in sentences.
    """

    request: EncodeRequest
    arguments: list[str]
    stream: NutStream | None
    frames: FrameLayout
    ffmpeg_frames: FrameLayout
    conversion: _Conversion | None = None
    color_arguments: tuple[str, ...] = ()
    colors: VideoColors | None = None
    skipped_encoders: tuple[str, ...] = ()

    @property
    def converted_by(self) -> str | None:
        """Who converts pixels: "penstock", "ffmpeg", or None if they stay what they are."""
        if self.request.output_pixel_format in (None, self.request.pixel_format):
            return None
        return "ffmpeg" if self.conversion is None else "penstock"


def plan_encode(request: EncodeRequest, size: tuple[int, int]) -> EncodePlan:
    """Plans an encode of pictures of `size`, width and height in pixels, by the first encoder that works."""
    if not request.hardware:
        return _plan(request, size)
    skipped_encoders: list[str] = []
    for one in request.hardware:
        tried = _try_encoder(one, size)
        if isinstance(tried, EncodeRequest):
            request = tried
            break
        skipped_encoders.append(tried)
    logger.info("the encoder is %s", "; ".join([request.codec, *skipped_encoders]))
    return replace(_plan(request, size), skipped_encoders=tuple(skipped_encoders))


def _try_encoder(request: EncodeRequest | str, size: tuple[int, int]) -> EncodeRequest | str:
    """The request, if its encoder encodes a frame of `size`, or else why it does not, in a sentence."""
    if isinstance(request, str):
        return request
    rate = request.rate or _TRIAL_RATE
    options = {name: value for name, value in request.options.items() if not _CONCERNS_OTHERS.match(name)}
    trial = replace(
        request,
        output=Output("-", "null"),
        options={**options, "frames:v": 1},
        sounds=(),
        labels=NO_LABELS,
        rate=rate,
    )
    arguments = ("file:/dev/zero" if one == "pipe:0" else one for one in _plan(trial, size).arguments)
    trial_failure = encoders.trial_failure(request.program, "-t", f"{float(1 / rate):f}", *arguments)
    return request if trial_failure is None else f"{request.codec}: {trial_failure}"


def _plan(request: EncodeRequest, size: tuple[int, int]) -> EncodePlan:
    program, codec, options, rate = request.program, request.codec, request.options, request.rate
    width, height = checked_size(size)
    layout = frame_layout(request.pixel_format, width, height, program)
    output, tags = request.output_pixel_format, colors_for(codec, request.colors, height)
    if not request.holds_reordered_frames:
        options = {"bf": 0, **options}
    if rate is None:
        options = {**_TIMED_OPTIONS, _TIME_BASE: f"1:{1 / request.time_unit_s}", **options}
    if request.odd_size == "error":
        check_even(layout, output, options)
    conversion = _native(layout, tags, request)
    named = None if output is None else jpeg_pixel_format(codec, output)
    filters: list[str] = []
    if conversion is None:
        fed = frame_layout(jpeg_pixel_format(codec, layout.pixel_format), width, height, program)
        filters = conversion_filters(fed, named, tags, odd_size=request.odd_size, vflip=request.vflip)
        if named == PALETTE != layout.pixel_format and codec in _PALETTES_BY_FRAME:
            filters.append(PALETTE_FILTERS)
    else:
        fed = frame_layout(named or layout.pixel_format, *conversion.output_size, program)
    centered = is_centered(layout.pixel_format, named)
    stream = sound.nut_stream(program, fed, rate, request.sounds)
    colors_in = [
        *input_color_arguments(fed.pixel_format, tags, centered=centered),
        *hdr_arguments(codec, request.colors),
    ]
    if stream is not None:
        reading = stream_arguments(stream.offset_s, colors_in)
    else:
        assert rate is not None
        reading = input_arguments(fed, rate, colors_in)
    colors_out = output_color_arguments(named, tags, centered=centered)
    has_inputs = bool(request.sounds) or request.labels != NO_LABELS
    is_mapped = bool(request.sounds) or "map" in options
    labels = request.labels.output_arguments(options, is_mapped=is_mapped) if has_inputs else []
    arguments = [
        *reading,
        *request.labels.input_arguments(),
        *output_arguments(
            request.output,
            codec,
            named,
            with_filters(options, filters),
            colors_out,
            [*sound.output_arguments(request.sounds, options), *labels],
        ),
    ]
    has_yuv = named is not None and not (is_rgb(named) or is_gray(named))
    return EncodePlan(
        request=request,
        arguments=arguments,
        stream=stream,
        frames=layout,
        ffmpeg_frames=fed,
        conversion=conversion,
        color_arguments=tuple(colors_out),
        colors=tags if has_yuv and not request.is_filtered else None,
    )


def _native(layout: FrameLayout, colors: VideoColors, request: EncodeRequest) -> _Conversion | None:
    """The native conversion; None if there is nothing to convert, or no native code for it."""
    output = canonical(request.output_pixel_format or layout.pixel_format)
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
        matrix=colors.matrix,
        range=colors.range,
        vflip=vflip,
        odd_size=odd_size if is_fitted else "keep",
    )
    return native_conversion(request.settings._knobs.convert, make)
