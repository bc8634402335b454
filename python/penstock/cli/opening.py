"""Opens sources and destinations: all FIFOs at once, and files only when nothing else can fail."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import click

from penstock import fifo
from penstock._common.deadline import Deadline
from penstock._common.messages import show_name
from penstock._platform import descriptors
from penstock.cli.names import (
    FIFO_PREFIX,
    STANDARD,
    STANDARD_TITLES,
    failures_of,
    fifo_failures,
    found,
    found_at,
    is_fifo,
    refuse_repeats,
)
from penstock.cli.signals import wait_for
from penstock.errors import StalledError
from penstock.pipes import PipeReader, PipeWriter


@dataclass
class Endpoint:
    """An open source or destination.

    Attributes:
        title: its name in messages.
        fd: its descriptor; -1 before it is open, and once it is closed.
        ticket: of a FIFO, whose other side may not be open yet.
    """

    title: str
    fd: int = -1
    ticket: fifo.FifoTicket[PipeReader] | fifo.FifoTicket[PipeWriter] | None = None

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
            nbytes = self._when_ready("reading", partial(descriptors.read_into, self.fd, buffer[filled:]))
            if nbytes == 0:
                break
            filled += nbytes
        return filled

    def write_all(self, data: bytes) -> None:
        """Write all of the data."""
        while data:
            data = data[self._when_ready("writing", partial(descriptors.write, self.fd, data)) :]

    def _when_ready(self, use: Literal["reading", "writing"], call: Callable[[], int]) -> int:
        """Make a call once the descriptor is ready for it, or let a signal raise."""
        while True:
            wait_for(self.fd, use)
            with suppress(BlockingIOError):  # another program may have made it non-blocking, and be faster
                return call()

    def close(self) -> None:
        """Close it. May be called again.

        Raises:
            click.ClickException: a write has failed. Some file systems report that only now.
        """
        if self.ticket is not None:
            self.ticket.cancel()
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with failures_of(self.title):
                os.close(fd)


@contextmanager
def opened(
    src: str, dsts: Sequence[str], *, append: bool, offset: int | None = None, timeout: float | None = None
) -> Iterator[tuple[Endpoint, list[Endpoint]]]:
    """Open the source and all destinations, wait for the other sides of FIFOs, and only then create and empty files.

    Raises:
        click.ClickException: one cannot be opened, two are the same, or nobody opened a FIFO's other side within
            ``timeout`` seconds. No file has been emptied then.
    """
    refuse_repeats(found(src, dsts))
    flags = os.O_WRONLY | (os.O_APPEND if append else 0)
    wanted = [(src, os.O_RDONLY), *((dst, flags) for dst in dsts)]
    with ExitStack() as stack:
        source, *destinations = endpoints = _begun(wanted, stack)
        if offset is not None and (source.ticket or not source.has_positions):
            raise click.UsageError(f"--offset needs a file, which {source.title} is not")
        _finish(wanted, endpoints, timeout)
        # Again, for what is open: a name may lead elsewhere by now.
        refuse_repeats((each.title, each.status) for each in endpoints)
        if not append:
            _empty(dsts, destinations)
        yield source, destinations


@contextmanager
def opened_destinations(names: Sequence[str], src: str) -> Iterator[list[Endpoint]]:
    """Open all destinations, as `opened` does. Another program reads ``src``, a path or a URL."""
    wanted = [(name, os.O_WRONLY) for name in names]
    with ExitStack() as stack:
        destinations = _begun(wanted, stack)
        _finish(wanted, destinations, None)
        refuse_repeats([*found_at(src), *((each.title, each.status) for each in destinations)])
        _empty(names, destinations)
        yield destinations


def _begun(wanted: Sequence[tuple[str, int]], stack: ExitStack) -> list[Endpoint]:
    """Endpoints for these names and flags of open(2). FIFOs and new files are not open yet."""
    endpoints: list[Endpoint] = []
    for name, flags in wanted:
        endpoints.append(_begin(name, flags))
        stack.callback(endpoints[-1].close)
    return endpoints


def _begin(name: str, flags: int) -> Endpoint:
    is_source, title = flags == os.O_RDONLY, show_name(name)
    if name == STANDARD:
        fd = os.dup(0) if is_source else _take_standard_output()
        return Endpoint(STANDARD_TITLES[not is_source], fd)
    if is_fifo(name):
        with fifo_failures(name):
            path = name.removeprefix(FIFO_PREFIX)
            return Endpoint(title, ticket=fifo.open_async(path, "r" if is_source else "w"))
    with failures_of(title):
        try:
            endpoint = Endpoint(title, _open(name, flags))
        except FileNotFoundError:
            if is_source or not Path(name).resolve().parent.is_dir():
                raise
            return Endpoint(title)
        if is_source and stat.S_ISDIR(endpoint.status.st_mode):
            endpoint.close()
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return endpoint


def _finish(wanted: Sequence[tuple[str, int]], endpoints: Sequence[Endpoint], timeout: float | None) -> None:
    """Wait for the other sides of all FIFOs, which may be opened in any order, and create the new files."""
    deadline = Deadline(timeout)
    tickets = [(each, each.ticket) for each in endpoints if each.ticket is not None]
    try:
        for each, ticket in tickets:
            with failures_of(each.title), ticket.wait(deadline.left_s()) as stream:
                each.fd = os.dup(stream.fileno())
    except StalledError as error:
        missing = ", ".join(each.title for each, ticket in tickets if not ticket.done())
        raise click.ClickException(
            f"{missing}: nobody has opened the other side for {timeout:g} s; nothing was written"
        ) from error
    for (name, flags), each in zip(wanted, endpoints, strict=True):
        if each.fd < 0:
            with failures_of(each.title):
                each.fd = _open(name, flags | os.O_CREAT)


def _open(name: str, flags: int) -> int:
    fd = os.open(name, flags | descriptors.BINARY, 0o666)
    if flags & os.O_APPEND and stat.S_ISREG(os.fstat(fd).st_mode):
        # On Windows, only writes of Python's C library go to the end by themselves.
        os.lseek(fd, 0, os.SEEK_END)
    return fd


def _take_standard_output() -> int:
    """Move standard output to another descriptor: its reader sees the end when that is closed, not when we exit."""
    fd = os.dup(1)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)
    return fd


def _empty(names: Sequence[str], destinations: Sequence[Endpoint]) -> None:
    """Empty the files, but never the one that standard output leads to."""
    for name, endpoint in zip(names, destinations, strict=True):
        if name != STANDARD and stat.S_ISREG(endpoint.status.st_mode):
            with failures_of(endpoint.title):
                os.ftruncate(endpoint.fd, 0)
