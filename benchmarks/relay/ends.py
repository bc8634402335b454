"""Sources and destinations: files, and pipes and sockets with the threads that feed and drain them.

Each run has new pipes and sockets of the system's default size. A method that wants a larger pipe enlarges it. The
threads hold the interpreter's lock only between their system calls.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Literal, ParamSpec, TypeVar

from benchmarks.harness.results import MisdeliveredError

P = ParamSpec("P")
T = TypeVar("T")

KIB, MIB, GIB = 2**10, 2**20, 2**30
#: Feeders write and drains read so much at once, as the fastest methods do.
PIECE_BYTES = 256 * KIB
#: A prime, so that no piece, page or block looks like another nearby.
PERIOD_BYTES = 1_048_583
#: The pace of the slowest reader, far below that of any relay, so that the reader is the limit.
BASE_PACE_BYTES_PER_S = 200e6
PACES = (1.0, 1.5, 2.0, 3.0)
ENDS = {"file": "file in memory", "pipe": "pipe", "unix": "Unix socket", "tcp": "TCP socket"}


@dataclass(frozen=True)
class Way:
    """A source, and one or more sinks."""

    name: str
    source: Literal["file", "pipe"]
    sink: Literal["file", "pipe", "unix", "tcp"]
    #: Bytes that an operation moves.
    sizes: tuple[int, ...]
    #: How many readers get a tee's stream; 0 for a way to one sink.
    readers: int = 0
    #: Whether each reader takes time for what it has read.
    is_paced: bool = False

    @property
    def is_tee(self) -> bool:
        """Whether the stream goes to many. Such a stream ends with its source and cannot be repeated."""
        return self.readers > 0

    def pace_bytes_per_s(self, reader: int) -> float | None:
        """The pace of a reader; None for as fast as it can. The first is the slowest."""
        return BASE_PACE_BYTES_PER_S * PACES[reader % len(PACES)] if self.is_paced else None


@dataclass(frozen=True)
class Job:
    """What every method of a group has to move."""

    way: Way
    nbytes: int
    #: A run lasts so long, so that the start and end of its threads matter little.
    run_s: float

    @property
    def name(self) -> str:
        return f"{self.way.name}, {show_size(self.nbytes)}"

    @property
    def title(self) -> str:
        sink = f"each of {self.way.readers} pipes" if self.way.readers > 1 else f"a {ENDS[self.way.sink]}"
        pace = ", read at a pace" if self.way.is_paced else ""
        return f"{self.name}: from a {ENDS[self.way.source]} to {sink}{pace}"

    @property
    def kind(self) -> str:
        """The way, or that it is a tee."""
        return "tee" if self.way.is_tee else self.way.name

    @property
    def about(self) -> dict[str, Any]:
        return {"way": self.way.name, "bytes": self.nbytes}


def show_size(nbytes: int) -> str:
    """Such as ``64 KiB``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.4g} {name}"
    return f"{nbytes} B"


class Content:
    """The bytes of one operation, in a file whose pages are in memory."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        noise = os.urandom(min(nbytes, PERIOD_BYTES))
        for start in range(0, nbytes, PERIOD_BYTES):
            file.write(noise[: nbytes - start])
        file.flush()
        self.file = file
        self.nbytes = nbytes
        self.view = memoryview(_mapped(file, nbytes))

    def crc(self, repeats: int) -> int:
        """The CRC-32 of so many repetitions."""
        crc = 0
        for _ in range(repeats):
            crc = zlib.crc32(self.view, crc)
        return crc


def _mapped(file: IO[bytes], nbytes: int) -> mmap.mmap | bytes:
    # An empty file cannot be mapped.
    return mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ) if nbytes else b""


@dataclass
class Ends:
    """A method's arguments: descriptors, and how many bytes to move from ``src`` to each of ``dsts``."""

    way: Way
    nbytes: int
    src: int
    dsts: Sequence[int]

    @property
    def dst(self) -> int:
        """The only destination."""
        (dst,) = self.dsts
        return dst

    @property
    def pipes(self) -> list[int]:
        """The ends that are pipes."""
        return [self.src] * (self.way.source == "pipe") + [*self.dsts] * (self.way.sink == "pipe")


def feed(fd: int, content: Content, repeats: int) -> None:
    """Write the content into a pipe ``repeats`` times, and close the pipe."""
    # A method may stop early: the check finds what it has not delivered.
    with os.fdopen(fd, "wb", buffering=0), suppress(BrokenPipeError):
        for _ in range(repeats):
            done = 0
            while done < content.nbytes:
                done += os.write(fd, content.view[done : done + PIECE_BYTES])


