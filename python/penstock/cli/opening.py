"""What SRC, DST, INPUT and OUTPUT name, and how it is opened: a standard stream, a FIFO, or a path."""

from __future__ import annotations

import errno
import os
import select
import shlex
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import click

from penstock import fifo
from penstock._common.deadline import Deadline
from penstock._common.messages import show_name
from penstock._ffmpeg.command import containers
from penstock._ffmpeg.command.endpoints import ending_of, own_descriptor
from penstock.cli.signals import wait_for
from penstock.errors import StalledError
from penstock.pipes import PipeReader, PipeWriter

STANDARD = "-"
FIFO_PREFIX = "fifo:"
# Its files are raw frames.
_RAW = "rawvideo"

_STANDARD_TITLES = ("standard input", "standard output")


@dataclass
class Endpoint:
    """An open source or destination.

    Attributes:
        title: its name in messages.
        fd: its descriptor; -1 once it is closed.
    """

    title: str
    fd: int

    @property
    def status(self) -> os.stat_result:
        """What fstat(2) says."""
        return os.fstat(self.fd)

    @property
    def has_positions(self) -> bool:
        """Whether it can be read from any byte on."""
        mode = self.status.st_mode
        return stat.S_ISREG(mode) or stat.S_ISBLK(mode)

    @property
    def keeps_messages(self) -> bool:
        """Whether it is a socket of which a short read loses the rest of a message."""
        if not stat.S_ISSOCK(self.status.st_mode):
            return False
        with socket.socket(fileno=os.dup(self.fd)) as own:
            return own.type != socket.SOCK_STREAM

    def read_full(self, buffer: memoryview) -> int:
        """Read until the buffer of bytes is full or the source ends. Return the number of bytes read."""
        filled = 0
        while filled < buffer.nbytes:
            nbytes = self._when_ready(select.POLLIN, partial(os.readv, self.fd, [buffer[filled:]]))
            if nbytes == 0:
                break
            filled += nbytes
        return filled

    def write_all(self, data: bytes) -> None:
        """Write all of the data."""
        while data:
            data = data[self._when_ready(select.POLLOUT, partial(os.write, self.fd, data)) :]

    def _when_ready(self, event: int, call: Callable[[], int]) -> int:
        """Make a call once the descriptor is ready for it, or let a signal raise."""
        while True:
            wait_for(self.fd, event)
            with suppress(BlockingIOError):  # another program may have made it non-blocking, and be faster
                return call()

    def close(self) -> None:
        """Close it. May be called again.

        Raises:
            click.ClickException: a write has failed. Some file systems report that only now.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with _failures_of(self.title):
                os.close(fd)


@dataclass
class NewFile(Endpoint):
    """A destination that does not exist yet.

    Attributes:
        name: its path.
        flags: those of open(2).
    """

    name: str
    flags: int

    def create(self) -> None:
        """Create it, and open it."""
        with _failures_of(self.title):
            self.fd = os.open(self.name, self.flags | os.O_CREAT, 0o666)


@dataclass
class PendingFifo:
    """A FIFO whose other side may not be open yet."""

    title: str
    ticket: fifo.FifoTicket[PipeReader] | fifo.FifoTicket[PipeWriter]

    has_positions = False

    def wait(self, deadline: Deadline) -> Endpoint:
        """Wait for the other side, at most until the deadline; then raise a `StalledError`."""
        with _failures_of(self.title), self.ticket.wait(deadline.left_s()) as stream:
            return Endpoint(self.title, os.dup(stream.fileno()))

    def close(self) -> None:
        """Stop opening it, unless it is open."""
        self.ticket.cancel()


@contextmanager
def opened(
    src: str, dsts: Sequence[str], *, append: bool, offset: int | None = None, timeout: float | None = None
) -> Iterator[tuple[Endpoint, list[Endpoint]]]:
    """Open the source and all destinations, wait for the other sides of FIFOs, and only then create and empty files.

    Raises:
        click.ClickException: one cannot be opened, two are the same, or nobody opened a FIFO's other side within
            ``timeout`` seconds. No file has been emptied then.
    """
    _refuse_repeats(_found(src, dsts))
    with ExitStack() as stack:
        source, *destinations = _open_all(src, dsts, append, offset, timeout, stack)
        # Again, for what is open: a name may lead elsewhere by now.
        _refuse_repeats((each.title, each.status) for each in (source, *destinations))
        if not append:
            _empty(dsts, destinations)
        yield source, destinations


@contextmanager
def opened_destinations(names: Sequence[str], src: str) -> Iterator[list[Endpoint]]:
    """Open all destinations, as `opened` does. Another program reads ``src``, a path or a URL."""
    with ExitStack() as stack:
        openings = [_closed_later(_open_destination(name, append=False), stack) for name in names]
        destinations = _wait_for_all(openings, None, stack)
        _refuse_repeats([*_found_at(src), *((each.title, each.status) for each in destinations)])
        _empty(names, destinations)
        yield destinations


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
    with _fifo_failures(name):
        if not stat.S_ISFIFO(os.stat(path).st_mode):  # noqa: PTH116  # Path("") would be the current folder
            raise ValueError(f"{show_name(path)} is not a FIFO")
    return str(Path(path).absolute())  # "-" is not standard output here


def names_media(path: str) -> bool:
    """Whether the path is that of a video, sound or image by its ending, whose bytes are no raw frames."""
    known = containers.of_ending(ending_of(path).lower())
    return known is not None and known.name != _RAW


def refuse_same(first: str | Endpoint, second: str) -> None:
    """Raise a ``click.ClickException`` if both lead to the same file or FIFO."""
    found = [(first.title, first.status)] if isinstance(first, Endpoint) else _found_at(first)
    _refuse_repeats([*found, *_found_at(second)])


def check_standard_output() -> None:
    """Check that standard output was open at the start. If it was not, the next file that is opened gets its number."""
    with _failures_of(_STANDARD_TITLES[1]):
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _open_all(
    src: str, dsts: Sequence[str], append: bool, offset: int | None, timeout: float | None, stack: ExitStack
) -> list[Endpoint]:
    """Open all FIFOs at once: the other sides may be opened in any order."""
    openings = [_closed_later(_open_source(src), stack)]
    if offset is not None and not openings[0].has_positions:
        raise click.UsageError(f"--offset needs a file, which {openings[0].title} is not")
    openings += [_closed_later(_open_destination(name, append), stack) for name in dsts]
    return _wait_for_all(openings, timeout, stack)


def _wait_for_all(
    openings: Sequence[Endpoint | PendingFifo], timeout: float | None, stack: ExitStack
) -> list[Endpoint]:
    deadline = Deadline(timeout)
    try:
        endpoints = [
            opening if isinstance(opening, Endpoint) else _closed_later(opening.wait(deadline), stack)
            for opening in openings
        ]
    except StalledError as error:
        missing = ", ".join(o.title for o in openings if isinstance(o, PendingFifo) and not o.ticket.done())
        raise click.ClickException(
            f"{missing}: nobody has opened the other side for {timeout:g} s; nothing was written"
        ) from error
    for endpoint in endpoints:
        if isinstance(endpoint, NewFile):
            endpoint.create()
    return endpoints


Opening = TypeVar("Opening", bound=Endpoint | PendingFifo)


def _closed_later(opening: Opening, stack: ExitStack) -> Opening:
    stack.callback(opening.close)
    return opening


def _found(src: str, dsts: Sequence[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Titles and status of what the names lead to, where it exists."""
    if dsts.count(STANDARD) > 1:
        raise click.UsageError("standard output must be named once only")
    for name, number in ((src, 0), *((dst, 1) for dst in dsts)):
        if name == STANDARD:
            # A closed one must be seen now: the next file that is opened gets its number.
            with _failures_of(_STANDARD_TITLES[number]):
                yield _STANDARD_TITLES[number], os.fstat(number)
        else:
            yield from _found_at(name.removeprefix(FIFO_PREFIX), show_name(name))


