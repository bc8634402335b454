"""What SRC and DST name, and how it is opened: a standard stream, a FIFO, or a path."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import click

from penstock import fifo
from penstock.errors import StalledError
from penstock.pipes import PipeReader, PipeWriter

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


@dataclass
class Coming:
    """A FIFO whose other side may not be there yet."""

    title: str
    ticket: fifo.FifoTicket[PipeReader] | fifo.FifoTicket[PipeWriter]

    @property
    def has_positions(self) -> bool:
        """None has."""
        return False

    def come(self, until_s: float | None) -> End:
        """Wait for the other side, at most until that time of the monotonic clock.

        Raises:
            click.ClickException: nobody came, or it cannot be opened.
        """
        with _told(self.title):
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0)
            with self.ticket.wait(left_s) as stream:
                return End(self.title, os.dup(stream.fileno()))

    def close(self) -> None:
        """Give it up, if it was not waited for."""
        self.ticket.cancel()


@contextmanager
def opened(
    src: str, dsts: Sequence[str], *, append: bool, offset: int | None = None, timeout: float | None = None
) -> Iterator[tuple[End, list[End]]]:
    """Open them all, waiting for the other sides of FIFOs, and only then empty the files among the destinations.

    Raises:
        click.ClickException: one cannot be opened, two are the same, or a FIFO's other side did not come within
            ``timeout`` seconds. No file has been emptied then.
    """
    _refuse_repeats(_found(src, dsts))
    with ExitStack() as stack:
        source, *destinations = _open_all(src, dsts, append, offset, timeout, stack)
        # Again, of what is open: a name may have come to mean something else meanwhile.
        _refuse_repeats((end.title, end.status) for end in (source, *destinations))
        if not append:
            _empty(end for name, end in zip(dsts, destinations, strict=True) if name != STANDARD)
        yield source, destinations


@contextmanager
def opened_destinations(names: Sequence[str], src: str) -> Iterator[list[End]]:
    """Open them all, as `opened` does, for what another program reads from ``src``, a path or a URL.

    Raises:
        click.ClickException: one cannot be opened, or is the source or another one. No file has been emptied then.
    """
    with ExitStack() as stack:
        ends = _come([_kept(_open_destination(name, append=False), stack) for name in names], None, stack)
        _refuse_repeats([*_found_at(src), *((end.title, end.status) for end in ends)])
        _empty(end for name, end in zip(names, ends, strict=True) if name != STANDARD)
        yield ends


def refuse_same(*names: str) -> None:
    """Raises a ``click.ClickException`` if two of these lead to the same file or FIFO."""
    _refuse_repeats(found for name in names for found in _found_at(name))


def check_standard_output() -> None:
    """Sees now whether there is one: if it is closed, the next descriptor that is opened would get its number.

    Raises:
        click.ClickException: there is none.
    """
    with _told(_STANDARD_TITLES[1]):
        os.fstat(1)


def _open_all(
    src: str, dsts: Sequence[str], append: bool, offset: int | None, timeout: float | None, stack: ExitStack
) -> list[End]:
    """All FIFOs are being opened at once: who has their other sides may open them in any order."""
    openings = [_kept(_open_source(src), stack)]
    if offset is not None and not openings[0].has_positions:
        raise click.UsageError(f"--offset needs a file, which {openings[0].title} is not")
    openings += [_kept(_open_destination(name, append), stack) for name in dsts]
    return _come(openings, timeout, stack)


def _come(openings: Sequence[End | Coming], timeout: float | None, stack: ExitStack) -> list[End]:
    """The ends, once all other sides of FIFOs are there."""
    until_s = None if timeout is None else time.monotonic() + timeout
    try:
        return [
            opening if isinstance(opening, End) else _kept(opening.come(until_s), stack)
            for opening in openings
        ]
    except StalledError as error:
        missing = ", ".join(o.title for o in openings if isinstance(o, Coming) and not o.ticket.done())
        raise click.ClickException(
            f"{missing}: nobody has opened the other side for {timeout:g} s; nothing was written"
        ) from error


Kept = TypeVar("Kept", bound=End | Coming)


def _kept(end: Kept, stack: ExitStack) -> Kept:
    """It is closed with the others."""
    stack.callback(end.close)
    return end


def _found(src: str, dsts: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """What the names lead to, where there is something already."""
    if dsts.count(STANDARD) > 1:
        raise click.UsageError("standard output is named twice")
    for name, number in ((src, 0), *((dst, 1) for dst in dsts)):
        if name == STANDARD:
            # If it is closed, that must be seen now: the next file to be opened would get its number.
            with _told(_STANDARD_TITLES[number]):
                yield _STANDARD_TITLES[number], os.fstat(number)
        else:
            yield from _found_at(name.removeprefix(FIFO_PREFIX), show_name(name))


def _found_at(path: str, title: str | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """What is there; what cannot be looked at cannot be opened either, and is told then."""
    with suppress(OSError, ValueError):  # the latter for a path with a zero byte
        yield title or show_name(path), Path(path).stat()


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


def show_name(name: str) -> str:
    """A name for people: in quotes if it is empty, or has what a terminal would not just show."""
    return name if name.isprintable() and name else repr(name)


def _open_source(name: str) -> End | Coming:
    if name == STANDARD:
        return End(_STANDARD_TITLES[0], os.dup(0))
    if _is_fifo(name):
        return _open_fifo(name, "r")
    with _told(show_name(name)):
        end = End(show_name(name), os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        if stat.S_ISDIR(end.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return end


def _open_destination(name: str, append: bool) -> End | Coming:
    if name == STANDARD:
        return End(_STANDARD_TITLES[1], _take_standard_output())
    if _is_fifo(name):
        return _open_fifo(name, "w")
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if append else 0)
    with _told(show_name(name)):
        return End(show_name(name), os.open(name, flags, 0o666))


def _is_fifo(name: str) -> bool:
    """By its prefix, or by what is there: open(2) would wait for its other side before the next is opened."""
    with suppress(OSError):
        return name.startswith(FIFO_PREFIX) or stat.S_ISFIFO(Path(name).stat().st_mode)
    return False


def _take_standard_output() -> int:
    """A duplicate, that is the only one from now on: its reader sees the end when we close it, not when we exit."""
    fd = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return fd


def _open_fifo(name: str, mode: Literal["r", "w"]) -> Coming:
    path = name.removeprefix(FIFO_PREFIX)
    try:
        return Coming(show_name(name), fifo.open_async(path, mode))
    except FileNotFoundError:
        why = f"there is no FIFO; create one with: mkfifo {shlex.quote(path)}" if path else "no path is given"
    except (OSError, ValueError) as error:  # the latter for what is no FIFO
        why = getattr(error, "strerror", None) or str(error)
    raise click.ClickException(f"{show_name(name)}: {why}")


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
    except StalledError:
        raise
    except OSError as error:
        raise click.ClickException(f"{title}: {error.strerror or error}") from None
