"""Settings of `Encoder`, `Decoder` and `AudioDecoder`: colors, and advanced settings."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeVar, get_args

from penstock._common.messages import argument
from penstock._common.types import Mode, Priority
from penstock._native import ThreadPolicy, _Conversion, _count, _seconds, _thread_policy
from penstock._platform.refusals import refuse

#: FFmpeg's names of the primaries and transfer characteristics in ITU-T H.273, tables 2 and 3, by their code points.
PRIMARIES = {
    1: "bt709",
    4: "bt470m",
    5: "bt470bg",
    6: "smpte170m",
    7: "smpte240m",
    8: "film",
    9: "bt2020",
    10: "smpte428",
    11: "smpte431",
    12: "smpte432",
    22: "ebu3213",
}
TRANSFERS = {
    1: "bt709",
    4: "bt470m",
    5: "bt470bg",
    6: "smpte170m",
    7: "smpte240m",
    8: "linear",
    9: "log100",
    10: "log316",
    11: "iec61966-2-4",
    12: "bt1361e",
    13: "iec61966-2-1",
    14: "bt2020-10",
    15: "bt2020-12",
    16: "smpte2084",
    17: "smpte428",
    18: "arib-std-b67",
}
# In cd/m²: what 32 bits hold in units of 0.0001 (ITU-T H.265, D.3.28).
_MOST_LIGHT = (2**32 - 1) / 10_000


def _is_pair(value: object, most: float) -> bool:
    """Whether a value is two numbers from 0 to `most`."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(one, int | float) and 0 <= one <= most for one in value)
    )


Convert = Literal["auto", "native", "ffmpeg"]
ColorMatrix = Literal["auto", "bt601", "bt709", "bt2020"]
#: Matrices that nothing converts to: only frames that are YUV already have them.
CopiedMatrix = Literal["untagged", "fcc", "smpte240m", "bt2020c", "ycgco", "ictcp"]
ColorRange = Literal["auto", "limited", "full"]


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Checks that `value` is one of the `choices` for the argument `name`."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r}")


def native_conversion(convert: Convert, make: Callable[[], _Conversion]) -> _Conversion | None:
    """Returns `make()`, or None if FFmpeg converts. A `ValueError` of `make` is raised only for convert="native"."""
    if convert == "ffmpeg":
        return None
    try:
        return make()
    except ValueError as error:
        if convert == "native":
            raise ValueError(f"{argument('convert', 'native')} is not possible here: {error}") from None
        return None


def check_place(name: str, seconds: float | Fraction | None) -> None:
    """Checks an argument that is a time within a file: None, or a finite number of seconds."""
    if isinstance(seconds, bool):
        raise TypeError(f"{name} must be None or a number of seconds, not {seconds}")
    if _seconds(name, seconds) == math.inf:
        raise ValueError(f"{name} must be None or a finite number of seconds, not {seconds}")


