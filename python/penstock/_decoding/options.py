"""What a `Decoder` and an `AudioDecoder` are asked for: their arguments, declared once, as one value."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Annotated, Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike

from penstock._common.command_line import CommandOption
from penstock._common.messages import argument
from penstock._ffmpeg.command.arguments import TICK_S, check_without_dashes, frame_rate
from penstock._ffmpeg.command.pixel_formats import DEFAULT_FORMAT, SOURCE
from penstock._ffmpeg.command.settings import (
    DEFAULT_DECODER_SETTINGS,
    ColorMatrix,
    ColorRange,
    DecoderSettings,
    check_choice,
    check_place,
    check_settings,
)
from penstock._native import _count

Fit = Literal["stretch", "cover", "contain"]
FloatType = Literal["float16", "float32"]
SampleType = Literal["uint8", "int16", "int32", "float32", "float64"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """The arguments of a `Decoder`, by the same names.

    ``make fmt`` writes the parameters and the ``Args:`` of `Decoder` from these fields, and `DecoderOptions`. The
    command line has each `CommandOption`.
    """

    fps: Annotated[
        int | float | Fraction | None,
        CommandOption(
            "--fps RATE",
            "Frames per second, at a fixed rate: frames are repeated and left out for that. Only for files. By "
            "default, each frame comes once.",
        ),
    ] = None
    """frames per second, at a fixed rate. Frame k is then the frame on screen at ``start + k / fps``, which is its
    `VideoFrame.time_s`. Frames are repeated and left out for that, until the last one is over. Iteration, `len`,
    numbers, times and slices count so, and `VideoFrame.source_index` is the number in the file. Only for regular files
    and bytes, without `filters`. At most 1,000,000. None is each frame once. An image sequence has all of its images at
    this rate, 25 by default."""
    pixel_format: str = DEFAULT_FORMAT
    """FFmpeg's name of the frames' pixel format (``ffmpeg -pix_fmts``); "source" is the file's own, in the byte order
    of this machine. rgb24, bgr24, rgba and gray return uint8; rgb48le, rgba64le, and YUV of more than 8 bits, uint16;
    grayf32le and gbrpf32le, float32. If you don't pass it, gray and RGB of more than 8 bits, floats, and YUV of more
    than 12 bits become 8 bits, with a `penstock.FFmpegWarning`. For formats with alpha, and for "source" (which is then
    yuva420p), libvpx also decodes the alpha of VP8 and VP9 in WebM."""
    size: Annotated[
        tuple[int | None, int | None] | None,
        CommandOption(
            "--size WxH",
            "Scale to this width and height: 1280x720. 1280x or x720 keeps the aspect ratio.",
        ),
    ] = None
    """width and height in pixels to scale to. One of them may be None, which keeps the aspect ratio. None is the
    video's own size, or the size that `filters` make."""
    start: Annotated[
        float | None,
        CommandOption(
            "--start TIME",
            "Begin with the frame on screen at this time: seconds, or 0:01:30.5.",
        ),
    ] = None
    """time in seconds, as `VideoFrame.time_s` counts, of the first frame. A time means the frame that is on screen
    then: the last one that isn't later, or the first of the video if all are. `filters` get the frames from that one
    on; of a pipe, a device or a URL, they get all frames, and `start` is a time after them."""
    end: Annotated[
        float | None,
        CommandOption("--end TIME", "Leave out the frames from this time on."),
    ] = None
    """time in seconds at which the part ends: frames that begin then or later are left out."""
    duration: Annotated[
        float | None,
        CommandOption("--duration TIME", "Leave out the frames from so long after --start on."),
    ] = None
    """seconds from `start` to the end, instead of `end`; without `start`, from 0."""
    count: Annotated[int | None, CommandOption("--count N", "Deliver at most N frames.", least=1)] = None
    """maximum number of frames, instead of `end`; None reads all."""
    stream: Annotated[
        int | None,
        CommandOption(
            "--stream N",
            "Number of the video stream, from 0. The default is the best one.",
            least=0,
        ),
    ] = None
    """number of the video stream, from 0; None picks the best one: the default stream, never a cover picture."""
    filters: Annotated[
        str | None,
        CommandOption(
            "--filters FILTERS",
            "FFmpeg's filters (-vf) for all frames, before --crop and --size: yadif,hqdn3d.",
        ),
    ] = None
    """FFmpeg's filters (``-vf``) to apply first, in the file's own pixel format. Their output is scaled to `size`. They
    need an FFmpeg program, which can't do random access. If `size` isn't given in full, FFmpeg runs for one frame first
    to learn the size that the filters make: for a pipe or a URL, of a test picture."""
    color_matrix: Annotated[
        ColorMatrix,
        CommandOption(
            "--color-matrix",
            "Matrix between the file's YUV and RGB. The default (auto) is the file's tag, or bt601 without a tag.",
            choices=get_args(ColorMatrix),
        ),
    ] = "auto"
    """the matrix between the file's YUV and RGB: "bt601", "bt709" or "bt2020". "auto" is the file's tag, or BT.601
    without a tag."""
    color_range: Annotated[
        ColorRange,
        CommandOption(
            "--color-range",
            "Whether the file's black and white are 16 and 235 of 255 (limited) or 0 and 255 (full). The default "
            "(auto) is the file's tag, or limited without a tag.",
            choices=get_args(ColorRange),
        ),
    ] = "auto"
    """"limited" (black at 16, white at 235 of 8 bits) or "full". "auto" is the file's tag, or limited without a tag."""
    conceal_errors: Annotated[
        bool,
        CommandOption(
            "--conceal-errors",
            "Continue after damage in the file, with the frames that the decoder makes of it.",
        ),
    ] = False
    """whether to continue after damage, with the frames that libav or FFmpeg makes of it. libav then decodes with one
    thread."""
    follow_playlists: Annotated[
        bool,
        CommandOption(
            "--follow-playlists",
            "Also read local playlists (HLS, DASH, ffconcat), and open the local files that they name.",
        ),
    ] = False
    """whether a local file may be a playlist, whose local files FFmpeg opens: see `penstock.probe`."""
    input_options: Mapping[str, object] | None = None
    """options of the FFmpeg program for its input, without their dash, such as ``{"hwaccel": "cuda"}``. They need an
    FFmpeg program, which can't do random access. The key of an encrypted MP4 file is one: ``{"decryption_key":
    "76a6…"}``."""
    isolated: Annotated[
        bool | Literal["strict"],
        CommandOption(
            "--isolated",
            "Read one file that you don't trust, in a sandbox that can't read other files, write files or open "
            "connections.",
        ),
    ] = False
    """whether other processes parse the file, for files that you don't trust: one for the iteration, and one for random
    access. They run in a sandbox: they can't read other files, write files or open sockets, and their memory and CPU
    time are limited. Only for one regular file, or bytes. `engine` reports what the kernel can't confine; "strict"
    raises a `DecoderError` then."""
    crop: Annotated[
        tuple[int, int, int, int] | None,
        CommandOption(
            "--crop X,Y,W,H",
            "Use only a part of the picture: its left and top edge, its width and height, in pixels of the upright "
            "picture after --filters. --size scales this part.",
        ),
    ] = None
    """left, top, width and height in pixels of the part that is used, of the upright picture: rotated as the file says,
    and after `filters`. `size` scales this part."""
    fit: Annotated[
        Fit,
        CommandOption(
            "--fit",
            "How the picture becomes --size, if their shapes differ: change its aspect ratio (stretch, the default), "
            "cut off what is beyond the middle (cover), or add a border (contain).",
            choices=get_args(Fit),
        ),
    ] = "stretch"
    """how the picture becomes `size`, if their shapes differ: "stretch" changes its aspect ratio, "cover" cuts off what
    is beyond the middle, and "contain" adds a border. Pixels that aren't square stay so."""
    fill: Annotated[
        tuple[float, ...] | None,
        CommandOption(
            "--fill SAMPLE,...",
            "Color of this border, a sample for each channel: 255,255,255. The default is black.",
        ),
    ] = None
    """samples of this border, one for each channel, in their order; None is black."""
    channels_first: bool = False
    """whether arrays are channels × height × width, for packed RGB and gray."""
    dtype: FloatType | None = None
    """"float32" or "float16", for samples as floats, which are computed from those of `pixel_format`."""
    value_range: tuple[float, float] | None = None
    """the floats that stand for the smallest and the largest sample, such as ``(0.0, 1.0)``. dtype and value_range
    belong together. Each value is computed in float64, and rounded once."""
    settings: Annotated[
        DecoderSettings,
        CommandOption("--ffmpeg PATH", "The FFmpeg to run. `penstock info` shows the default."),
    ] = DEFAULT_DECODER_SETTINGS
    """advanced settings: how many threads decode and convert, and which FFmpeg program to run instead. See
    `DecoderSettings`."""

    def checked(self) -> DecodeOptions:
        """The same, with `end` in place of `duration`, and with exact types.

        Raises:
            ValueError, TypeError: an argument is impossible.
        """
        check_settings(self.settings, DecoderSettings)
        check_choice("color_matrix", self.color_matrix, get_args(ColorMatrix))
        check_choice("color_range", self.color_range, get_args(ColorRange))
        start, end = part_of(self.start, self.end, self.duration, self.count)
        rate = self.rate
        if self.count is not None:
            _count("count", self.count)
        if not isinstance(self.pixel_format, str):
            raise TypeError(
                f"pixel_format must be a str, not {self.pixel_format!r}. Pass pixel_format={SOURCE!r} for that of the "
                "file"
            )
        check_without_dashes("input_options", self.given_input)
        self._check_form()
        return replace(
            self, start=start, end=end, duration=None, fps=rate, input_options=dict(self.given_input)
        )

    def _check_form(self) -> None:
        check_choice("fit", self.fit, get_args(Fit))
        if self.dtype is not None:
            check_choice("dtype", self.dtype, get_args(FloatType))
        if (self.dtype is None) != (self.value_range is None):
            raise ValueError(
                "dtype and value_range belong together. Pass dtype='float32' and value_range=(0.0, 1.0), or neither"
            )
        if self.fill is not None and self.fit != "contain":
            raise ValueError(
                f"{argument('fill', self.fill)} has no effect without {argument('fit', 'contain')}. Leave it out"
            )
        if self.value_range is not None:
            self._check_value_range()
        if self.crop is not None:
            self._check_crop()

    def _check_value_range(self) -> None:
        try:
            low, high = map(float, self.value_range or ())
        except (TypeError, ValueError):
            raise TypeError(f"value_range must be two numbers, not {self.value_range!r}") from None
        most = float(np.finfo(self.dtype or "float32").max)
        if not -most <= low < high <= most:
            raise ValueError(
                f"value_range must be two finite numbers of {self.dtype}, the lower first, not "
                f"{self.value_range!r}"
            )

    def _check_crop(self) -> None:
        try:
            left, top, width, height = map(operator.index, self.crop or ())
        except (TypeError, ValueError):
            raise TypeError(f"crop must be (left, top, width, height) in pixels, not {self.crop!r}") from None
        if min(left, top) < 0 or min(width, height) < 1:
            raise ValueError(f"crop must have no negative place and no empty size, not {self.crop!r}")

    @property
    def needs_own_size(self) -> bool:
        """Whether the delivered size follows from that of the picture, also if a size is given."""
        return self.crop is not None or self.fit != "stretch"

    @property
    def rate(self) -> Fraction | None:
        """`fps` as a fraction."""
        rate = None if self.fps is None else frame_rate(self.fps)
        if rate is not None and rate * TICK_S > 1:
            raise ValueError(f"fps must be at most {int(1 / TICK_S):,} frames per second, not {self.fps!r}")
        return rate

    @property
    def given_input(self) -> Mapping[str, object]:
        """`input_options`, or none."""
        return self.input_options or {}

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by their names."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def of_all_frames(self) -> DecodeOptions:
        """The same for all frames of the file."""
        return replace(self, start=None, end=None, fps=None, count=None)

    @property
    def as_stored(self) -> DecodeOptions:
        """The same for pictures as they are stored, without arguments about their form."""
        form = DecodeOptions(input_options={"autorotate": 0})
        names = ("size", "input_options", "crop", "fit", "fill", "channels_first", "dtype", "value_range")
        plain: dict[str, Any] = {name: getattr(form, name) for name in names}
        return replace(self, **plain)

    @property
    def is_source_format(self) -> bool:
        """Whether frames keep the pixel format of the file."""
        return self.pixel_format == SOURCE

    @property
    def keeps_stored_orientation(self) -> bool:
        """Whether pictures stay as they are stored, and are not turned for display."""
        return "noautorotate" in self.given_input or self.given_input.get("autorotate") in (0, "0")


