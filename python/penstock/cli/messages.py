"""Failures and warnings in one line each, for the commands that run FFmpeg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock._names import show_name
from penstock.errors import FFmpegError, PenstockError
from penstock.ffmpeg.diagnostics import without_components

#: How many of FFmpeg's lines are shown. The first ones name the cause, the others its consequences.
MOST_LINES = 3


class InputError(click.ClickException):
    """The input failed, perhaps after some of its frames."""


@contextmanager
def as_click_errors() -> Iterator[None]:
    """Turn failures into one line, and wrong arguments into wrong usage."""
    try:
        yield
    except (PenstockError, OSError) as error:
        raise click.ClickException(in_one_line(error)) from None
    except ValueError as error:
        raise click.UsageError(in_one_line(error)) from None


def in_one_line(error: object) -> str:
    """Return the message without the command, with FFmpeg's first lines, and with our names of options."""
    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        where = "" if error.filename is None else f"{show_name(error.filename)}: "
        return f"{where}{error.strerror or error}"
    lines = str(error).splitlines()[: 1 + MOST_LINES]
    advice = []
    if isinstance(error, FFmpegError):
        del lines[1 + len(error.stderr.splitlines()) :]  # the command and the like
        advice = [f"what to do: {error.advice}"] if error.advice else []
    line = without_components("; ".join((*lines, *advice)))
    return line.replace("give options={'f': ...}", "give --format")


def with_option_names(warning: str) -> str:
    """Return an Encoder's warning with our options for its arguments: ``--codec ffv1`` for ``codec='ffv1'``."""

    def option(found: re.Match[str]) -> str:
        return f"--{found[1].replace('_', '-')} {found[2]}"

    return re.sub(r"\b(codec|pixel_format|output_pixel_format)='(\w+)'", option, warning)