@dataclass(frozen=True, slots=True)
class Colors:
    """Colors of an `Encoder`: how its YUV samples encode RGB, and which colors the RGB values mean.

    Attributes:
        matrix: "bt601", "bt709", "bt2020" or "auto", which is BT.709 for 720 lines or more, and BT.601 below. Frames
            that are YUV already may also have "fcc", "smpte240m", "bt2020c", "ycgco", "ictcp" or "untagged": the file
            then states no matrix, and readers assume one.
        range: "limited" (black at 16, white at 235 of 8 bits), "full" or "auto", which is limited. Motion JPEG always
            has "full".
        primaries: color primaries, by FFmpeg's names (ITU-T H.273, table 2), such as "bt2020"; "auto" is the usual one
            for the matrix. This and the following are tags: samples don't change.
        transfer: transfer characteristics, by FFmpeg's names (table 3), such as "smpte2084" (PQ) or "arib-std-b67"
            (HLG).
        mastering_display: HDR metadata: the display on which the video was graded. All values of the
            `Colors.MasteringDisplay` must be set. Works with libx264, libx265 and libsvtav1; with FFmpeg 9, with any
            codec in MP4, QuickTime, Matroska and WebM.
        content_light: HDR metadata: how bright the video is. Works with the same encoders as `mastering_display`.

    Raises:
        ValueError: if a name is unknown.
        TypeError: if `mastering_display` or `content_light` has another type.
    """

    @dataclass(frozen=True, slots=True)
    class MasteringDisplay:
        """The display on which a video was graded (SMPTE ST 2086).

        Attributes:
            red, green, blue, white: chromaticities x and y of the display's primaries and white (CIE 1931); None if
                unknown.
            luminance: lowest and highest luminance, in cd/m²; None if unknown.
        """

        red: tuple[float, float] | None
        green: tuple[float, float] | None
        blue: tuple[float, float] | None
        white: tuple[float, float] | None
        luminance: tuple[float, float] | None

        @property
        def is_complete(self) -> bool:
            """Whether every value is present and within its range."""
            chromaticities = (self.red, self.green, self.blue, self.white)
            if not all(_is_pair(one, 1) for one in chromaticities) or not _is_pair(
                self.luminance, _MOST_LIGHT
            ):
                return False
            least, most = self.luminance or (0, 0)
            return least < most

    @dataclass(frozen=True, slots=True)
    class ContentLight:
        """How bright a video is (CTA-861.3).

        Attributes:
            max_cll: luminance of the brightest pixel, in cd/m²; 0 if unknown.
            max_fall: average luminance of the brightest frame, in cd/m²; 0 if unknown.
        """

        max_cll: int
        max_fall: int

    matrix: ColorMatrix | CopiedMatrix = "auto"
    range: ColorRange = "auto"
    primaries: str = "auto"
    transfer: str = "auto"
    mastering_display: Colors.MasteringDisplay | None = None
    content_light: Colors.ContentLight | None = None

    def __post_init__(self) -> None:
        check_choice("matrix", self.matrix, (*get_args(ColorMatrix), *get_args(CopiedMatrix)))
        check_choice("range", self.range, get_args(ColorRange))
        check_choice("primaries", self.primaries, ("auto", *PRIMARIES.values()))
        check_choice("transfer", self.transfer, ("auto", *TRANSFERS.values()))
        for name, kind in (
            ("mastering_display", Colors.MasteringDisplay),
            ("content_light", Colors.ContentLight),
        ):
            if not isinstance(value := getattr(self, name), kind | None):
                raise TypeError(f"{name} must be a penstock.video.{kind.__qualname__} or None, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class TestOverrides:
    """What benchmarks and tests vary, and what programs have no use for. `with_overrides` sets it.

    Attributes:
        mode: the transport to FFmpeg, as for `penstock.Writer`.
        queue_bytes: bytes of the frames that may wait for FFmpeg, in the format that FFmpeg gets. None is 24 MiB, or
            four frames if they are more.
        capacity_bytes: capacity of the pipe, as for `penstock.Writer` and `penstock.Reader`.
        convert: who converts pixels: "native", the native thread while it copies; "ffmpeg"; or "auto", the native
            thread where it can.
        rehearse: whether an encode that is not known to work is tried before its first frame.
    """

    mode: Mode = "auto"
    queue_bytes: int | None = None
    capacity_bytes: int | None = None
    convert: Convert = "auto"
    rehearse: bool = True


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """What `EncoderSettings` and `DecoderSettings` have in common, and describe."""

    queue_items: int | None = None
    policy: ThreadPolicy | Priority | None = None
    ffmpeg: str | os.PathLike[str] | None = None
    ffmpeg_policy: ThreadPolicy | Priority | None = None
    stall_timeout: float | None = 60.0
    # No field, so that no signature has it.
    _overrides: ClassVar[TestOverrides] = TestOverrides()

    def __post_init__(self) -> None:
        if self.queue_items is not None:
            _count("queue_items", self.queue_items)
        for name in ("policy", "ffmpeg_policy"):
            if (policy := getattr(self, name)) is not None:
                object.__setattr__(self, name, _thread_policy(policy))
        if self.ffmpeg_policy is not None:
            refuse("ffmpeg_policy")
        if _seconds("stall_timeout", self.stall_timeout) == 0:
            raise ValueError("stall_timeout must be None or more than 0 seconds, not 0")


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(_Settings):
    """Advanced settings of an `Encoder`: which FFmpeg to run, its queue, priorities and timeouts.

    Attributes:
        queue_items: maximum number of frames that wait for FFmpeg before ``write`` waits. They take at most 24 MiB, or
            four frames if these are larger. None is 16.
        policy: priority and CPUs of the native thread: a `penstock.cpu.ThreadPolicy`, or a level such as
            ``"below-normal"``.
        ffmpeg: path or name of the program; None finds one (see `penstock.video.find_ffmpeg`). It must call ``read`` on
            its standard input: a program that splices it onward, such as ``pv``, must not get zero-copy writes.
        ffmpeg_policy: priority and CPUs of all of FFmpeg's threads. With ``near=threading.get_native_id()`` here and in
            `policy`, FFmpeg and the native thread share the L3 cache of the calling thread.
        stall_timeout: seconds without a sign of life from FFmpeg (no frame, no CPU time used) until a waiting call
            raises `StalledError`. None waits forever.

    Raises:
        ValueError, TypeError: if a value is impossible.
    """


@dataclass(frozen=True, kw_only=True)
class DecoderSettings(_Settings):
    """Advanced settings of a `Decoder` or an `AudioDecoder`: threads, and which FFmpeg program to run.

    libav in this process uses `threads` and `conversion_threads`. With `policy`, `ffmpeg` or `ffmpeg_policy`, an FFmpeg
    program also reads files.

    Attributes:
        queue_items: number of frames, or blocks of samples, to read ahead from the FFmpeg program, or from an isolated
            decoder's process. None is 4.
        policy: priority and CPUs of the thread that reads from the program: a `penstock.cpu.ThreadPolicy`, or a
            level such as ``"below-normal"``.
        ffmpeg: path or name of the program; None finds one if it's needed (see `penstock.video.find_ffmpeg`).
        ffmpeg_policy: priority and CPUs of all of the program's threads.
        threads: number of threads that decode, in libav or in the program. None is one per CPU, or per CPU of a
            container's quota, at most 16 in libav, which decodes audio with one. Theora is always decoded with one.
            libav holds a decoded frame in memory for each. Use fewer if several processes decode at once.
        conversion_threads: number of native threads that convert pixels after libav, 0 to 16. All decoders of a process
            share them. None is 2, or 0 if the process may use one CPU only. With 0, the thread that reads converts.
        stall_timeout: seconds without a sign of life from that process (no frame, no CPU time used) until a waiting
            call raises `StalledError`. None waits forever. For a URL that libav reads, seconds without data. libav in
            this process has no such limit for files.

    Raises:
        ValueError, TypeError: if a value is impossible.
    """

    threads: int | None = None
    conversion_threads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threads is not None:
            _count("threads", self.threads)
        if self.conversion_threads is not None and operator.index(self.conversion_threads) not in range(17):
            raise ValueError(f"conversion_threads must be from 0 to 16, not {self.conversion_threads}")


_AnySettings = TypeVar("_AnySettings", bound=_Settings)


def with_overrides(settings: _AnySettings, **overrides: Any) -> _AnySettings:
    """A copy of `settings` with these `TestOverrides`."""
    copied = replace(settings)
    object.__setattr__(copied, "_overrides", TestOverrides(**overrides))
    return copied


def with_ffmpeg(settings: _AnySettings, program: str) -> _AnySettings:
    """A copy of `settings` that names this program."""
    copied = with_overrides(settings)
    object.__setattr__(copied, "ffmpeg", program)
    object.__setattr__(copied, "_overrides", settings._overrides)
    return copied


def check_settings(settings: object, kind: type[object], name: str = "settings") -> None:
    """Checks that the argument `name` is of that kind."""
    if not isinstance(settings, kind):
        raise TypeError(
            f"{name} must be of type {kind.__name__}, not {settings!r}. Pass penstock.video.{kind.__name__}()"
        )


DEFAULT_COLORS = Colors()
DEFAULT_ENCODER_SETTINGS = EncoderSettings()
DEFAULT_DECODER_SETTINGS = DecoderSettings()
