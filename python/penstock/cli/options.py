"""Options that several commands have, and parsers for options with units."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

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
    matrices, ranges = ["auto", "bt601", "bt709", "bt2020"], ["auto", "limited", "full"]

    def options(command: Callable[..., Any]) -> Callable[..., Any]:
        command = click.option("--color-range", type=click.Choice(ranges), help=range)(command)
        return click.option("--color-matrix", type=click.Choice(matrices), help=matrix)(command)

    return options


def fps_option(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--fps``."""
    return click.option(
        "--fps",
        metavar="N",
        required=required,
        callback=parsed(frame_rate),
        help="Frames per second: 60, 23.976 or 30000/1001.",
    )


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


def encoder_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for an Encoder, whose arguments `encoder_arguments` makes of them."""
    # Commands without FFmpeg start faster without it.
    from penstock._encoding.output_pixel_format import ANY, AUTO
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
            type=click.Choice(["draft", "good", "master", "lossless"]),
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
            type=click.Choice(["error", "pad"]),
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
    for option in reversed(options):
        command = option(command)
    return command