def drain(fd: int, pace_bytes_per_s: float | None, check: bool) -> tuple[int, int]:
    """Read a pipe or socket to its end, always into the same buffer, and close it.

    Returns the number of bytes, and their CRC-32 or, without ``check``, 0.
    """
    arrived = crc = 0
    piece = memoryview(bytearray(PIECE_BYTES))
    due_s = before_s = time.perf_counter()
    with os.fdopen(fd, "rb", buffering=0):
        while nbytes := os.readv(fd, [piece]):
            arrived += nbytes
            if check:
                crc = zlib.crc32(piece[:nbytes], crc)
            if pace_bytes_per_s:
                # Make up for a sleep that was too long, but not for the time we waited for bytes.
                now_s = time.perf_counter()
                due_s += now_s - before_s + nbytes / pace_bytes_per_s
                time.sleep(max(0.0, due_s - now_s))
                before_s = time.perf_counter()
    return arrived, crc


class Flow:
    """The ends of one run, with the threads behind them."""

    def __init__(
        self, way: Way, content: Content, sink: IO[bytes], *, repeats: int, readers: int, check: bool
    ) -> None:
        """``sink`` is the file to write to, if the way ends in one."""
        self.content, self.sink, self.check, self.repeats = content, sink, check, repeats
        self.feed_fd = -1
        self.drains: list[Future[tuple[int, int]]] = []
        self.feeder: Future[None] | None = None
        src, dsts = content.file.fileno(), (sink.fileno(),)
        if way.source == "pipe":
            src, self.feed_fd = os.pipe()
        if way.sink != "file":
            outs, dsts = zip(*(_connected(way.sink) for _ in range(readers)), strict=True)
            paces = [way.pace_bytes_per_s(number) for number in range(readers)]
            self.drains = [_in_background(drain, *end, check) for end in zip(outs, paces, strict=True)]
        elif check:
            sink.truncate(0)
        self.ends = Ends(way, content.nbytes, src, dsts)

    def begin(self) -> None:
        """Start the feeder."""
        if self.feed_fd >= 0:
            self.feeder = _in_background(feed, self.feed_fd, self.content, self.repeats)
            self.feed_fd = -1

    def finish(self) -> None:
        """Close the destinations, and wait until the last byte has been read."""
        for dst in self.ends.dsts if self.drains else ():
            os.close(dst)
        self.ends.dsts = ()
        wait(self.drains)

    def close(self) -> None:
        """Close everything, and wait for the threads."""
        self.finish()
        if self.ends.way.source == "pipe":
            os.close(self.ends.src)
        if self.feed_fd >= 0:
            os.close(self.feed_fd)
        wait([self.feeder] if self.feeder else [])

    def verify(self, claimed: int) -> None:
        """Compare what has arrived at each end with the content. ``claimed`` is the method's own number of bytes.

        Raises:
            MisdeliveredError: other bytes have arrived than were sent, or fewer or more.
        """
        if claimed != self.content.nbytes:
            raise MisdeliveredError(f"it claims to have moved {claimed} bytes of {self.content.nbytes}")
        # Each operation overwrites a file, but adds to a stream.
        passes = self.repeats if self.drains else 1
        sent = passes * self.content.nbytes
        crc = self.content.crc(passes) if self.check else 0
        for number, (arrived, arrived_crc) in enumerate(self._arrived()):
            if arrived != sent:
                raise MisdeliveredError(f"{sent} bytes were sent, and {arrived} arrived at end {number}")
            if arrived_crc != crc:
                raise MisdeliveredError(f"other bytes than were sent arrived at end {number}")

    def _arrived(self) -> list[tuple[int, int]]:
        """The number of bytes, and their CRC-32 or 0, at each end."""
        if self.drains:
            return [drain.result() for drain in self.drains]
        nbytes = os.fstat(self.sink.fileno()).st_size
        return [(nbytes, zlib.crc32(_mapped(self.sink, nbytes)) if self.check else 0)]


def _in_background(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """What the function returns, on a thread that does not hold the interpreter's end, as those of executors do."""
    outcome: Future[T] = Future()

    def call() -> None:
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome


def _connected(sink: str) -> tuple[int, int]:
    """A new pipe or stream: its read end and its write end."""
    if sink == "pipe":
        return os.pipe()
    here, there = socket.socketpair() if sink == "unix" else _tcp_pair()
    return here.detach(), there.detach()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        return server.accept()[0], there
