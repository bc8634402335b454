"""What an encode is asked for: the checked arguments of an `Encoder`, for one FFmpeg and one output."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any, BinaryIO, Literal, Self, get_args

from penstock._common.messages import argument
from penstock._encoding.encoders import (
    BARE_ENDINGS,
    LOSSLESS,
    Quality,
    check_lossless,
    encoder_for,
    hardware_encoders,
    holds_sound,
    quality_options,
    with_loop,
)
from penstock._encoding.frame_form import PLAIN, FrameForm
from penstock._encoding.labels import NO_LABELS, Chapters, Labels
from penstock._encoding.output_pixel_format import (
    AUTO,
    asked_format,
    output_format,
    raw_format,
    unused_colors,
)
from penstock._encoding.sound import Audio, AudioTrack, Sound, plan_sounds
from penstock._ffmpeg.command.arguments import TICK_S, frame_rate
from penstock._ffmpeg.command.colors import (
    MATRICES,
    MATRIX_WORDS,
    colors_for,
    colors_in,
    with_colors_of_options,
    with_hdr_metadata,
)
from penstock._ffmpeg.command.endpoints import Output
from penstock._ffmpeg.command.pixel_formats import is_gray, is_rgb, raw_format_name
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    Colors,
    EncoderSettings,
    check_choice,
    check_settings,
)
from penstock._ffmpeg.program.capabilities import check_codec, check_option, encoders, find_ffmpeg
from penstock.errors import EncoderError

OddSize = Literal["error", "pad"]

# The unit of times in MP4 and QuickTime, in seconds: that of MPEG-2 systems, in which all common frame rates are exact.
# In units of 1 µs, FFmpeg 5.1 lost frames after a pause of 5 minutes, and a pause of 36 minutes broke the file.
_QUICKTIME_UNIT_S = Fraction(1, 90_000)
_QUICKTIME = ("3g2", "3gp", "f4v", "ipod", "ismv", "mov", "mp4", "psp")
# The most units of time from a frame to the next, in MP4 and QuickTime. The files have 31 bits, but FFmpeg 5.1 refuses
# more than 28 bits between the decoding of a frame and its display (mov_read_ctts in libavformat/mov.c).
_MOST_STEPS = 2**28 - 1
_GIF_UNIT_S = Fraction(1, 100)
# The longest time from a frame to the next that other containers hold, in seconds. A delay has 16 bits in GIF and APNG,
# and 24 of milliseconds in WebP.
_LONGEST_STEPS_S = {
    "apng": Fraction(0xFFFF),
    "gif": 0xFFFF * _GIF_UNIT_S,
    "webp": Fraction(0xFFFFFF, 1000),
}
# FFmpeg's reader of NUT ignores a frame rate of this or more (decode_info_header in libavformat/nutdec.c; 5.1 to 9).
_TOO_MANY_FPS_WITH_SOUND = 1000
# The unit of times in Matroska, WebM and FLV is 1 ms.
_MOST_FPS_OF_MILLISECONDS = 1000
_MILLISECONDS = ("flv", "matroska", "webm")
# Encoders that aim at a bit rate, and mistake the unit of time for the time between frames (FFmpeg 5.1: at 1 µs,
# libtheora kept 3 of 48 frames, and the others made 2 to 4 times the error). A quality option avoids this.
_RATED_BY_UNIT = frozenset(
    ("flv", "h263", "h263p", "libtheora", "msmpeg4", "msmpeg4v2", "snow", "wmv1", "wmv2"),
)
_QUALITY_OPTIONS = frozenset(("global_quality", "q", "qscale"))
# FFmpeg's options that leave out a part of the sound.
_SHORTENING_SOUND = ("aframes", "frames:a")
# Viewers of GIF show a frame of less than 1/50 s for 1/10 s (so do all browsers).
_MOST_FPS_OF_GIF = 50
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
# Containers without times, or that number frames, and endings of files without a container. In Ogg, FFmpeg writes the
# time of a frame where that of the next belongs. MPEG program streams have one time for several small frames.
_UNTIMED = (
    *("avi", "dvd", "h264", "hevc", "image2", "image2pipe", "mjpeg", "mpeg", "mxf", "oga", "ogg", "ogv"),
    *("rawvideo", "svcd", "vcd", "vob", "yuv4mpegpipe", *BARE_ENDINGS),
)
# FFmpeg writes only the times of decoding there, which are those of the frames unless the codec reorders them.
_DECODING_TIMES = ("asf", "asf_stream", "avi", "mxf", "mxf_opatom")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeRequest:
    """What an encode is asked for. It does not depend on the size of its pictures.

    Attributes:
        program: the path of FFmpeg.
        output: where the result goes, and in which container.
        options: FFmpeg's options for the output, without those that other attributes have.
        sounds: what comes with the picture.
        settings: the `Encoder`'s.
        codec: FFmpeg's name of the video encoder.
        rate: frames per second; None if each frame comes with its time.
        pixel_format: that of the frames that the caller writes.
        form: how these frames differ from it.
        vflip, odd_size: the `Encoder`'s.
        output_pixel_format: of the video; None if FFmpeg is to choose it.
        colors: the `Encoder`'s, with those that its options tell.
        labels: metadata, chapters and subtitles of the output.
        warnings: what the video cannot hold of the frames.
        hardware: for each hardware encoder to try first, its request, or a sentence on why it cannot be used.
    """

    program: str
    output: Output
    options: Mapping[str, object]
    sounds: tuple[Sound, ...]
    settings: EncoderSettings
    codec: str = ""
    rate: Fraction | None = None
    pixel_format: str = ""
    form: FrameForm = PLAIN
    vflip: bool = False
    odd_size: OddSize = "error"
    output_pixel_format: str | None = None
    colors: Colors = DEFAULT_COLORS
    labels: Labels = NO_LABELS
    warnings: tuple[str, ...] = ()
    hardware: tuple[EncodeRequest | str, ...] = ()

    @classmethod
    def of(
        cls,
        output: str | os.PathLike[str] | BinaryIO,
        *,
        fps: int | float | Fraction | None,
        pixel_format: str = "rgb24",
        value_range: tuple[float, float] | None = None,
        channels_first: bool = False,
        vflip: bool = False,
        odd_size: OddSize = "error",
        codec: str = AUTO,
        quality: Quality | None = None,
        crf: float | None = None,
        preset: str | None = None,
        options: Mapping[str, object] | None = None,
        output_pixel_format: str = AUTO,
        colors: Colors = DEFAULT_COLORS,
        audio: Audio | Sequence[Audio] | None = None,
        metadata: Mapping[str, str] | None = None,
        chapters: Chapters | None = None,
        subtitles: str | os.PathLike[str] | None = None,
        settings: EncoderSettings = DEFAULT_ENCODER_SETTINGS,
    ) -> Self:
        """The request that the arguments of an `Encoder` mean. They are described there, and so are the errors."""
        check_settings(settings, EncoderSettings)
        program = find_ffmpeg(settings.ffmpeg)
        _check_codec_once(codec, options or {})
        given, container_format = _split_container(options or {})
        to = Output.of(output, container_format)
        pixel_format = raw_format_name(pixel_format, program)
        kept = pixel_format if quality == LOSSLESS else None
        encoder = encoder_for(codec, program, to, lossless=kept)
        given = with_loop(given, to)
        _check_whole(given)
        check_choice("odd_size", odd_size, get_args(OddSize))
        request = cls(
            program=program,
            output=to,
            options=given,
            sounds=plan_sounds(program, audio, to, given),
            settings=settings,
            rate=None if fps is None else frame_rate(fps),
            pixel_format=pixel_format,
            form=FrameForm.of(pixel_format, value_range, channels_first),
            vflip=vflip,
            odd_size=odd_size,
            colors=colors,
            labels=Labels.of(metadata, chapters, subtitles, to),
        )
        if (request.labels.metadata or request.labels.chapters) and not holds_sound(to):
            warned = (f"{to.name} has no place for metadata and chapters: write mp4, mov, mkv or webm",)
            bare = replace(request.labels, metadata=(), chapters=())
            request = replace(request, labels=bare, warnings=warned)
        _check_rate(request.rate, to, request.sounds)
        asked = quality, crf, preset, output_pixel_format
        tried = tuple(request._with_hardware(one, *asked) for one in hardware_encoders(codec))
        return replace(request._with_encoder(encoder, *asked), hardware=tried)

    def _with_hardware(self, codec: str, *asked: Any) -> EncodeRequest | str:
        """What `_with_encoder` returns, or why the encoder is not suitable."""
        if codec not in encoders(self.program):
            return f"{codec} is not in this FFmpeg"
        try:
            return self._with_encoder(codec, *asked)
        except (ValueError, EncoderError) as error:
            # Keep the reason only: the rest advises a user who named the encoder.
            return re.split("[.:] ", str(error), maxsplit=1)[0]

    def _with_encoder(
        self,
        codec: str,
        quality: Quality | None,
        crf: float | None,
        preset: str | None,
        output_pixel_format: str,
    ) -> Self:
        """The request for that encoder."""
        program = self.program
        given = _with_quality(program, codec, self.options, crf, preset)
        are_images = self.output.are_images
        given = {**given, **quality_options(program, codec, quality, given, are_images=are_images)}
        if self.rate is None:
            _check_quality(codec, given)
        asked = asked_format(output_pixel_format, given)
        colors, given = with_colors_of_options(self.colors, given, self.pixel_format, asked)
        if asked is not None and asked.startswith("yuvj"):
            asked = asked.replace("yuvj", "yuv")
        chosen = output_format(
            program,
            codec,
            given,
            self.pixel_format,
            asked,
            held=raw_format(self.output),
            is_lossless=quality == LOSSLESS,
            are_images=are_images,
        )
        if quality == LOSSLESS:
            check_lossless(codec, self.pixel_format, chosen.name)
        given = with_hdr_metadata(program, codec, colors, _with_format(codec, given, chosen.name))
        _check_matrix(self.pixel_format, chosen.name, given)
        color_range = colors_for(codec, colors, height=0).range  # of any height
        check_codec(program, codec)
        return replace(
            self,
            codec=codec,
            options=given,
            output_pixel_format=chosen.name,
            colors=colors,
            warnings=(
                *self.warnings,
                *chosen.warnings,
                *unused_colors(codec, self.pixel_format, chosen.name, colors, color_range),
                *_recoloring_warnings(given, colors),
                *_gif_speed_warnings(codec, self.rate),
                *_vpx_alpha_warnings(codec, chosen.name, self.output),
            ),
        )

    @property
    def audio_input(self) -> AudioTrack | None:
        """The sound that the program makes; None if it makes none."""
        made = (sound.audio for sound in self.sounds)
        return next((one for one in made if isinstance(one, AudioTrack)), None)

    def other_frames(self, other: EncodeRequest) -> str | None:
        """The argument by which this request takes other frames than `other`, for messages; None if they do not."""
        wanted = {
            "pixel_format": (self.pixel_format, other.pixel_format),
            "value_range": (self.form.value_range, other.form.value_range),
            "channels_first": (self.form.channels_first, other.form.channels_first),
        }
        different = (argument(name, own) for name, (own, others) in wanted.items() if own != others)
        return next(different, None)

    @property
    def fps(self) -> str:
        """The argument that gave the rate, for messages."""
        return _fps(self.rate)

    @property
    def is_timed(self) -> bool:
        """Whether each frame comes with its time."""
        return self.rate is None

    @property
    def time_unit_s(self) -> Fraction:
        """The unit of the frames' times that the container holds, in seconds."""
        return _QUICKTIME_UNIT_S if self.output.container in _QUICKTIME and self.is_timed else TICK_S

    @property
    def holds_reordered_frames(self) -> bool:
        """Whether the container can store frames that the codec reorders (B-frames)."""
        # In FLV, FFmpeg discards times if a frame is shown more than 15 minutes after its decoding (flvdec.c).
        may_be_far = self.is_timed and self.output.container == "flv"
        return not (may_be_far or self.output.container in _DECODING_TIMES)

    @property
    def distinct_unit_s(self) -> Fraction:
        """Two frames must differ in their times by this unit, in seconds. Not checked if `longest_step_s` is None."""
        return _GIF_UNIT_S if self.output.container == "gif" else self.time_unit_s

    @property
    def longest_step_s(self) -> Fraction | None:
        """The longest time from a frame to the next that the container holds, in seconds; None for any."""
        if (longest_s := _LONGEST_STEPS_S.get(self.output.container)) is not None:
            return longest_s
        return None if self.time_unit_s == TICK_S else Fraction(int(_MOST_STEPS * self.time_unit_s))

    @property
    def is_filtered(self) -> bool:
        """Whether options may change colors and times."""
        return any(name.partition(":")[0] in _FILTERING for name in self.options)

    @property
    def keeps_sound(self) -> bool:
        """Whether no option asks for other channels, rates or samples of the sounds, or leaves some out."""
        named = (name.partition(":") for name in self.options)
        return not any(option in _MIXING and not stream.startswith("v") for option, _, stream in named)

    @property
    def keeps_times(self) -> bool:
        """Whether no option changes the times of frames."""
        return not (self.is_filtered or _MOVING_OPTIONS & self.options.keys())


