"""Plans an encode: checks what was asked for, and makes FFmpeg's arguments and the conversion of pixels of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import NamedTuple, get_args

from penstock._common.messages import argument
from penstock._encoding import container, crash_safety, encoders, sound
from penstock._encoding.input_layout import InputLayout
from penstock._encoding.labels import NO_LABELS, Labels
from penstock._encoding.nut import NutStream
from penstock._encoding.output_pixel_format import output_format, requested_format, unused_colors
from penstock._encoding.pixel_plan import Pixels, Video, pixels_of
from penstock._encoding.request import OddSize, Request
from penstock._encoding.sound import AudioTrack, Sound
from penstock._encoding.timecode import TIMECODE, check_timecode
from penstock._ffmpeg.command.arguments import (
    TICK_S,
    check_without_dashes,
    checked_size,
    frame_rate,
    input_arguments,
    output_arguments,
    stream_arguments,
    with_filters,
)
from penstock._ffmpeg.command.colors import (
    MATRICES,
    VideoColors,
    check_without_colors,
    colors_for,
    hdr_arguments,
    input_color_arguments,
    is_centered,
    output_color_arguments,
    with_hdr_metadata,
    with_range_of,
)
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import FrameLayout, raw_format_name
from penstock._ffmpeg.command.settings import (
    Colors,
    check_choice,
)
from penstock._ffmpeg.program import capabilities
from penstock._formats.encoders import known as encoder_facts
from penstock._formats.pixel_formats import has_alpha, is_gray, is_rgb, without_range
from penstock._native import _Conversion
from penstock.errors import EncoderError

#: The size at which a request is checked while that of its frames is not known. Chosen: every chroma subsampling
#: divides it.
PROBE_SIZE = (64, 64)
# FFmpeg's options that leave out a part of the sound.
_SHORTENING_SOUND = ("aframes", "frames:a")
# FFmpeg's options with filters. `_MIXING` has those that may change sound, `_MOVING_OPTIONS` those that move frames.
_FILTERING = frozenset(("vf", "filter", "filter_complex", "lavfi", "bsf"))
# What changes the matrix or the range in FFmpeg's filters.
_RECOLORING = re.compile(
    r"out_color_matrix|out_range|\b(?:colorspace|colormatrix|zscale|tonemap\w*|libplacebo)\b"
)
_MIXING = frozenset(
    (
        *("ac", "af", "ar", "ch_layout", "channel_layout", "sample_fmt"),
        *("filter", "filter_complex", "lavfi", "map"),
    )
)
_MOVING_OPTIONS = frozenset(("output_ts_offset", "shortest"))
# Each frame is encoded once, at its own time.
_TIMED_OPTIONS = {"fps_mode": "passthrough"}
_TIME_BASE = "enc_time_base:v"
# The last frame lasts as long as the one before. By itself, FFmpeg makes it last 1/60 s, by the nominal rate: nothing
# says how long a raw frame lasts. Packets come in the order of decoding: 0 has the latest time so far, and 1 the one
# before, in the packets' own unit: FFmpeg 5.1 gives the filter a wrong TB in Matroska.
_LATER = r"if(gt(PTS\,ld(0))\,st(1\,ld(0))\;st(0\,PTS)\,st(1\,max(ld(1)\,PTS)))"
_LATEST = rf"if(N\,{_LATER}\,st(0\,PTS)\;st(1\,PTS))"
_STEP = r"if(eq(NEXT_DTS\,NOPTS)\,if(N\,ld(0)-ld(1)\,DURATION)\,NEXT_DTS-DTS)"
_LAST_DURATION = rf"setts=pts=PTS:dts=DTS:duration={_LATEST}\;{_STEP}"
# The rate of a plan that is only checked: FFmpeg's default.
_TRIAL_RATE = Fraction(25)


class Beside(NamedTuple):
    """What comes with the picture."""

    sounds: tuple[Sound, ...]
    labels: Labels


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodePlan:
    """How the encode that was asked for is done: what is done with each frame, and by whom.

    Attributes:
        request: what was asked for.
        program: the path of FFmpeg.
        output: where the result goes, and in which container.
        codec: FFmpeg's name of the video encoder.
        skipped_encoders: why the encoders of hardware before this one were not taken, in sentences.
        options: FFmpeg's options for the output, without those that other attributes have.
        rate: frames per second; None if each frame comes with its time.
        pixel_format: that of the frames that the caller writes.
        input_layout: how these frames differ from it.
        output_pixel_format: of the video; None if FFmpeg is to choose it.
        colors: the colors of a YUV video; None for other videos, and if filters may change them.
        sounds: what comes with the picture.
        labels: metadata, time code, chapters and subtitles of the output.
        warnings: what the video cannot hold of the frames.
        arguments: FFmpeg's arguments for its input and its output, whose name comes last.
        color_arguments: those of the `arguments` that tag the video with its colors.
        stream: the NUT stream that FFmpeg reads; None if it reads raw frames at a constant rate, or for `PROBE_SIZE`.
        frames: layout of the frames that the caller writes.
        ffmpeg_frames: layout of the frames that FFmpeg gets.
        conversion: the native conversion; None if FFmpeg gets the frames as they are.
    """

    request: Request
    program: str
    output: Output
    codec: str
    options: Mapping[str, object]
    rate: Fraction | None
    pixel_format: str
    input_layout: InputLayout
    output_pixel_format: str | None
    colors: VideoColors | None
    sounds: tuple[Sound, ...]
    labels: Labels
    warnings: tuple[str, ...]
    arguments: list[str]
    color_arguments: tuple[str, ...]
    stream: NutStream | None
    frames: FrameLayout
    ffmpeg_frames: FrameLayout
    conversion: _Conversion | None
    skipped_encoders: tuple[str, ...] = ()

    @property
    def beside(self) -> Beside:
        """What comes with the picture, for another plan of the same request."""
        return Beside(self.sounds, self.labels)

    @property
    def converted_by(self) -> str | None:
        """Who converts pixels: "penstock", "ffmpeg", or None if they stay what they are."""
        if self.output_pixel_format in (None, self.pixel_format):
            return None
        return "ffmpeg" if self.conversion is None else "penstock"

    @property
    def audio_input(self) -> AudioTrack | None:
        """The sound that the program makes; None if it makes none."""
        made = (sound.audio for sound in self.sounds)
        return next((one for one in made if isinstance(one, AudioTrack)), None)

    @property
    def is_one_picture(self) -> bool:
        """Whether the output is one picture, and no options replace it with each frame."""
        return self.output.are_images and not self.output.is_numbered and "update" not in self.options

    @property
    def is_timed(self) -> bool:
        """Whether each frame comes with its time."""
        return self.rate is None

    @property
    def keeps_sound(self) -> bool:
        """Whether no option asks for other channels, rates or samples of the sounds, or leaves some out."""
        named = (name.partition(":") for name in self.options)
        return not any(option in _MIXING and not stream.startswith("v") for option, _, stream in named)

    @property
    def is_filtered(self) -> bool:
        """Whether options may change colors and times."""
        return _is_filtered(self.options)

    @property
    def keeps_times(self) -> bool:
        """Whether no option changes the times of frames."""
        return not (self.is_filtered or _MOVING_OPTIONS & self.options.keys())

    def other_frames(self, other: EncodePlan) -> str | None:
        """The argument by which this encode takes other frames than `other`, for messages; None if it does not."""
        wanted = {
            "pixel_format": (self.pixel_format, other.pixel_format),
            "value_range": (self.input_layout.value_range, other.input_layout.value_range),
            "channels_first": (self.input_layout.channels_first, other.input_layout.channels_first),
        }
        different = (argument(name, own) for name, (own, others) in wanted.items() if own != others)
        return next(different, None)


def plan(request: Request, size: tuple[int, int] | None, beside: Beside | None = None) -> EncodePlan:
    """Plans the encode of frames of `size`. `Encoder` describes the errors.

    A codec such as "auto-h264" is planned with its software encoder.

    Args:
        size: width and height in pixels. None checks the request at `PROBE_SIZE`.
        beside: what comes with the picture, in place of what the request's files have. These are then not read.
    """
    destination = _destination(request)
    program, output, options = destination
    if beside is None:
        sounds = sound.plan_sounds(program, request.audio, output, options)
        labels = Labels.of(request.metadata, request.timecode, request.chapters, request.subtitles, output)
        beside = Beside(sounds, labels)
    video = _video(request, destination, checked_size(PROBE_SIZE if size is None else size))
    rate = None if request.fps is None else frame_rate(request.fps)
    beside, unheld = _held(request, output, beside, rate)
    pixels = pixels_of(request, program, video)
    try:  # FFmpeg makes its header, for this size
        stream = (
            None
            if size is None
            else sound.nut_stream(program, pixels.fed, rate, beside.sounds, request.nominal_fps)
        )
    except EncoderError:
        # The copy of a sound may be what the stream cannot hold. Without one, FFmpeg has failed for another reason.
        if (carried := sound.carried(program, beside.sounds)) == beside.sounds:
            raise
        return plan(request, size, beside._replace(sounds=carried))
    tags = _tag_arguments(video, pixels)
    named = pixels.named
    has_yuv = named is not None and not (is_rgb(named) or is_gray(named))
    return EncodePlan(
        request=request,
        program=program,
        output=output,
        codec=video.codec,
        options=video.options,
        rate=rate,
        pixel_format=video.pixel_format,
        input_layout=video.input_layout,
        output_pixel_format=video.output_pixel_format,
        colors=video.colors if has_yuv and not _is_filtered(video.options) else None,
        sounds=beside.sounds,
        labels=beside.labels,
        warnings=(*unheld, *video.warnings, *_speed_warnings(output, rate)),
        arguments=_arguments(output, video, pixels, beside, rate, stream, tags),
        color_arguments=tuple(tags[1]),
        stream=stream,
        frames=pixels.frames,
        ffmpeg_frames=pixels.fed,
        conversion=pixels.conversion,
    )


class _Destination(NamedTuple):
    """The FFmpeg and the output of a request, and its options without the container."""

    program: str
    output: Output
    options: dict[str, object]


def _video(request: Request, destination: _Destination, size: tuple[int, int]) -> Video:
    program, output, given = destination
    pixel_format = raw_format_name(request.pixel_format, program)
    is_lossless = request.quality == encoders.LOSSLESS
    codec = encoders.encoder_for(request.codec, program, output, is_lossless=is_lossless, frames=pixel_format)
    check_choice("odd_size", request.odd_size, get_args(OddSize))
    input_layout = InputLayout.of(pixel_format, request.value_range, request.channels_first)
    options = _with_quality(program, codec, given, request, are_images=output.are_images)
    asked = requested_format(request.output_pixel_format)
    asked_colors = with_range_of(request.colors, pixel_format, asked)
    chosen = output_format(
        program,
        codec,
        options,
        pixel_format,
        asked and without_range(asked),
        is_lossless=is_lossless,
        are_images=output.are_images,
    )
    if has_alpha(chosen.name or ""):
        options = {**encoder_facts(codec).alpha_options, **options}
    options = with_hdr_metadata(program, codec, asked_colors, options)
    colors = colors_for(codec, asked_colors, size[1])
    _check_copied(colors, pixel_format)
    capabilities.check_codec(program, codec)
    warnings = (
        *chosen.warnings,
        *unused_colors(codec, pixel_format, chosen.name, asked_colors, colors.range),
        *_recoloring_warnings(options, asked_colors),
    )
    return Video(
        codec, options, pixel_format, input_layout, size, chosen.name, asked_colors, colors, warnings
    )


def _held(
    request: Request, output: Output, beside: Beside, rate: Fraction | None
) -> tuple[Beside, tuple[str, ...]]:
    """What the output can hold beside the picture at this rate, and a warning of what it can't."""
    labels = beside.labels
    container.check_rate(rate, output, beside.sounds)
    if labels.timecode is not None:
        check_timecode(labels.timecode, rate)
        if not output.holds_sound:
            raise ValueError(f"{output.name} can't hold a time code. Write mov, mp4 or mkv")
    if not (request.metadata or request.chapters) or output.holds_sound:
        return beside, ()
    beside = beside._replace(labels=replace(labels, metadata=(), chapters=()))
    return beside, (f"{output.name} can't hold metadata and chapters. Write mp4, mov, mkv or webm",)


