"""Plans an encode: who converts pixels, and FFmpeg's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from numbers import Real
from typing import Literal, get_args

from penstock._native import _Conversion
from penstock.ffmpeg import endpoints, sound
from penstock.ffmpeg.arguments import (
    check_even,
    checked_size,
    conversion_filters,
    frame_rate,
    input_arguments,
    output_arguments,
    stream_arguments,
    with_filters,
)
from penstock.ffmpeg.capabilities import check_option
from penstock.ffmpeg.colors import (
    MATRICES,
    VideoColors,
    colors_for,
    input_color_arguments,
    is_centred,
    jpeg_pixel_format,
    output_color_arguments,
    with_colors_of_options,
)
from penstock.ffmpeg.naming import argument
from penstock.ffmpeg.nut import TICK_S, NutStream
from penstock.ffmpeg.output_formats import asked_format, output_format, raw_format, unused_colors
from penstock.ffmpeg.pixel_formats import (
    FrameLayout,
    canonical,
    divides_evenly,
    frame_layout,
    is_gray,
    is_rgb,
)
from penstock.ffmpeg.settings import Colors, Convert, check_choice, native_conversion
from penstock.ffmpeg.sound import Sound

OddSize = Literal["error", "pad", "crop"]


# Encoders that need the same conversion have the same object: a fan-out does it once for all of them.
_conversion = lru_cache(maxsize=16)(_Conversion)

# Each frame is encoded once, at its own time.
_TIMED_OPTIONS = {"fps_mode": "passthrough"}
_TIME_BASE = "enc_time_base:v"
# The unit of times in MP4 and QuickTime, in seconds: that of MPEG-2 systems, in which all common frame rates are exact.
# With microseconds, FFmpeg 5.1 lost frames after a pause of 5 minutes, and one of 36 broke the file.
_QUICKTIME_UNIT_S = Fraction(1, 90_000)
_QUICKTIME = ("3g2", "3gp", "f4v", "ipod", "ismv", "mov", "mp4", "psp")
_QUICKTIME_ENDINGS = (".3g2", ".3gp", ".f4v", ".ismv", ".m4v", ".mov", ".mp4")
# FFmpeg's reader of NUT believes no higher rate (seen in 5.1 to 9).
_MOST_FPS_WITH_SOUND = 1000
# The unit of times in Matroska, WebM and FLV is 1 ms.
_MOST_FPS_OF_MILLISECONDS = 1000
_MILLISECONDS = ("flv", "matroska", "webm")
_MILLISECONDS_ENDINGS = (".flv", ".mk3d", ".mkv", ".webm")
# Viewers of GIF show a frame of less than 1/50 s for 1/10 s (so do all browsers).
_MOST_FPS_OF_GIF = 50
# FFmpeg's options that may change colours and times, and those that change times.
_FILTERING = frozenset(("vf", "filter", "filter_complex", "lavfi", "bsf"))
_MOVING_OPTIONS = frozenset(("output_ts_offset", "shortest"))
# Containers without times, or that number frames, by FFmpeg's names and their usual endings.
_UNTIMED = ("avi", "h264", "hevc", "image2", "image2pipe", "mjpeg", "rawvideo", "yuv4mpegpipe")
_UNTIMED_ENDINGS = (
    ".avi",
    ".h264",
    ".hevc",
    ".264",
    ".265",
    ".mjpeg",
    ".mjpg",
    ".yuv",
    ".rgb",
    ".y4m",
    ".png",
    ".jpg",
)


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """What is done with each frame, and by whom.

    Attributes:
        layout: layout of the frames that the caller writes; None for sound alone.
        rate: frames per second; None if each frame comes with its time, or there is none.
        conversion: the native conversion; None if FFmpeg gets the frames as they are.
        fed: layout of the frames that FFmpeg gets; None for sound alone.
        sounds: what comes with the picture, or without one.
        time_unit_s: of `rate` None, the unit of the frames' times that the container holds, in seconds.
        stream: what FFmpeg reads; None if it is frames alone, at a constant rate.
        converted_by: "penstock", "ffmpeg", or None if the pixels stay what they are.
        arguments: FFmpeg's arguments for its input and its output, whose name comes last.
        container_format: the container by FFmpeg's name; None if FFmpeg is to guess it.
        codec: FFmpeg's name of the video encoder; None for sound alone.
        output_pixel_format: of the video; None if FFmpeg is to choose it.
        colors: of YUV video; None for others, and where options may change them.
        keeps_times: no option changes them.
        warnings: what the video cannot hold of the frames.
    """

    layout: FrameLayout | None
    rate: Fraction | None
    time_unit_s: Fraction
    conversion: _Conversion | None
    fed: FrameLayout | None
    sounds: tuple[Sound, ...]
    stream: NutStream | None
    converted_by: str | None
    arguments: list[str]
    container_format: str | None
    codec: str | None = None
    output_pixel_format: str | None = None
    colors: VideoColors | None = None
    keeps_times: bool = True
    warnings: tuple[str, ...] = ()

    def arguments_to(self, target: str) -> list[str]:
        """`arguments` for another file of the same kind."""
        return [*self.arguments[:-1], target]

    @property
    def frames(self) -> FrameLayout:
        """`layout`, where there must be one.

        Raises:
            ValueError: it is sound alone.
        """
        if self.layout is None:
            raise ValueError("the encoder has codec=None, which is for sound alone: it takes no frames")
        return self.layout


def plan_encode(
    program: str,
    target: str,
    *,
    size: tuple[int, int],
    fps: int | float | Fraction | None,
    pixel_format: str,
    vflip: bool,
    odd_size: OddSize,
    codec: str,
    options: Mapping[str, object],
    container_format: str | None,
    output_pixel_format: str | None,
    colors: Colors,
    convert: Convert,
    sounds: tuple[Sound, ...],
) -> EncodePlan:
    """Plans an encode by the FFmpeg at `program` to `target`. The other arguments are the `Encoder`'s."""
    check_choice("odd_size", odd_size, get_args(OddSize))
    width, height = checked_size(size)
    rate = None if fps is None else frame_rate(fps)
    container_format = endpoints.container_for(target, container_format)
    time_unit_s = _time_unit_s(target, container_format)
    layout = frame_layout(pixel_format, width, height, program)
    held = raw_format(target, container_format)
    asked = asked_format(output_pixel_format, options)
    colors, options = with_colors_of_options(colors, options, pixel_format, asked)
    if asked is not None and asked.startswith("yuvj"):
        asked = asked.replace("yuvj", "yuv")
    output = output_format(program, codec, options, layout.pixel_format, asked, held=held)
    options = _options_for(codec, options, output.name)
    tags = colors_for(codec, colors, height)
    _check_matrix(layout.pixel_format, output.name, options)
    if (
        rate is not None
        and rate > _MOST_FPS_OF_MILLISECONDS
        and endpoints.is_container(target, container_format, _MILLISECONDS, _MILLISECONDS_ENDINGS)
    ):
        raise ValueError(
            f"{argument('fps', fps)} is too much for a container that counts milliseconds: write mp4 or mov"
        )
    if rate is None:
        _check_timed(target, container_format)
        options = _TIMED_OPTIONS | {_TIME_BASE: f"1:{1 / time_unit_s}"} | options
    if odd_size == "error":
        check_even(layout, output.name, options)
    conversion = _native(layout, output.name, tags, odd_size=odd_size, vflip=vflip, convert=convert)
    named = None if output.name is None else jpeg_pixel_format(codec, output.name)
    filters: list[str] = []
    if conversion is None:
        fed = frame_layout(jpeg_pixel_format(codec, layout.pixel_format), width, height, program)
        filters = conversion_filters(fed, named, tags, odd_size=odd_size, vflip=vflip)
    else:
        fed = frame_layout(named or layout.pixel_format, *conversion.output_size, program)
    centred = is_centred(layout.pixel_format, named)
    if sounds and rate is not None and rate >= _MOST_FPS_WITH_SOUND:
        raise ValueError(
            f"{argument('fps', fps)} is too much for frames with sound: give fps=None, and pts to write"
        )
    stream = sound.nut_stream(program, fed, rate, sounds)
    colors_in = input_color_arguments(fed.pixel_format, tags, centred=centred)
    if stream is not None:
        reading = stream_arguments(stream.offset_s, colors_in)
    else:
        assert rate is not None
        reading = input_arguments(fed, rate, colors_in)
    arguments = [
        *reading,
        *output_arguments(
            target,
            codec,
            named,
            with_filters(options, filters),
            container_format,
            output_color_arguments(named, tags, centred=centred),
            sound.output_arguments(sounds, options),
        ),
    ]
    converted_by = None
    if output.name not in (None, layout.pixel_format):
        converted_by = "ffmpeg" if conversion is None else "penstock"
    is_filtered = any(name.partition(":")[0] in _FILTERING for name in options)
    unused = unused_colors(codec, layout.pixel_format, output.name, colors, tags.range)
    return EncodePlan(
        layout=layout,
        rate=rate,
        time_unit_s=time_unit_s,
        conversion=conversion,
        fed=fed,
        sounds=sounds,
        stream=stream,
        converted_by=converted_by,
        arguments=arguments,
        container_format=container_format,
        codec=codec,
        output_pixel_format=output.name,
        colors=None if is_filtered or named is None or is_rgb(named) or is_gray(named) else tags,
        keeps_times=not (is_filtered or _MOVING_OPTIONS & options.keys()),
        warnings=(*output.warnings, *unused, *_hurried(codec, rate)),
    )