def holds_times(output: Output) -> bool:
    """Whether an output has a place for the times of frames."""
    return output.container not in _UNTIMED


def _with_quality(
    program: str, codec: str, options: Mapping[str, object], crf: float | None, preset: str | None
) -> dict[str, object]:
    """FFmpeg's options with the arguments `crf` and `preset`."""
    if crf is not None and not isinstance(crf, Real):
        raise TypeError(f"crf must be a number; got {crf!r}. Pass crf=20, for example.")
    own = {name: value for name, value in (("crf", crf), ("preset", preset)) if value is not None}
    for name, value in own.items():
        if (
            option := next((option for option in options if option.partition(":")[0] == name), None)
        ) is not None:
            also = argument(f"options.{option}", options[option])
            raise ValueError(f"{argument(name, value)} and {also} exclude each other: give one")
        check_option(program, codec, name)
    written = {name: f"{value:g}" if isinstance(value, Real) else value for name, value in own.items()}
    return {**written, **options}


def _check_codec_once(codec: str, options: Mapping[str, object]) -> None:
    """Checks that no option names a video codec: the encode is planned for the argument `codec`."""
    for name, value in options.items():
        option, _, stream = name.partition(":")
        if option == "vcodec" or (option in ("c", "codec") and stream[:1] in ("", "v", "0")):
            also = argument(f"options.{name}", value)
            raise ValueError(f"{argument('codec', codec)} and {also} exclude each other: give codec alone")