def _tag_arguments(video: Video, pixels: Pixels) -> tuple[list[str], list[str]]:
    """FFmpeg's arguments for the colors of its input and of its output."""
    centered = is_centered(video.pixel_format, pixels.named)
    return (
        [
            *input_color_arguments(pixels.fed.pixel_format, video.colors, centered=centered),
            *hdr_arguments(video.codec, video.asked_colors),
        ],
        output_color_arguments(pixels.named, video.colors, centered=centered),
    )


def _arguments(
    output: Output,
    video: Video,
    pixels: Pixels,
    beside: Beside,
    rate: Fraction | None,
    stream: NutStream | None,
    tags: tuple[list[str], list[str]],
) -> list[str]:
    """FFmpeg's arguments."""
    sounds, labels = beside
    return [
        *(
            input_arguments(pixels.fed, rate or _TRIAL_RATE, tags[0])
            if stream is None
            else stream_arguments(stream.offset_s, tags[0])
        ),
        *labels.input_arguments(),
        *output_arguments(
            output,
            video.codec,
            pixels.named,
            with_filters(_with_times(video, output, rate), pixels.filters),
            tags[1],
            [
                *sound.output_arguments(sounds, video.options),
                *_label_arguments(labels, video.options, sounds),
            ],
        ),
    ]


