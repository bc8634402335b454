"""Files, and pipes and sockets with the threads that feed and drain them.

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
from typing import IO, Any

from benchmarks.harness.results import MisdeliveredError
from benchmarks.relay.jobs import KIB, Way

#: Feeders write and drains read so much at once, as the fastest methods do.
PIECE_BYTES = 256 * KIB
#: A prime, so that no piece, page or block looks like another nearby.
PERIOD_BYTES = 1_048_583


class Content:
    """The bytes of one operation, in a file whose pages are in memory."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        noise = os.urandom(min(nbytes, PERIOD_BYTES))
        for start in range(0, nbytes, PERIOD_BYTES):
            file.write(noise[: nbytes - start])
        file.flush()
        self.file, self.nbytes = file, nbytes
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
        if self.ends.way.source == "pipe":
            self.feeder = _in_background(feed, self.feed_fd, self.content, self.repeats)

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
            if self.feeder is None:
                os.close(self.feed_fd)
            else:
                wait([self.feeder])

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


def _in_background(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """What the function returns, on a thread that does not hold the interpreter's end, as those of executors do."""
    outcome: Future[Any] = Future()

    def call() -> None:
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return outcome


def _connected(sink: str) -> tuple[int, int]:
    """A new pipe or stream: its read end and its write end."""
    if sink == "pipe":
        return os.pipe()
    if sink == "unix":
        here, there = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            there = socket.create_connection(server.getsockname())
            here, _ = server.accept()
    return here.detach(), there.detach()