def _split_container(options: Mapping[str, object]) -> tuple[dict[str, object], str | None]:
    """Splits `options` into the other options and the container format, ``options["f"]``."""
    others = dict(options)
    container_format = others.pop("f", None)
    if container_format is not None and not isinstance(container_format, str):
        raise ValueError(
            f"options['f'] is FFmpeg's name of a container, such as 'mp4'; got {container_format!r}"
        )
    return others, container_format


def _check_whole(options: Mapping[str, object]) -> None:
    """Checks that no option leaves samples out."""
    for name, value in options.items():
        if any(name == one or name.startswith(f"{one}:") for one in _SHORTENING_SOUND):
            raise ValueError(f"{argument(f'options.{name}', value)} leaves samples out: write fewer instead")


def _fps(rate: Fraction | None) -> str:
    """The argument that gave the rate, for messages."""
    if rate is None:
        return argument("fps", None)
    return argument("fps", rate.numerator if rate.denominator == 1 else float(rate))


def _check_rate(rate: Fraction | None, output: Output, sounds: Sequence[Sound]) -> None:
    """Checks that the container and the stream to FFmpeg can have frames of that rate, or with times."""
    if rate is None:
        if not holds_times(output):
            raise ValueError(
                f"{output.container_name} has no place for the times of frames (fps=None): "
                "write mp4, mov, mkv or webm, or give a constant fps"
            )
        return
    given = _fps(rate)
    if output.container == "gif" and rate * _GIF_UNIT_S > 1:
        raise ValueError(f"{given} is too much for GIF, which counts hundredths of a second: give 50 or less")
    if rate > _MOST_FPS_OF_MILLISECONDS and output.container in _MILLISECONDS:
        raise ValueError(f"{given} is too much for a container that counts milliseconds: write mp4 or mov")
    if sounds and rate >= _TOO_MANY_FPS_WITH_SOUND:
        raise ValueError(f"{given} is too much for frames with sound: give fps=None, and time_s to write")


