"""Error messages of the commands that run FFmpeg: one line each, with command-line options for Python arguments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import click

from penstock._common.messages import argument_format, show_name
from penstock._common.reports import DecoderStats, EncoderStats
from penstock._ffmpeg.program.messages import without_components
from penstock._platform.paths import shell_word
from penstock.errors import FFmpegError, FFmpegWarning, PenstockError

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


@contextmanager
def shown_warnings(*, is_quiet: bool) -> Iterator[None]:
    """Show a decoder's warnings when the block ends, in one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FFmpegWarning)
        yield
    for warning in caught:
        if not is_quiet and issubclass(warning.category, FFmpegWarning):
            click.echo(f"Warning: {in_one_line(warning.message)}", err=True)


def in_one_line(error: object) -> str:
    """Return the message without the command, and with FFmpeg's first lines."""
    if isinstance(error, OSError) and not isinstance(error, PenstockError):
        where = "" if error.filename is None else f"{show_name(error.filename)}: "
        return f"{where}{error.strerror or error}"
    if not isinstance(error, FFmpegError):
        return without_components("; ".join(str(error).splitlines()[: 1 + MOST_LINES]))
    parts = [*filter(None, [error.advice]), error.reason]
    if error.stderr and error.reason != str(error):
        parts.append(f"FFmpeg said: {'; '.join([*dict.fromkeys(error.stderr.splitlines())][:MOST_LINES])}")
    return without_components(". ".join(parts))


def held_up_by(stats: EncoderStats | DecoderStats, texts: Mapping[str, tuple[float, str]]) -> str:
    """Who held up the others. For each name that `bottleneck` may have, `texts` are its seconds and its words."""
    if stats.bottleneck is None:
        return "no clear bottleneck"
    seconds, text = texts[stats.bottleneck]
    return f"bottleneck: {text}".format(min(seconds / stats.elapsed_s, 1.0))


def name_options_in_messages() -> None:
    """Have messages name our options for the arguments of an Encoder or a Decoder, until the command ends."""
    click.get_current_context().call_on_close(partial(argument_format.reset, argument_format.set(_option)))


def _option(name: str, value: object) -> str:
    """``--crf 20``; ``--format mp4`` for "options.f", ``--option g=60`` for "options.g", and so on."""
    group, _, key = name.partition(".")
    written = "VALUE" if value is ... else str(value)
    if isinstance(value, tuple):
        written = ("x" if name == "size" else ",").join("" if one is None else f"{one:g}" for one in value)
    if group == "options" and key != "f":
        return f"--option {key}={written if value is ... else shell_word(written)}"
    option = {"options": "format", "colors": f"color-{key}"}.get(group, name)
    return f"--{option.replace('_', '-')}{'' if value is True or value is ... else f' {written}'}"
