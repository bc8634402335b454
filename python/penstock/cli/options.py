"""Options that several commands have, and parsers for options with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

#: Linux counts the length of a file and its positions in 64 bits with a sign (off_t).
MOST_BYTES = 2**63 - 1

# As head(1), dd(1) and split(1) have it: a letter alone is a power of 1024, with a B it is one of 1000.
_UNITS: dict[str, int] = {"": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power}
#: The units of a number of bytes, for help texts.
UNITS = "64K and 64KiB are 64 × 1024 bytes, 64kB is 64 × 1000; likewise M, G and T."

Parsed = TypeVar("Parsed")


def given_to_like(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of `encoder_arguments` that were given: the others are taken from a source video."""
    from penstock._encoding.output_pixel_format import AUTO
    from penstock._ffmpeg.command.settings import DEFAULT_COLORS

    defaults = {"colors": DEFAULT_COLORS, "output_pixel_format": AUTO, "audio": (), "metadata": {}}
    return {key: value for key, value in arguments.items() if key not in defaults or value != defaults[key]}


def encoder_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The Encoder's arguments, of `encoder_options` and others. It has its own defaults for what was not given."""
    from penstock._ffmpeg.command.settings import Colors, EncoderSettings

    arguments = {name: value for name, value in given.items() if value is not None}
    options = dict(arguments.pop("options"))
    if (container_format := arguments.pop("container_format", None)) is not None:
        if "f" in options:
            raise click.UsageError("--format can't be combined with --option f")
        options["f"] = container_format
    fields = ("matrix", "range", "primaries", "transfer")
    colors = {field: arguments.pop(f"color_{field}", "auto") for field in fields}
    return arguments | {
        "options": options,
        "metadata": dict(arguments["metadata"]),
        "colors": Colors(**colors),
        "settings": EncoderSettings(ffmpeg=arguments.pop("ffmpeg", None)),
    }


def parsed(
    parse: Callable[[Any], Parsed],
) -> Callable[[click.Context, click.Parameter, Any], Parsed | None]:
    """Return a click callback that turns a ValueError into a usage error. An option that is not given stays None."""

    def callback(_context: click.Context, _parameter: click.Parameter, given: Any) -> Parsed | None:
        try:
            return None if given is None else parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def byte_count(text: str) -> int:
    """Parse a number of bytes that a file can have: ``4K`` and ``4KiB`` are 4096, ``4kB`` is 4000."""
    match = re.fullmatch(r"(\d+)\s*([A-Z]*)", text.strip().upper(), re.ASCII)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"a number of bytes must be like 65536, 64K or 2G, not {text!r}")
    nbytes = int(match[1]) * _UNITS[match[2]]
    if nbytes > MOST_BYTES:
        raise ValueError(f"{text!r} is more than a file can have")
    return nbytes


def picture_size(text: str) -> tuple[int, int]:
    """Parse width and height, as in ``1920x1080``."""
    width, height = _lengths(text)
    if width is None or height is None:
        raise ValueError(f"a size must be like 1920x1080, not {text!r}")
    return width, height


def scaled_size(text: str) -> tuple[int | None, int | None]:
    """Parse width and height, as in ``1920x1080``, or one of them; the other is None."""
    width, height = _lengths(text)
    if width is None and height is None:
        raise ValueError(f"a size must be like 1280x720, 1280x or x720, not {text!r}")
    return width, height


def _lengths(text: str) -> tuple[int | None, int | None]:
    match = re.fullmatch(r"(?:0*([1-9]\d*))?[x×](?:0*([1-9]\d*))?", text.strip().lower(), re.ASCII)
    width, height = match.groups() if match else (None, None)
    return int(width) if width else None, int(height) if height else None


def rectangle(text: str) -> tuple[int, ...]:
    """Parse the left and top edge, the width and the height of a part, as in ``100,50,640,360``."""
    found = re.fullmatch(r"(\d+),(\d+),(\d+),(\d+)", text.replace(" ", ""), re.ASCII)
    if found is None:
        raise ValueError(f"a part must be X,Y,W,H, like 100,50,640,360, not {text!r}")
    return tuple(map(int, found.groups()))


def sample_values(text: str) -> tuple[float, ...]:
    """Parse the samples of a pixel, as in ``255,255,255``."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise ValueError(f"samples must be like 255,255,255, not {text!r}") from None


def moment(text: str) -> float:
    """Parse seconds: a number, or hours, minutes and seconds with colons between them."""
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?|\.\d+)", text.strip(), re.ASCII)
    hours, minutes, seconds = match.groups(default="0") if match else ("0", "0", "nan")
    is_clock = ":" in text
    if match is None or (is_clock and float(seconds) >= 60) or (match[1] and int(minutes) >= 60):
        raise ValueError(f"a time must be like 90, 12.5, 1:30 or 0:01:30.5, not {text!r}")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def frame_rate(text: str) -> Fraction:
    """Parse frames per second: a number, or a fraction of two."""
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate <= 0:
        raise ValueError(f"frames per second must be like 60, 23.976 or 30000/1001, not {text!r}")
    return rate


def seconds(text: str) -> float:
    """Parse a time above zero."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise ValueError(f"seconds must be a number above 0, not {text!r}")
    return time_s