def _check_quality(codec: str, options: Mapping[str, object]) -> None:
    """Checks that the encoder of frames with times has a quality to keep, if it would take their unit for a rate."""
    if codec in _RATED_BY_UNIT and not any(name.partition(":")[0] in _QUALITY_OPTIONS for name in options):
        raise ValueError(
            f"{codec} spends its bits by the frame rate, which fps=None does not give: set "
            f"{argument('options.q:v', 5)}, a constant fps, or another codec"
        )


def _check_matrix(frames: str, output_pixel_format: str | None, options: Mapping[str, object]) -> None:
    """Checks that no option names a matrix by which we do not convert."""
    if output_pixel_format is None or is_rgb(output_pixel_format) or not (is_rgb(frames) or is_gray(frames)):
        return
    # The known matrices of `colorspace` are in `colors` by now.
    known = (*MATRIX_WORDS, "unknown", "unspecified", "undef", "2")
    for name, attribute, word in colors_in(options):
        if attribute == "matrix" and word.lower() not in known:
            raise ValueError(
                f"{argument(f'options.{name}', options[name])} is no matrix by which {frames} becomes "
                f"{output_pixel_format}: colors=Colors(matrix=...) is one of {', '.join(MATRICES)}"
            )


def _recoloring_warnings(options: Mapping[str, object], colors: Colors) -> Iterable[str]:
    """The user's filters may convert to other colors than the file is tagged with."""
    for name, value in options.items():
        is_filter = name.partition(":")[0] in _FILTERING and colors.matrix == colors.range == "auto"
        if is_filter and (found := _RECOLORING.search(str(value))):
            yield (
                f"{argument(f'options.{name}', value)} may change colors by {found[0]!r}, and the file is tagged with "
                f"those of the frames: say which it has then, as by {argument('colors.matrix', 'bt709')}"
            )


