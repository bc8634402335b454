"""Messages: how they name files and arguments, and warnings at the caller's line."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from penstock.errors import FFmpegError, FFmpegWarning

#: The end of the message of a check that no user's mistake can fail.
PROBABLY_A_BUG = (
    "This is probably a bug in Penstock or FFmpeg. Please report it with the output of `penstock info --json`"
)
# What the names of our own files begin with.
_OURS = __file__.removesuffix(f"_common{os.sep}messages.py")


def show_name(name: object) -> str:
    """Return a file's name for people: in quotes if it is empty or has characters that a terminal would obey."""
    text = str(name)
    return text if text.isprintable() and text else repr(text)


def plural(count: int, what: str) -> str:
    """``1 frame``, ``2 frames``."""
    return f"{count} {what}{'s' * (count != 1)}"


def in_short(failure: Exception) -> str:
    """One line about a failure, for a note of another exception, below which FFmpeg's words would hide that."""
    said = failure.advice or failure.reason if isinstance(failure, FFmpegError) else str(failure)
    return said.partition("\n")[0]


def in_python(name: str, value: object) -> str:
    """``crf=20``; ``options={'f': 'mp4'}`` for "options.f", and ``colors=Colors(range='full')`` for "colors.range"."""
    group, _, key = name.partition(".")
    if value is ...:
        return f"options[{key!r}]" if group == "options" else name
    if group in ("options", "input_options"):
        return f"{group}={{{key!r}: {value!r}}}"
    return f"colors=Colors({key}={value!r})" if group == "colors" else f"{name}={value!r}"


#: The function that formats an argument for messages. The command line sets one that names options instead.
argument_format: ContextVar[Callable[[str, object], str]] = ContextVar("argument_format", default=in_python)


def argument(name: str, value: object = ...) -> str:
    """Formats an argument of an `Encoder` or `Decoder` for a message, with a value or only its name."""
    return argument_format.get()(name, value)


#: Whether warnings and the log are off: in a rehearsal, which is about no file of the user's, and in a worker.
silent: ContextVar[bool] = ContextVar("silent", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """A block without warnings and log, on this thread."""
    token = silent.set(True)
    try:
        yield
    finally:
        silent.reset(token)


def warn(message: str) -> None:
    """Warns with an `FFmpegWarning` at the line that called this package on this thread, however deep in it this is."""
    if silent.get():
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, FFmpegWarning, stacklevel=level)
