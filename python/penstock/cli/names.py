"""What SRC, DST, INPUT and OUTPUT name: a standard stream, a FIFO, or a path."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from penstock._common.messages import show_name
from penstock._ffmpeg.command.endpoints import ending_of, own_descriptor
from penstock._formats import codecs, containers
from penstock.errors import StalledError

STANDARD = "-"
FIFO_PREFIX = "fifo:"
#: What messages call the standard streams.
STANDARD_TITLES = ("standard input", "standard output")


def as_standard(
    _context: click.Context, _parameter: click.Parameter, names: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """A click callback that replaces paths to this process's standard output (``/dev/stdout``) by ``-``.

    If standard output is a file, opening it by the path would empty it and write from its beginning.
    """
    if names is None:
        return None
    if isinstance(names, tuple):
        return tuple(map(_or_standard, names))
    return _or_standard(names)


def _or_standard(name: str) -> str:
    with suppress(OSError, ValueError):  # what cannot be looked at cannot be opened either
        return STANDARD if own_descriptor(Path(name).absolute()) == "1" else name
    return name


def as_path(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """A click callback that replaces ``fifo:PATH`` by the path of that FIFO, for an OUTPUT that FFmpeg opens."""
    if not name.startswith(FIFO_PREFIX):
        return name
    path = name.removeprefix(FIFO_PREFIX)
    with fifo_failures(name):
        if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116  # Path("") would be the current folder
            raise ValueError(f"{show_name(path)} is not a FIFO")
    return str(Path(path).absolute())  # "-" is not standard output here


def names_media(path: str) -> bool:
    """Whether the path is that of a video, sound or image by its ending, whose bytes are no raw frames."""
    known = containers.of_ending(ending_of(path).lower())
    return known is not None and not codecs.known(known.video or "").is_raw


def check_standard_output() -> None:
    """Check that standard output was open at the start. If it was not, the next file that is opened gets its number."""
    with failures_of(STANDARD_TITLES[1]):
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def found(src: str, dsts: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Titles and status of what the names lead to, where it exists."""
    if dsts.count(STANDARD) > 1:
        raise click.UsageError("standard output must be named once only")
    for name, number in ((src, 0), *((dst, 1) for dst in dsts)):
        if name == STANDARD:
            # A closed one must be seen now: the next file that is opened gets its number.
            with failures_of(STANDARD_TITLES[number]):
                yield STANDARD_TITLES[number], os.fstat(number)
        else:
            yield from found_at(name.removeprefix(FIFO_PREFIX), show_name(name))


def found_at(path: str, title: str | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """What stat(2) cannot see cannot be opened either. The error is raised then."""
    with suppress(OSError, ValueError):  # ValueError for a path with a zero byte
        yield title or show_name(path), Path(path).stat()


def refuse_repeats(found: Iterable[tuple[str, os.stat_result]]) -> None:
    """Refuse a file or FIFO that is named twice: it would be written while it is read, or by two streams at once.

    Terminals, sockets and devices such as /dev/null may be named twice.
    """
    titles: dict[tuple[int, int], str] = {}
    for title, status in found:
        identity = (status.st_dev, status.st_ino)
        if identity in titles:
            raise click.ClickException(
                f"{titles[identity]} and {title} are the same file; nothing was written"
            )
        # On Windows, a pipe has no number.
        if status.st_ino and (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
            titles[identity] = title


def is_fifo(name: str) -> bool:
    """Whether the prefix says so, or a FIFO is there. open(2) on it would wait, and keep the next from being opened."""
    with suppress(OSError):
        return name.startswith(FIFO_PREFIX) or stat.S_ISFIFO(Path(name).stat().st_mode)
    return False


@contextmanager
def fifo_failures(name: str) -> Iterator[None]:
    """Turn a failure to open a FIFO into one line."""
    path = name.removeprefix(FIFO_PREFIX)
    try:
        yield
        return
    except FileNotFoundError:
        why = (
            f"there is no FIFO. Create it with: mkfifo {shlex.quote(path)}" if path else "the path is missing"
        )
    except (OSError, ValueError) as error:  # ValueError if it is no FIFO
        why = getattr(error, "strerror", None) or str(error)
    raise click.ClickException(f"{show_name(name)}: {why}")


@contextmanager
def failures_of(title: str) -> Iterator[None]:
    """Turn a failure of the system into one line that begins with the title."""
    try:
        yield
    except StalledError:
        raise
    except OSError as error:
        raise click.ClickException(f"{title}: {error.strerror or error}") from None
