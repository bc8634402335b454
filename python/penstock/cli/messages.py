"""How the commands that run FFmpeg tell its failures, and wrong arguments: in one line each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from penstock.cli.endpoints import show_name
from penstock.errors import PenstockError
from penstock.images import without_complainers

#: What an Encoder and a Decoder say of an FFmpeg that said nothing.
SILENCE = "said: (nothing)"
#: How many of FFmpeg's lines are told. The first ones name the cause, the others what came of it.
MOST_LINES = 3


@contextmanager
def told() -> Iterator[None]:
    """Turns failures into one line for people, and wrong arguments into wrong usage."""
    try:
        yield
    except PenstockError as error:
        raise click.ClickException(in_one_line(error)) from None
    except OSError as error:
        where = "" if error.filename is None else f"{show_name(str(error.filename))}: "
        raise click.ClickException(f"{where}{error.strerror or error}") from None
    except ValueError as error:
        raise click.UsageError(in_one_line(error)) from None


def in_one_line(error: object) -> str:
    """Without the command, with FFmpeg's first words, which name the cause, and by our option's name."""
    head, *rest = str(error).splitlines()
    advice = [line for line in rest if line.startswith("what to do: ")]
    said = [
        line for line in rest if not line.startswith(("what to do: ", "command: ")) and SILENCE not in line
    ]
    line = without_complainers("; ".join((head, *said[:MOST_LINES], *advice)))
    return line.replace("give container_format", "give --format")


def by_option(warning: str) -> str:
    """An Encoder's warning with its arguments by our options' names: ``--codec ffv1`` for ``codec='ffv1'``."""

    def option(found: re.Match[str]) -> str:
        return f"--{found[1].replace('_', '-')} {found[2]}"

    return re.sub(r"\b(codec|pixel_format|output_pixel_format)='(\w+)'", option, warning)