def _destination(request: Request) -> _Destination:
    request.check_types()
    program = capabilities.find_ffmpeg(request.settings.ffmpeg)
    options = dict(request.options or {})
    _check_options(options)
    output = Output.of(request.output, options.pop("f", None))
    if request.crash_safe:
        options |= crash_safety.options_for(program, output, options)
    return _Destination(program, output, encoders.with_loop(options, output))


def _check_options(options: Mapping[str, object]) -> None:
    """Checks that no option says what an argument says, nor leaves samples out."""
    check_without_dashes("options", options)
    check_without_colors(options)
    for name, value in options.items():
        option, _, stream = name.partition(":")
        given = argument(f"options.{name}", value)
        texts = [str(one) for one in (value if isinstance(value, list | tuple) else [value])]
        if option == "vcodec" or (option in ("c", "codec") and stream[:1] in ("", "v", "0")):
            raise ValueError(f"{given} chooses the codec. Pass {argument('codec', value)}")
        if option == "r":
            raise ValueError(f"{given} repeats and drops frames. Pass {argument('fps', value)}")
        if option == "s":
            size = re.sub(r"(\d)x(\d)", r"\1:\2", str(value))
            raise ValueError(f"{given} resizes the frames. Pass {argument('options.vf', f'scale={size}')}")
        if option == "vn":
            raise ValueError(f"{given} leaves the video out. Leave {name} out")
        if option == "metadata" and any(one.startswith("rotate=") for one in texts):
            turned = argument("options.vf", "transpose=clock")
            raise ValueError(f"{given} turns no picture. Pass {turned}, or write turned frames")
        if option == "pix_fmt":
            named = argument("output_pixel_format", value)
            raise ValueError(f"{given} bypasses the choice of the pixel format. Pass {named}")
        if option == TIMECODE:
            named = argument(TIMECODE, value)
            raise ValueError(f"{given} bypasses the check of the time code. Pass {named}")
        if any(name == one or name.startswith(f"{one}:") for one in _SHORTENING_SOUND):
            raise ValueError(f"{given} leaves audio samples out. Write fewer samples instead")


