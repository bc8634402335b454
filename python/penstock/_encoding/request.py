"""What an `Encoder` is asked for: its arguments, declared once, as one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Annotated, Any, BinaryIO, Literal, Self, TypedDict, get_args

from penstock._common.command_line import CommandOption
from penstock._common.reports import EncoderStats
from penstock._encoding.encoders import Quality
from penstock._encoding.output_pixel_format import AUTO
from penstock._encoding.sound import Audio
from penstock._ffmpeg.command.settings import (
    DEFAULT_COLORS,
    DEFAULT_ENCODER_SETTINGS,
    PRIMARIES,
    TRANSFERS,
    ColorMatrix,
    ColorRange,
    Colors,
    EncoderSettings,
    check_settings,
)
from penstock._ffmpeg.program.capabilities import did_you_mean

OddSize = Literal["error", "pad"]


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of an `Encoder`, by the same names. `plan` checks them.

    ``make fmt`` writes the parameters and the ``Args:`` of `Encoder` from these fields, and `EncoderOptions`. The
    command line has each `CommandOption`.
    """

    output: str | os.PathLike[str] | BinaryIO
    _: KW_ONLY
    fps: int | float | Fraction | None
    """frames per second, more than 0. ``Fraction(30000, 1001)`` is exact. A float becomes the nearest fraction with a
    denominator of at most a million. None means a variable frame rate: ``write`` then needs the time of each frame
    (``time_s``), and FFmpeg takes 0.1 s longer to start the first time."""
    size: tuple[int, int] | None = None
    """width and height in pixels. None takes them from the first frame, if `pixel_format` is packed or gray."""
    pixel_format: str = "rgb24"
    """layout of the frames that you pass to ``write``: FFmpeg's name of any raw format (``ffmpeg -pix_fmts``)."""
    value_range: tuple[float, float] | None = None
    """two finite numbers, such as ``(0.0, 1.0)`` or ``(-1.0, 1.0)``, for frames of float16, float32 or float64. The
    first becomes 0, and the second the highest sample of `pixel_format`, 255 or 65535. Values between them are rounded.
    Samples outside are clipped, and the report counts them. NaN makes ``write`` raise. Only for packed RGB and gray."""
    channels_first: bool = False
    """whether frames are channels × height × width, as in PyTorch (1 × height × width for gray). Only for packed RGB
    and gray."""
    vflip: Annotated[
        bool,
        CommandOption(
            "--vflip", "Flip the frames: their first row is the bottom of the picture, as in OpenGL."
        ),
    ] = False
    """whether the first row in memory is the bottom of the picture, as in OpenGL."""
    odd_size: Annotated[
        OddSize,
        CommandOption(
            "--odd-size",
            "What to do with a width or height that the video can't have: fail (error, the default), or repeat the "
            "last column or row (pad).",
            choices=get_args(OddSize),
        ),
    ] = "error"
    """what to do if `output_pixel_format` can't have this width or height: "error" raises, "pad" repeats the last
    column or row."""
    codec: Annotated[
        str,
        CommandOption(
            "--codec NAME",
            "FFmpeg's encoder, or a format: libx265, hevc, h264_nvenc. `penstock info` lists them. auto-h264, "
            "auto-hevc and auto-av1 use a hardware encoder if one works. The default (auto) follows OUTPUT's name: "
            "libx264 for .mp4, .mkv and .mov, VP9 for .webm, and so on.",
        ),
    ] = AUTO
    """FFmpeg's name of a video encoder (``ffmpeg -encoders``), or of a format: "h264" (or "H.264", "x264"), "hevc",
    "av1", "vp9" and others use FFmpeg's preferred encoder, and libsvtav1 for AV1. "auto" follows the suffix of the
    output: VP9 for .webm, AV1 for .avif, H.264 for .mp4, .mkv and .mov. The suffixes .gif, .webp, .apng, .png, .jpg and
    others mean one codec, and "auto" refuses unknown suffixes. "auto-h264", "auto-hevc" and "auto-av1" use a hardware
    encoder if one works: NVIDIA's (nvenc), Intel's (qsv) or AMD's (amf). Each is tried with one frame of this size and
    these options, once per process. If none works, they use libx264, libx265, and libsvtav1 or libaom-av1. The report
    says which encoder was used (`penstock.video.EncodeReport`)."""
    quality: Annotated[
        Quality | None,
        CommandOption(
            "--quality",
            "A quality that looks the same with all common encoders. lossless keeps every sample, or fails. --crf, or "
            "an --option for the quality, overrides it.",
            choices=get_args(Quality),
        ),
    ] = None
    """"draft", "good" or "master", which look alike with each of the common encoders; or "lossless", which keeps every
    sample, or raises. Without a `codec`, "lossless" uses ffv1 if H.264 can't keep the samples and the container holds
    FFV1 (.mkv). `crf`, and a quality or a bit rate among the `options`, override the level; together with "lossless",
    they raise. None is the codec's own default."""
    crf: Annotated[
        float | None,
        CommandOption(
            "--crf N",
            "Constant quality: a lower number means better quality and a larger file. For libx264 0 to 51; the "
            "default is 23.",
        ),
    ] = None
    """constant quality, if the codec has that option. A lower number means better quality and a larger file. libx264
    and libx265 accept 0 to 51, VP9 and AV1 encoders 0 to 63. The default of libx264 is 23."""
    preset: Annotated[
        str | None,
        CommandOption("--preset NAME", "Speed against file size: ultrafast, medium, slow."),
    ] = None
    """speed of the codec against file size, if it has that option: "ultrafast" to "veryslow" for libx264."""
    crash_safe: Annotated[
        bool,
        CommandOption(
            "--crash-safe",
            "Write a file that plays even if FFmpeg is killed, but for about the last second. For MP4, QuickTime, "
            "Matroska and WebM.",
        ),
    ] = False
    """whether the file plays if FFmpeg is killed before ``close``. A kill then costs half a second, and the frames that
    the encoder holds back. MP4 and QuickTime get fragments, Matroska and WebM short clusters; times stay exact. MP4 and
    QuickTime can then be written to a pipe or an object, too. Other containers raise."""
    options: Annotated[
        Mapping[str, object] | None,
        CommandOption(
            "--option NAME=VALUE",
            "FFmpeg option for the output, without its dash: tune=film. May be repeated.",
            is_repeated=True,
        ),
        CommandOption(
            "--format NAME",
            "The container, if OUTPUT's name doesn't determine it: mp4, matroska, mpegts, flv, hls.",
        ),
    ] = None
    """FFmpeg's output options without their dash, ``{"tune": "film", "g": 60}``. ``{"f": "hls"}`` names the container
    (``ffmpeg -muxers``), which otherwise follows from the file's name. None as a value means an option without a value.
    A list repeats the option, ``{"map": ["0:v", "0:a"]}``. Options that change the number of frames (``t``, ``vf`` with
    ``fps``) make ``close`` raise, because it compares the frames submitted and encoded."""
    output_pixel_format: Annotated[
        str,
        CommandOption(
            "--output-pixel-format NAME",
            "Pixel format of the video. The default (auto) is the frames' own for a lossless codec, a format with "
            "alpha if the frames and the codec have alpha, and otherwise yuv420p, which plays everywhere. 'ffmpeg' "
            "leaves it to FFmpeg.",
        ),
    ] = AUTO
    """pixel format of the video. "auto" keeps the samples for a lossless codec (ffv1, png, rawvideo) and for image
    files, as far as the format can, and keeps alpha if the codec supports it. Otherwise "auto" means yuv420p, or the
    codec's nearest format. yuv420p plays everywhere, and needs an even width and height. If "auto" drops alpha or bits,
    you get an `FFmpegWarning`. "ffmpeg" leaves the choice to FFmpeg."""
    colors: Annotated[
        Colors,
        CommandOption(
            "--color-matrix",
            "Matrix between RGB and the video's YUV. The default (auto) is bt709 for 720 lines or more, and bt601 "
            "below.",
            choices=get_args(ColorMatrix),
        ),
        CommandOption(
            "--color-range",
            "Whether the video's black and white are 16 and 235 of 255 (limited) or 0 and 255 (full). The default "
            "(auto) is limited, or full for JPEG.",
            choices=get_args(ColorRange),
        ),
        CommandOption(
            "--color-primaries NAME",
            "Tag of the color primaries, by FFmpeg's names: bt2020. The default (auto) is the usual one for the "
            "matrix.",
            choices=("auto", *PRIMARIES.values()),
        ),
        CommandOption(
            "--color-transfer NAME",
            "Tag of the transfer characteristics, by FFmpeg's names: smpte2084 (PQ), arib-std-b67 (HLG). The default "
            "(auto) is the usual one for the matrix.",
            choices=("auto", *TRANSFERS.values()),
        ),
    ] = DEFAULT_COLORS
    """matrix and range of the video's YUV, which the file states. If your frames are YUV already, pass the colors that
    they were made with. `options` can't have FFmpeg's color options."""
    audio: Annotated[
        Audio | Sequence[Audio] | None,
        CommandOption(
            "--audio FILE",
            "Add the audio of FILE, which ends with the video. It's copied if the container accepts it, and otherwise "
            "encoded. PCM samples (WAV) become AAC in MP4. May be repeated, for several audio tracks.",
            is_repeated=True,
        ),
    ] = None
    """the audio: a path, an `AudioFile`, an `AudioTrack` for ``write_audio``, or a list of these, one for each audio
    track. Audio from a file is copied if the container accepts it, and otherwise encoded (PCM, as in WAV, becomes AAC
    in MP4). It ends with the video. Options for its encoder, such as ``{"b:a": "192k"}`` among the `options`, force
    encoding."""
    metadata: Annotated[
        Mapping[str, str] | None,
        CommandOption(
            "--metadata TAG=VALUE", "A tag of the file: title=Waves. May be repeated.", is_repeated=True
        ),
    ] = None
    """the file's tags, ``{"title": "Waves", "artist": "Ada"}``. Containers keep the names that they know. MP4 and
    QuickTime keep others with ``{"movflags": "use_metadata_tags"}`` among the `options`."""
    timecode: Annotated[
        str | None,
        CommandOption(
            "--timecode HH:MM:SS:FF", "The time code of the first frame; HH:MM:SS;FF for drop frame."
        ),
    ] = None
    """the time code of the first frame, ``"01:00:00:00"``, or ``"01:00:00;00"`` for drop frame, which needs 30000/1001
    or 60000/1001 frames per second. MP4, QuickTime, Matroska, WebM, MXF, AVI and NUT keep it, and others raise."""
    chapters: Sequence[tuple[float, str]] | None = None
    """the start of each chapter in seconds, and its title: ``[(0.0, "Intro"), (5.0, "End")]``."""
    subtitles: Annotated[
        str | os.PathLike[str] | None,
        CommandOption(
            "--subtitles FILE",
            "Add subtitles that players show on request: .srt, .vtt or .ass. For MP4, QuickTime, Matroska and WebM.",
        ),
    ] = None
    """a subtitle file, such as ``.srt``, ``.vtt`` or ``.ass``, which players show on request. For MP4, QuickTime,
    Matroska and WebM."""
    progress: bool | int | Callable[[EncoderStats], object] = False
    """True draws a bar on standard error. A number of frames draws a bar with a total. A callable is called with an
    `EncoderStats` twice a second, on a thread of its own, and once at the end."""
    settings: Annotated[
        EncoderSettings,
        CommandOption("--ffmpeg PATH", "The FFmpeg to run. `penstock info` shows the default."),
    ] = DEFAULT_ENCODER_SETTINGS
    """advanced settings: which FFmpeg to run, its queue, priorities and timeouts."""
    # The rate of a source whose frames keep their times, for headers. Without a sentence, it is no argument.
    nominal_fps: Fraction | None = None

    @classmethod
    def of(cls, output: str | os.PathLike[str] | BinaryIO, given: Mapping[str, Any]) -> Self:
        """The request with these arguments, by their names.

        Raises:
            TypeError: an `Encoder` has no such argument.
        """
        known = [one.name for one in fields(cls)]
        if unknown := [name for name in given if name not in known]:
            question = did_you_mean(unknown[0], known)
            raise TypeError(f"an Encoder has no argument {unknown[0]!r}{'.' if question else ''}{question}")
        return cls(output, **given)

    def check_types(self) -> None:
        """Checks the arguments of which attributes are used before a plan says what is wrong."""
        check_settings(self.settings, EncoderSettings)
        check_settings(self.colors, Colors, "colors")
        if not isinstance(self.options, Mapping | None):
            raise TypeError(f'options must be a dict, such as {{"g": 30}}, not {self.options!r}')
        if not isinstance(self.pixel_format, str):
            raise TypeError(f"pixel_format must be a str, such as 'rgb24', not {self.pixel_format!r}")


class EncoderOptions(TypedDict, total=False):
    """The arguments of `Encoder` but for `fps`, by the same names."""

    size: tuple[int, int] | None
    pixel_format: str
    value_range: tuple[float, float] | None
    channels_first: bool
    vflip: bool
    odd_size: OddSize
    codec: str
    quality: Quality | None
    crf: float | None
    preset: str | None
    crash_safe: bool
    options: Mapping[str, object] | None
    output_pixel_format: str
    colors: Colors
    audio: Audio | Sequence[Audio] | None
    metadata: Mapping[str, str] | None
    timecode: str | None
    chapters: Sequence[tuple[float, str]] | None
    subtitles: str | os.PathLike[str] | None
    progress: bool | int | Callable[[EncoderStats], object]
    settings: EncoderSettings