def _gif_speed_warnings(codec: str, rate: Fraction | None) -> tuple[str, ...]:
    if codec != "gif" or rate is None or rate <= _MOST_FPS_OF_GIF:
        return ()
    return (f"viewers slow down a GIF of more than {_MOST_FPS_OF_GIF} frames per second: give a lower fps",)


def _vpx_alpha_warnings(codec: str, output_pixel_format: str | None, output: Output) -> tuple[str, ...]:
    """Warns that alpha is lost: VP8 and VP9 store it separately, which only Matroska and WebM can hold."""
    is_beside = codec in ("libvpx", "libvpx-vp9") and output_pixel_format == "yuva420p"
    # The outputs of `tee` may differ.
    if not is_beside or output.container == "tee" or output.is_matroska:
        return ()
    return (f"the frames' alpha is dropped: {codec} video keeps it in .webm and .mkv only",)


def _with_format(
    codec: str, options: Mapping[str, object], output_pixel_format: str | None
) -> dict[str, object]:
    """`options` without a pixel format, which another argument gives, and with what the pixel format requires."""
    options = dict(options)
    if output_pixel_format is not None:
        options = {name: value for name, value in options.items() if name.partition(":")[0] != "pix_fmt"}
    if (codec, output_pixel_format) == ("libvpx", "yuva420p"):
        # FFmpeg refuses VP8 with alpha together with hidden alternate reference frames.
        options = {"auto-alt-ref": 0, **options}
    return options