def plan_sound(
    program: str,
    target: str,
    *,
    options: Mapping[str, object],
    container_format: str | None,
    sounds: tuple[Sound, ...],
) -> EncodePlan:
    """Plans an encode of sound alone. The arguments are as for `plan_encode`."""
    container_format = endpoints.container_for(target, container_format)
    stream = sound.nut_stream(program, None, None, sounds)
    assert stream is not None
    arguments = [
        *stream_arguments(stream.offset_s),
        *output_arguments(
            target, None, None, options, container_format, sound=sound.output_arguments(sounds, options)
        ),
    ]
    return EncodePlan(None, None, TICK_S, None, None, sounds, stream, None, arguments, container_format)


def _check_timed(target: str, container_format: str | None) -> None:
    if endpoints.is_container(target, container_format, _UNTIMED, _UNTIMED_ENDINGS):
        raise ValueError(
            f"{container_format or target.rpartition('.')[2]} has no place for the times of frames (fps=None): "
            "write mp4, mov, mkv or webm, or give a constant fps"
        )


def _check_matrix(frames: str, output_pixel_format: str | None, options: Mapping[str, object]) -> None:
    """Checks that no option names a matrix by which we do not convert."""
    if output_pixel_format is None or is_rgb(output_pixel_format) or not (is_rgb(frames) or is_gray(frames)):
        return
    for name, value in options.items():
        if name.partition(":")[0] == "colorspace" and str(value) not in ("unknown", "unspecified", "2"):
            raise ValueError(
                f"{argument(f'options.{name}', value)} is no matrix by which {frames} becomes {output_pixel_format}: "
                f"colors=Colors(matrix=...) is one of {', '.join(MATRICES)}"
            )


