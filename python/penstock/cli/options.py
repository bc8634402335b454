"""Options that several commands have, and options that have a unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from penstock._units import parse_byte_count

#: A file's length and its positions are counted in 64 bits with a sign (off_t).
MOST_BYTES = 2**63 - 1

#: Of numbers of bytes, for help texts.
UNITS = "64K and 64KiB are 64 × 1024, 64kB is 64 × 1000; so for M, G and T."

Parsed = TypeVar("Parsed")


def parsed(
    parse: Callable[[Any], Parsed],
) -> Callable[[click.Context, click.Parameter, Any], Parsed | None]:
    """A click callback that turns a ValueError into a usage error; what was not given stays None."""

    def callback(_context: click.Context, _parameter: click.Parameter, given: Any) -> Parsed | None:
        try:
            return None if given is None else parse(given)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def byte_count(text: str) -> int:
    """A number of bytes that a file can have."""
    nbytes = parse_byte_count(text)
    if nbytes > MOST_BYTES:
        raise ValueError(f"{text!r} is more than any file has")
    return nbytes


def seconds(text: str) -> float:
    """A time above zero."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return time_s


def option_pairs(texts: Sequence[str]) -> dict[str, str | None]:
    """FFmpeg's options by their names; None for one without a value."""
    found: dict[str, str | None] = {}
    for text in texts:
        name, equals, value = text.removeprefix("-").partition("=")
        if not name:
            raise ValueError(f"{text!r} is not NAME=VALUE, or the NAME of an option that has no value")
        if name in found:
            raise ValueError(f"{name!r} is given twice")
        found[name] = value if equals else None
    return found


progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show how far it is, and how fast, on standard error, and a summary at the end. "
    "By default if that is a terminal and no DST is.",
)
append_option = click.option(
    "--append", is_flag=True, help="Add to a file that is there, instead of emptying it."
)