def _found_at(path: str, title: str | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """What stat(2) cannot see cannot be opened either. The error is raised then."""
    with suppress(OSError, ValueError):  # ValueError for a path with a zero byte
        yield title or show_name(path), Path(path).stat()


def _refuse_repeats(found: Iterable[tuple[str, os.stat_result]]) -> None:
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
        if stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            titles[identity] = title


def _open_source(name: str) -> Endpoint | PendingFifo:
    if name == STANDARD:
        return Endpoint(_STANDARD_TITLES[0], os.dup(0))
    if _is_fifo(name):
        return _open_fifo(name, "r")
    with _failures_of(show_name(name)):
        endpoint = Endpoint(show_name(name), os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        if stat.S_ISDIR(endpoint.status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return endpoint


def _open_destination(name: str, append: bool) -> Endpoint | PendingFifo:
    if name == STANDARD:
        return Endpoint(_STANDARD_TITLES[1], _take_standard_output())
    if _is_fifo(name):
        return _open_fifo(name, "w")
    flags, title = os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if append else 0), show_name(name)
    with _failures_of(title):
        try:
            return Endpoint(title, os.open(name, flags))
        except FileNotFoundError:
            if not Path(name).resolve().parent.is_dir():
                raise
    return NewFile(title, -1, name, flags)


def _is_fifo(name: str) -> bool:
    """Whether the prefix says so, or a FIFO is there. open(2) on it would wait, and keep the next from being opened."""
    with suppress(OSError):
        return name.startswith(FIFO_PREFIX) or stat.S_ISFIFO(Path(name).stat().st_mode)
    return False


def _take_standard_output() -> int:
    """Move standard output to another descriptor: its reader sees the end when that is closed, not when we exit."""
    fd = os.dup(1)
    devnull = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(devnull, 1)
    os.close(devnull)
    return fd


def _open_fifo(name: str, mode: Literal["r", "w"]) -> PendingFifo:
    with _fifo_failures(name):
        return PendingFifo(show_name(name), fifo.open_async(name.removeprefix(FIFO_PREFIX), mode))


@contextmanager
def _fifo_failures(name: str) -> Iterator[None]:
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


def _empty(names: Sequence[str], destinations: Sequence[Endpoint]) -> None:
    """Empty the files, but never the one that standard output leads to."""
    for name, endpoint in zip(names, destinations, strict=True):
        if name != STANDARD and stat.S_ISREG(endpoint.status.st_mode):
            with _failures_of(endpoint.title):
                os.ftruncate(endpoint.fd, 0)


@contextmanager
def _failures_of(title: str) -> Iterator[None]:
    """Turn a failure of the system into one line that begins with the title."""
    try:
        yield
    except StalledError:
        raise
    except OSError as error:
        raise click.ClickException(f"{title}: {error.strerror or error}") from None
