"""What SRC and DST name, and how it is opened: a standard stream, a FIFO, or a path."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from penstock import fifo

STANDARD = "-"
FIFO_PREFIX = "fifo:"


@dataclass
class End:
    """A SRC or DST that is open."""

    title: str
    fd: int

    @property
    def status(self) -> os.stat_result:
        """What the system says of it."""
        return os.fstat(self.fd)

    @property
    def has_positions(self) -> bool:
        """Whether it can be read from any byte on."""
        mode = self.status.st_mode
        return stat.S_ISREG(mode) or stat.S_ISBLK(mode)

    def close(self) -> None:
        """Close it, once.

        Raises:
            click.ClickException: some file systems tell only now that a write has failed.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with _told(self.title):
                os.close(fd)


@contextmanager
def opened(
    src: str, dsts: Sequence[str], *, append: bool, offset: int | None = None
) -> Iterator[tuple[End, list[End]]]:
    """Open them all, waiting for the other sides of FIFOs, and only then empty the files among the destinations.

    Raises:
        click.ClickException: one cannot be opened, or two are the same. No file has been emptied then.
    """
    _refuse_repeats(_found(src, dsts))
    with ExitStack() as stack:
        source = _open_source(src)
        stack.callback(source.close)
        if offset is not None and not source.has_positions:
            raise click.UsageError(f"--offset needs a file, which {source.title} is not")
        destinations = []
        for name in dsts:
            destinations.append(_open_destination(name, append))
            stack.callback(destinations[-1].close)
        # Again, of what is open: a name may have come to mean something else meanwhile.
        _refuse_repeats((end.title, end.status) for end in (source, *destinations))
        if not append:
            _empty(end for name, end in zip(dsts, destinations, strict=True) if name != STANDARD)
        yield source, destinations


def _found(src: str, dsts: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """What the names lead to, where there is something already."""
    if dsts.count(STANDARD) > 1:
        raise click.UsageError("standard output is named twice")
    for name, number in ((src, 0), *((dst, 1) for dst in dsts)):
        if name == STANDARD:
            # If it is closed, that must be seen now: the next file to be opened would get its number.
            with _told(_STANDARD_TITLES[number]):
                yield _STANDARD_TITLES[number], os.fstat(number)
        elif (path := Path(name.removeprefix(FIFO_PREFIX))).exists():
            yield name, path.stat()


_STANDARD_TITLES = ("standard input", "standard output")


def _refuse_repeats(ends: Iterable[tuple[str, os.stat_result]]) -> None:
    """Refuses the same file or pipe twice: it would be written while it is read, or by two streams at once.

    Terminals, sockets and devices such as /dev/null can well be named twice.
    """
    titles: dict[tuple[int, int], str] = {}
    for title, status in ends:
        identity = (status.st_dev, status.st_ino)
        if identity in titles:
            raise click.ClickException(f"{titles[identity]} and {title} are the same; nothing was written")
        if stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            titles[identity] = title


def _open_source(name: str) -> End:
    if name == STANDARD:
        return End(_STANDARD_TITLES[0], os.dup(0))
    if name.startswith(FIFO_PREFIX):
        return _open_fifo(name, "r")
    with _told(name):
        end = End(name, os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        if stat.S_ISDIR(end.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return end


def _open_destination(name: str, append: bool) -> End:
    if name == STANDARD:
        return End(_STANDARD_TITLES[1], _take_standard_output())
    if name.startswith(FIFO_PREFIX):
        return _open_fifo(name, "w")
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0)
    with _told(name):
        return End(name, os.open(name, flags, 0o666))


def _take_standard_output() -> int:
    """A duplicate, that is the only one from now on: its reader sees the end when we close it, not when we exit."""
    fd = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return fd


def _open_fifo(name: str, mode: Literal["r", "w"]) -> End:
    path = name.removeprefix(FIFO_PREFIX)
    try:
        with fifo.open(path, mode) as waited_for:
            return End(name, os.dup(waited_for.fileno()))
    except FileNotFoundError:
        why = f"there is no FIFO; create one with: mkfifo {shlex.quote(path)}"
    except (OSError, ValueError) as error:  # the latter for what is no FIFO
        why = getattr(error, "strerror", None) or str(error)
    raise click.ClickException(f"{name}: {why}")


def _empty(ends: Iterable[End]) -> None:
    for end in ends:
        if stat.S_ISREG(end.status.st_mode):
            with _told(end.title):
                os.ftruncate(end.fd, 0)


@contextmanager
def _told(title: str) -> Iterator[None]:
    """Turns a failure of the system into one line for people."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{title}: {error.strerror or error}") from None
