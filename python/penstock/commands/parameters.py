"""Options that several commands have, and options that have a unit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import click

from penstock._units import parse_byte_count

#: A file's length and its positions are counted in 64 bits with a sign (off_t).
MOST_BYTES = 2**63 - 1

Parsed = TypeVar("Parsed")


def parsed(
    parse: Callable[[str], Parsed],
) -> Callable[[click.Context, click.Parameter, str | None], Parsed | None]:
    """A click callback that turns a ValueError into a usage error."""

    def callback(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Parsed | None:
        try:
            return None if text is None else parse(text)
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


progress_option = click.option(
    "--progress/--no-progress",
    default=None,
    help="Show how far it is, and how fast, on standard error, and a summary at the end. "
    "By default if that is a terminal and no DST is.",
)
append_option = click.option(
    "--append", is_flag=True, help="Add to a file that is there, instead of emptying it."
)