def _time_unit_s(target: str, container_format: str | None) -> Fraction:
    is_quicktime = endpoints.is_container(target, container_format, _QUICKTIME, _QUICKTIME_ENDINGS)
    return _QUICKTIME_UNIT_S if is_quicktime else TICK_S


def _hurried(codec: str, rate: Fraction | None) -> tuple[str, ...]:
    if codec != "gif" or rate is None or rate <= _MOST_FPS_OF_GIF:
        return ()
    return (f"viewers show GIF of more than {_MOST_FPS_OF_GIF} frames per second slower: give a lower fps",)


def _options_for(
    codec: str, options: Mapping[str, object], output_pixel_format: str | None
) -> dict[str, object]:
    """`options` without a pixel format, which the plan gives, and with what the pixel format requires."""
    options = dict(options)
    if output_pixel_format is not None:
        options = {name: value for name, value in options.items() if name.partition(":")[0] != "pix_fmt"}
    if (codec, output_pixel_format) == ("libvpx", "yuva420p"):
        # FFmpeg refuses VP8 with alpha together with hidden alternate reference frames.
        options = {"auto-alt-ref": 0, **options}
    return options


def output_options(
    program: str,
    codec: str | None,
    options: Mapping[str, object],
    crf: float | str | None,
    preset: str | None,
) -> tuple[dict[str, object], str | None]:
    """FFmpeg's output options, with `crf` and `preset`, and the container format that ``options["f"]`` names."""
    own = {name: value for name, value in (("crf", crf), ("preset", preset)) if value is not None}
    given: dict[str, object] = {
        name: f"{value:g}" if isinstance(value, Real) else value for name, value in own.items()
    }
    for name, value in own.items():
        if (
            option := next((option for option in options if option.partition(":")[0] == name), None)
        ) is not None:
            also = argument(f"options.{option}", options[option])
            raise ValueError(f"{argument(name, value)} and {also} exclude each other: give one")
        if codec is None:
            raise ValueError(
                f"{argument(name, value)} is for a picture, and codec=None makes none: leave it out"
            )
        check_option(program, codec, name)
    given.update(options)
    container_format = given.pop("f", None)
    if container_format is not None and not isinstance(container_format, str):
        raise ValueError(
            f"options['f'] is FFmpeg's name of a container, such as 'mp4'; got {container_format!r}"
        )
    return given, container_format


def _native(
    layout: FrameLayout,
    output_pixel_format: str | None,
    colors: VideoColors,
    *,
    odd_size: OddSize,
    vflip: bool,
    convert: Convert,
) -> _Conversion | None:
    """The native conversion; None if there is nothing to convert, or no native code for it."""
    output = canonical(output_pixel_format or layout.pixel_format)
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
    return native_conversion(convert, make)