def _with_quality(
    program: str, codec: str, options: Mapping[str, object], request: Request, *, are_images: bool
) -> dict[str, object]:
    """FFmpeg's options with the arguments `crf`, `preset` and `quality`."""
    crf, preset = request.crf, request.preset
    if crf is not None and not isinstance(crf, Real):
        raise TypeError(f"crf must be a number, such as 20, not {crf!r}")
    own = {name: value for name, value in (("crf", crf), ("preset", preset)) if value is not None}
    for name, value in own.items():
        if (
            option := next((option for option in options if option.partition(":")[0] == name), None)
        ) is not None:
            also = argument(f"options.{option}", options[option])
            raise ValueError(f"{argument(name, value)} and {also} exclude each other. Pass only one")
        capabilities.check_option(program, codec, name)
    if crf is not None:
        capabilities.check_crf(program, codec, crf)
    written = {name: f"{value:g}" if isinstance(value, Real) else value for name, value in own.items()}
    options = {**written, **options}
    options |= encoders.quality_options(program, codec, request.quality, options, are_images=are_images)
    return options


def _check_copied(colors: VideoColors, pixel_format: str) -> None:
    """Checks that frames can have a matrix that nothing converts to."""
    if colors.matrix not in MATRICES and (is_rgb(pixel_format) or is_gray(pixel_format)):
        raise ValueError(
            f"{argument('colors.matrix', colors.matrix)} is for frames that are YUV already, not {pixel_format}. Pass "
            f"{argument('colors.matrix', 'bt709')}"
        )


