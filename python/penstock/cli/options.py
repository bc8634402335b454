"""Options that several commands have, and parsers for options with units."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any, TypeVar, get_type_hints

import click
from click.shell_completion import CompletionItem

from penstock._common.command_line import CommandOption

#: Linux counts the length of a file and its positions in 64 bits with a sign (off_t).
MOST_BYTES = 2**63 - 1

# As head(1), dd(1) and split(1) have it: a letter alone is a power of 1024, with a B it is one of 1000.
_UNITS: dict[str, int] = {"": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS |= {_letter: 1024**_power, f"{_letter}IB": 1024**_power, f"{_letter}B": 1000**_power}
#: The units of a number of bytes, for help texts.
UNITS = "64K and 64KiB are 64 × 1024 bytes, 64kB is 64 × 1000; likewise M, G and T."

Parsed = TypeVar("Parsed")
Command = TypeVar("Command", bound=Callable[..., Any])


def encoder_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The Encoder's arguments that were given, of the options that `options_of` makes and others.

    One that has its default, such as "auto", was not given: what a video is like then comes from its source.
    """
    from penstock._encoding.request import Request
    from penstock._ffmpeg.command.settings import Colors, EncoderSettings

    arguments = {name: value for name, value in given.items() if value not in (None, (), {})}
    options = arguments.pop("option", {})
    if (container := arguments.pop("format", None)) is not None:
        if "f" in options:
            raise click.UsageError("--format can't be combined with --option f")
        options = options | {"f": container}
    if options:
        arguments["options"] = options
    if colors := [name for name in arguments if name.startswith("color_")]:
        parts = {name.removeprefix("color_"): arguments.pop(name) for name in colors}
        arguments["colors"] = Colors(**parts)
    if (program := arguments.pop("ffmpeg", None)) is not None:
        arguments["settings"] = EncoderSettings(ffmpeg=program)
    defaults = {one.name: one.default for one in fields(Request)}
    return {name: value for name, value in arguments.items() if value != defaults.get(name)}


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


def frame_range(text: str) -> range:
    """Parse a number of frames, or the first and the index after the last one, with a step between them or not."""
    try:
        numbers = [int(part) for part in text.split(":")]
        frames = range(*numbers)
    except (TypeError, ValueError):
        frames = range(0)
    if not frames or frames[0] < 0 or frames[-1] < 0:
        raise ValueError(f"frames must be a number such as 240, or a range such as 120:240, not {text!r}")
    return frames


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


def ray_options(texts: Sequence[str]) -> dict[str, Any] | None:
    """Parse options of tasks on Ray, whose values are JSON or text. None if there are none."""
    options: dict[str, Any] = {}
    for name, value in option_pairs(texts).items():
        if value is None:
            raise ValueError(f"{name!r} must be NAME=VALUE")
        options[name] = value
        with suppress(ValueError):
            options[name] = json.loads(value)
    return options or None


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
progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show the progress on standard error, and a summary at the end. By default they are shown if standard "
    "error is a terminal and no output is one.",
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Show only errors: no progress, no summary, no warnings."
)


def json_option(help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--json``, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


#: What the words in the spelling of an option mean.
_PARSERS: dict[str, Callable[[Any], object]] = {
    "N|A:B": frame_range,
    "NAME=JSON": ray_options,
    "NAME=VALUE": option_pairs,
    "RATE": frame_rate,
    "SAMPLE,...": sample_values,
    "TAG=VALUE": metadata_pairs,
    "TIME": moment,
    "WIDTHxHEIGHT": picture_size,
    "WxH": scaled_size,
    "X,Y,W,H": rectangle,
}


def option(one: CommandOption, *, required: bool = False) -> Callable[[Command], Command]:
    """The option that is spelled so. If it isn't given, it's None, False or empty."""
    name, _, word = one.spelling.partition(" ")
    kind: Any = float if word == "N" else None
    if one.least is not None:
        kind = click.IntRange(min=one.least)
    elif one.choices:
        kind = click.Choice(one.choices)
    return click.option(
        name,
        required=required,
        metavar=word or None,
        # With False, click would take an option without its value.
        is_flag=None if word or one.choices else True,
        type=kind,
        multiple=one.is_repeated,
        callback=parsed(_PARSERS[word]) if word in _PARSERS else None,
        shell_complete=file_names if word in ("FILE", "PATH", "DIR|URL") else None,
        help=one.help,
    )


def options_of(
    declaration: type, *, only: Collection[str] = (), but: Collection[str] = ()
) -> Callable[[Command], Command]:
    """The options of the arguments that a class declares: all, only some, or all but some."""
    hints = get_type_hints(declaration, include_extras=True)
    options = [
        option(one, required=field.default is MISSING)
        for field in fields(declaration)
        if field.name not in but and (not only or field.name in only)
        for one in getattr(hints[field.name], "__metadata__", ())
    ]

    def decorated(command: Command) -> Command:
        for decorate in reversed(options):  # the help lists them in their order
            command = decorate(command)
        return command

    return decorated