def option_pairs(texts: Sequence[str]) -> dict[str, str | None]:
    """Parse FFmpeg's options. The value of an option without one is None."""
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.removeprefix("-").partition("=")
        if not name:
            raise ValueError(f"{text!r} must be NAME=VALUE, or the NAME of an option without a value")
        if name in found:
            raise ValueError(f"{name!r} must be passed once only")
        found[name] = value if equals else None
    return found


def metadata_pairs(texts: Sequence[str]) -> dict[str, str]:
    """Parse names and values, which all have one."""
    pairs = option_pairs(texts)
    if lone := [name for name, value in pairs.items() if not value]:
        raise ValueError(f"{lone[0]!r} must be NAME=VALUE")
    return {name: value for name, value in pairs.items() if value}


def file_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What shells complete: paths. For ``shell_complete`` of parameters that take a path, a URL or ``-``."""
    return [CompletionItem(incomplete, type="file")]


append_option = click.option(
    "--append", is_flag=True, help="Append to an existing file instead of emptying it."
)
ffmpeg_option = click.option(
    "--ffmpeg",
    metavar="PATH",
    shell_complete=file_names,
    help="The FFmpeg to run. The default is the one on PATH.",
)
follow_playlists_option = click.option(
    "--follow-playlists",
    is_flag=True,
    help="Also read local playlists (HLS, DASH, ffconcat), and open the local files that they name.",
)
isolated_option = click.option(
    "--isolated",
    is_flag=True,
    help="Read one file that you don't trust, in a sandbox that can't read other files, write files or open "
    "connections.",
)
progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show the progress on standard error, and a summary at the end. By default they are shown if standard "
    "error is a terminal and no output is one.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Show only errors: no progress, no summary, no warnings."
)


def color_options(matrix: str, range: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options ``--color-matrix`` and ``--color-range``, with these help texts."""
    from penstock._ffmpeg.command.settings import ColorMatrix, ColorRange

    matrices, ranges = get_args(ColorMatrix), get_args(ColorRange)

    def options(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--color-range", type=click.Choice(ranges), help=range)(command)
        return click.option("--color-matrix", type=click.Choice(matrices), help=matrix)(command)

    return options


def fps_option(
    *, required: bool, help: str = "Frames per second: 60, 23.976 or 30000/1001."
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--fps``."""
    return click.option("--fps", metavar="N", required=required, callback=parsed(frame_rate), help=help)


def json_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--json``, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def ffmpeg_options_option(what_for: str, example: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--option NAME=VALUE``, as the argument `options`."""
    return click.option(
        "--option",
        "options",
        metavar="NAME=VALUE",
        multiple=True,
        callback=parsed(option_pairs),
        help=f"FFmpeg option for {what_for}, without its dash: {example}. May be repeated.",
    )


def _with_options(command: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    """A command with options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def decoder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for a Decoder, by the names of its arguments."""
    # Commands without libav start faster without it.
    from penstock._decoding.framing import Fit

    options = (
        click.option(
            "--size",
            metavar="WxH",
            callback=parsed(scaled_size),
            help="Scale to this width and height: 1280x720. 1280x or x720 keeps the aspect ratio.",
        ),
        click.option(
            "--crop",
            metavar="X,Y,W,H",
            callback=parsed(rectangle),
            help="Use only a part of the picture: its left and top edge, its width and height, in pixels of the "
            "upright picture after --filters. --size scales this part.",
        ),
        click.option(
            "--fit",
            type=click.Choice(get_args(Fit)),
            help="How the picture becomes --size, if their shapes differ: change its aspect ratio (stretch, the "
            "default), cut off what is beyond the middle (cover), or add a border (contain).",
        ),
        click.option(
            "--fill",
            metavar="SAMPLE,...",
            callback=parsed(sample_values),
            help="Color of this border, a sample for each channel: 255,255,255. The default is black.",
        ),
        fps_option(
            required=False,
            help="Frames per second, at a fixed rate: frames are repeated and left out for that. Only for files. By "
            "default, each frame comes once.",
        ),
        click.option(
            "--start",
            metavar="TIME",
            callback=parsed(moment),
            help="Begin with the frame on screen at this time: seconds, or 0:01:30.5.",
        ),
        click.option(
            "--end", metavar="TIME", callback=parsed(moment), help="Leave out the frames from this time on."
        ),
        click.option(
            "--duration",
            metavar="TIME",
            callback=parsed(moment),
            help="Leave out the frames from so long after --start on.",
        ),
        click.option("--count", metavar="N", type=click.IntRange(min=1), help="Deliver at most N frames."),
        click.option(
            "--filters",
            metavar="FILTERS",
            help="FFmpeg's filters (-vf) for all frames, before --crop and --size: yadif,hqdn3d.",
        ),
        click.option(
            "--stream",
            metavar="N",
            type=click.IntRange(min=0),
            help="Number of the video stream, from 0. The default is the best one.",
        ),
        click.option(
            "--conceal-errors",
            is_flag=True,
            help="Continue after damage in the file, with the frames that the decoder makes of it.",
        ),
        follow_playlists_option,
    )
    return _with_options(command, *options)


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for the other content of a video file, by the names of an Encoder's arguments."""
    options = (
        click.option(
            "--audio",
            metavar="FILE",
            shell_complete=file_names,
            multiple=True,
            help="Add the audio of FILE, which ends with the video. It's copied if the container accepts it, and "
            "otherwise encoded. PCM samples (WAV) become AAC in MP4. May be repeated, for several audio tracks.",
        ),
        click.option(
            "--subtitles",
            metavar="FILE",
            shell_complete=file_names,
            help="Add subtitles that players show on request: .srt, .vtt or .ass. For MP4, QuickTime, Matroska and "
            "WebM.",
        ),
        click.option(
            "--crash-safe",
            is_flag=True,
            help="Write a file that plays even if FFmpeg is killed, but for about the last second. For MP4, "
            "QuickTime, Matroska and WebM.",
        ),
    )
    return _with_options(command, *options)


def encoder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for an Encoder, whose arguments `encoder_arguments` makes of them."""
    # Commands without FFmpeg start faster without it.
    from penstock._encoding.encoders import Quality
    from penstock._encoding.output_pixel_format import ANY, AUTO
    from penstock._encoding.request import OddSize
    from penstock._ffmpeg.command.settings import PRIMARIES, TRANSFERS

    options = (
        click.option(
            "--codec",
            metavar="NAME",
            default=AUTO,
            show_default=True,
            help="FFmpeg's encoder, or a format: libx265, hevc, h264_nvenc. `penstock info` lists them. auto-h264, "
            "auto-hevc and auto-av1 use a hardware encoder if one works. The default follows OUTPUT's name: "
            "libx264 for .mp4, .mkv and .mov, VP9 for .webm, and so on.",
        ),
        click.option(
            "--preset",
            metavar="NAME",
            help="Speed against file size: ultrafast, medium, slow.",
        ),
        click.option(
            "--crf",
            metavar="N",
            type=float,
            help="Constant quality: a lower number means better quality and a larger file. For libx264 0 to 51; the "
            "default is 23.",
        ),
        click.option(
            "--quality",
            type=click.Choice(get_args(Quality)),
            help="A quality that looks the same with all common encoders. lossless keeps every sample, or fails. "
            "--crf, or an --option for the quality, overrides it.",
        ),
        ffmpeg_options_option("the output", "tune=film"),
        click.option(
            "--metadata",
            metavar="NAME=VALUE",
            multiple=True,
            callback=parsed(metadata_pairs),
            help="A tag of the file: title=Waves. May be repeated.",
        ),
        click.option(
            "--timecode",
            metavar="HH:MM:SS:FF",
            help="The time code of the first frame; HH:MM:SS;FF for drop frame.",
        ),
        click.option(
            "--output-pixel-format",
            metavar="NAME",
            default=AUTO,
            show_default=True,
            help="Pixel format of the video. The default is the frames' own for a lossless codec, a format with alpha "
            "if the frames and the codec have alpha, and otherwise yuv420p, which plays everywhere. "
            f"'{ANY}' leaves it to FFmpeg.",
        ),
        color_options(
            "Matrix between RGB and the video's YUV. The default (auto) is bt709 for 720 lines or more, and bt601 "
            "below.",
            "Whether the video's black and white are 16 and 235 of 255 (limited) or 0 and 255 (full). The default "
            "(auto) is limited, or full for JPEG.",
        ),
        click.option(
            "--color-primaries",
            metavar="NAME",
            type=click.Choice(["auto", *PRIMARIES.values()]),
            help="Tag of the color primaries, by FFmpeg's names: bt2020. The default (auto) is the usual one for the "
            "matrix.",
        ),
        click.option(
            "--color-transfer",
            metavar="NAME",
            type=click.Choice(["auto", *TRANSFERS.values()]),
            help="Tag of the transfer characteristics, by FFmpeg's names: smpte2084 (PQ), arib-std-b67 (HLG). The "
            "default (auto) is the usual one for the matrix.",
        ),
        click.option(
            "--odd-size",
            type=click.Choice(get_args(OddSize)),
            help="What to do with a width or height that the video can't have: fail (error, the default), or repeat "
            "the last column or row (pad).",
        ),
        click.option(
            "--vflip",
            is_flag=True,
            help="Flip the frames: their first row is the bottom of the picture, as in OpenGL.",
        ),
        click.option(
            "--format",
            "container_format",
            metavar="NAME",
            help="The container, if OUTPUT's name doesn't determine it: mp4, matroska, mpegts, flv, hls.",
        ),
        ffmpeg_option,
    )
    return _with_options(command, *options)