def _with_times(video: Video, output: Output, rate: Fraction | None) -> Mapping[str, object]:
    """The options of the video with those by which the output gets the times of the frames."""
    options = video.options
    if rate is None:
        unit_s = max(output.facts.unit_s or TICK_S, encoder_facts(video.codec).unit_s)
        last = {"bsf:v": _LAST_DURATION} if output.facts.holds_length else {}
        options = {
            **_TIMED_OPTIONS,
            _TIME_BASE: f"1:{1 / unit_s}",
            **last,
            **options,
        }
    return options


def _label_arguments(labels: Labels, options: Mapping[str, object], sounds: tuple[Sound, ...]) -> list[str]:
    if not sounds and labels == NO_LABELS:
        return []
    return labels.output_arguments(options, is_mapped=bool(sounds) or "map" in options)


def _is_filtered(options: Mapping[str, object]) -> bool:
    """Whether options may change colors and times."""
    return any(name.partition(":")[0] in _FILTERING for name in options)


def _recoloring_warnings(options: Mapping[str, object], colors: Colors) -> Iterable[str]:
    """The user's filters may convert to other colors than the file is tagged with."""
    for name, value in options.items():
        is_filter = name.partition(":")[0] in _FILTERING and colors.matrix == colors.range == "auto"
        if is_filter and (found := _RECOLORING.search(str(value))):
            yield (
                f"{argument(f'options.{name}', value)} may change colors with {found[0]!r}, but the file is tagged "
                f"with the frames' colors. Pass the new colors, such as {argument('colors.matrix', 'bt709')}"
            )


def _speed_warnings(output: Output, rate: Fraction | None) -> tuple[str, ...]:
    most = output.facts.slow_fps
    if most is None or rate is None or rate <= most:
        return ()
    slow = f"viewers slow down a {output.container_name} of more than {most} frames per second"
    return (f"{slow}. Pass {argument('fps', most)} or less",)