def part_of(
    start: float | None, end: float | None, duration: float | None, count: int | None = None
) -> tuple[float | None, float | None]:
    """The beginning and the end of the part that these arguments of the `Decoder` select."""
    places = {"start": start, "end": end, "duration": duration}
    for name, seconds in places.items():
        check_place(name, seconds)
    ends = {"end": end, "duration": duration, "count": count}
    if len(given := [argument(name, value) for name, value in ends.items() if value is not None]) > 1:
        raise ValueError(f"{' and '.join(given)} can't be combined. Pass only one of them")
    start = None if start is None else float(start)
    if duration is not None:
        end = (start or 0.0) + duration
    if end is not None and end <= (start or 0.0):
        raise ValueError(
            f"{given[0]} leaves no time after {argument('start', start or 0.0)}. Pass a larger value"
        )
    return start, None if end is None else float(end)


class DecoderOptions(TypedDict, total=False):
    """The arguments of `Decoder`, by the same names."""

    fps: int | float | Fraction | None
    pixel_format: str
    size: tuple[int | None, int | None] | None
    start: float | None
    end: float | None
    duration: float | None
    count: int | None
    stream: int | None
    filters: str | None
    color_matrix: ColorMatrix
    color_range: ColorRange
    conceal_errors: bool
    follow_playlists: bool
    input_options: Mapping[str, object] | None
    isolated: bool | Literal["strict"]
    crop: tuple[int, int, int, int] | None
    fit: Fit
    fill: tuple[float, ...] | None
    channels_first: bool
    dtype: FloatType | None
    value_range: tuple[float, float] | None
    settings: DecoderSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDecodeOptions:
    """The arguments of an `AudioDecoder`, by the same names, as `DecodeOptions` for a `Decoder`."""

    stream: int | None = None
    """number of the audio stream, from 0; None picks the best one."""
    sample_rate: int | None = None
    """samples per second to resample to; None is the file's own rate."""
    channels: int | None = None
    """number of channels to mix to; None is the file's own. The file's own number leaves the channels as they are."""
    dtype: SampleType = "float32"
    """dtype of the samples."""
    matrix: ArrayLike | None = None
    """how to mix: an array of delivered channels × the file's channels, instead of `channels`. Each delivered channel
    is the sum of the file's, times the numbers of its row."""
    start: float | None = None
    """time of the first sample, in seconds as for `Decoder`'s `start`. Earlier samples are dropped. If the audio begins
    later, silence comes first. It's exact to the sample: ``read_all()`` is the same as from 0, but for the first
    ``round(start * sample_rate)`` samples. None begins with the file's first sample. Chained Ogg and joined MPEG-TS
    restart their times at each join; Penstock counts on there. From an FFmpeg program, Matroska and FLV are up to 1 ms
    off, and WMA 0.1 s."""
    end: float | None = None
    """time in seconds at which the part ends."""
    duration: float | None = None
    """number of seconds to decode, instead of `end`; None decodes all. It's ``round(duration * sample_rate)`` samples,
    or less at the end of the audio."""
    conceal_errors: bool = False
    """as for `Decoder`."""
    follow_playlists: bool = False
    """as for `Decoder`."""
    input_options: Mapping[str, object] | None = None
    """as for `Decoder`."""
    isolated: bool | Literal["strict"] = False
    """as for `Decoder`: one process for the iteration, and one for windows. Not with arguments for which an FFmpeg
    program reads."""
    settings: DecoderSettings = DEFAULT_DECODER_SETTINGS
    """as for `Decoder`."""

    @property
    def given_input(self) -> Mapping[str, object]:
        """`input_options`, or none."""
        return self.input_options or {}

    def check(self) -> None:
        """Checks what can be checked without the file.

        Raises:
            ValueError, TypeError: an argument is impossible.
        """
        check_settings(self.settings, DecoderSettings)
        check_without_dashes("input_options", self.given_input)
        check_choice("dtype", self.dtype, get_args(SampleType))
        for name in ("start", "end", "duration"):
            check_place(name, getattr(self, name))
        if self.end is not None and self.duration is not None:
            both = f"{argument('end', self.end)} and {argument('duration', self.duration)}"
            raise ValueError(f"{both} can't be combined. Pass only one of them")
        if self.end is not None and self.end < (self.start or 0.0):
            raise ValueError(
                f"{argument('end', self.end)} is before {argument('start', self.start)}. Pass a larger value"
            )
