"""From where to where bytes go: files, and pipes and sockets with the threads that feed and drain them.

Every pipe and socket is new for each run and has the system's default size; a method that wants a larger one
enlarges it. The threads hold the interpreter's lock only between their system calls.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Literal

#: What feeders write and drains read at once: as large as the pieces of the fastest methods.
PIECE_BYTES = 256 * 2**10
#: A prime, so that no piece, page or block looks like another nearby.
PERIOD_BYTES = 1_048_583
#: Of the slowest reader: far below what a relay can do, so that the reader is what limits it.
BASE_PACE_BYTES_PER_S = 200e6
PACES = (1.0, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Way:
    """From where to where."""

    name: str
    source: Literal["file", "pipe"]
    sink: Literal["file", "pipe", "unix", "tcp"]
    #: Bytes that an operation moves.
    sizes: tuple[int, ...]
    #: How many get the stream; more than none makes it a tee's.
    readers: int = 0
    #: Each reader takes its time for what it has read, as one does that works on it.
    is_paced: bool = False

    @property
    def is_tee(self) -> bool:
        """Whether the stream goes to many. It then ends with its source, so that it cannot be repeated."""
        return self.readers > 0

    def pace_bytes_per_s(self, reader: int) -> float | None:
        """How fast a reader is; None for as fast as it can. The first is the slowest."""
        return BASE_PACE_BYTES_PER_S * PACES[reader % len(PACES)] if self.is_paced else None


class MisdeliveredError(Exception):
    """What arrived is not what was sent."""


class Content:
    """The bytes of one operation: in a file whose pages are in memory, and mapped."""

    def __init__(self, file: IO[bytes], nbytes: int) -> None:
        noise = os.urandom(min(nbytes, PERIOD_BYTES))
        for start in range(0, nbytes, PERIOD_BYTES):
            file.write(noise[: nbytes - start])
        file.flush()
        self.file = file
        self.nbytes = nbytes
        self.view = memoryview(_mapped(file, nbytes))

    def crc(self, repeats: int) -> int:
        """Of so many operations on end."""
        crc = 0
        for _ in range(repeats):
            crc = zlib.crc32(self.view, crc)
        return crc


def _mapped(file: IO[bytes], nbytes: int) -> mmap.mmap | bytes:
    # What is empty cannot be mapped.
    return mmap.mmap(file.fileno(), nbytes, prot=mmap.PROT_READ) if nbytes else b""


@dataclass
class Ends:
    """What a method is given: descriptors, and how many bytes to move from the first to the others."""

    way: Way
    nbytes: int
    src: int
    dsts: Sequence[int]

    @property
    def dst(self) -> int:
        """The only one."""
        (dst,) = self.dsts
        return dst

    @property
    def pipes(self) -> list[int]:
        """Those that are pipes."""
        return [self.src] * (self.way.source == "pipe") + [*self.dsts] * (self.way.sink == "pipe")


class Feeder(threading.Thread):
    """Writes the content into a pipe, so many times on end, and closes it."""

    def __init__(self, fd: int, content: Content, repeats: int) -> None:
        super().__init__(daemon=True)
        self.fd, self.content, self.repeats = fd, content, repeats

    def run(self) -> None:
        try:
            for _ in range(self.repeats):
                self._write_once()
        except BrokenPipeError:
            pass  # the method has stopped early, and is found out by what it has not delivered
        finally:
            os.close(self.fd)

    def _write_once(self) -> None:
        done = 0
        while done < self.content.nbytes:
            done += os.write(self.fd, self.content.view[done : done + PIECE_BYTES])

    def end(self) -> None:
        """Once the pipe has no reader: wait for the thread, or close the pipe if the thread was never started."""
        if self.ident is None:
            os.close(self.fd)
        else:
            self.join()


class Drain(threading.Thread):
    """Reads a pipe or socket to its end, into one buffer that it uses again and again."""

    def __init__(self, fd: int, pace_bytes_per_s: float | None, check: bool) -> None:
        super().__init__(daemon=True)
        self.fd, self.pace_bytes_per_s, self.check = fd, pace_bytes_per_s, check
        self.nbytes = self.crc = 0
        self.start()

    def run(self) -> None:
        try:
            self._read_all()
        finally:
            os.close(self.fd)

    def _read_all(self) -> None:
        piece = memoryview(bytearray(PIECE_BYTES))
        due_s = before_s = time.perf_counter()
        while nbytes := os.readv(self.fd, [piece]):
            self.nbytes += nbytes
            if self.check:
                self.crc = zlib.crc32(piece[:nbytes], self.crc)
            if self.pace_bytes_per_s:
                # A sleep that was too long is made up for, but never the time that the bytes kept us waiting.
                now_s = time.perf_counter()
                due_s += now_s - before_s + nbytes / self.pace_bytes_per_s
                time.sleep(max(0.0, due_s - now_s))
                before_s = time.perf_counter()


class Flow:
    """The ends of one run, and who is behind them."""

    def __init__(
        self, way: Way, content: Content, sink: IO[bytes], *, repeats: int, readers: int, check: bool
    ) -> None:
        """``sink`` is the file to write to, if the way ends in one."""
        self.feeder: Feeder | None = None
        self.drains: list[Drain] = []
        self.content, self.sink, self.check = content, sink, check
        #: How often the content comes out at an end: a file is written anew by each operation.
        self.passes = 1 if way.sink == "file" else repeats
        if check and way.sink == "file":
            sink.truncate(0)
        src, dsts = content.file.fileno(), (sink.fileno(),)
        if way.source == "pipe":
            src, feed = os.pipe()
            self.feeder = Feeder(feed, content, repeats)
        if way.sink != "file":
            outs, dsts = zip(*(_connected(way.sink) for _ in range(readers)), strict=True)
            self.drains = [Drain(out, way.pace_bytes_per_s(n), check) for n, out in enumerate(outs)]
        self.ends = Ends(way, content.nbytes, src, dsts)

    def begin(self) -> None:
        """Let the source flow."""
        if self.feeder is not None:
            self.feeder.start()

    def finish(self) -> None:
        """Say that no more comes, and return when the last byte has been read."""
        for dst in self.ends.dsts if self.drains else ():
            os.close(dst)
        self.ends.dsts = ()
        for drain in self.drains:
            drain.join()

    def close(self) -> None:
        """End what is still there; the threads, too, have then ended."""
        self.finish()
        if self.feeder is not None:
            os.close(self.ends.src)
            self.feeder.end()

    def verify(self, claimed: int) -> None:
        """Compare what has come out at each end with the content. ``claimed`` is what the method says that it moved.

        Raises:
            MisdeliveredError: other bytes have arrived than were sent, or fewer or more.
        """
        if claimed != self.content.nbytes:
            raise MisdeliveredError(f"it says that it moved {claimed} bytes of {self.content.nbytes}")
        sent = self.passes * self.content.nbytes
        crc = self.content.crc(self.passes) if self.check else 0
        for number, (arrived, arrived_crc) in enumerate(self._arrived()):
            if arrived != sent:
                raise MisdeliveredError(f"{sent} bytes were sent, and {arrived} arrived at end {number}")
            if arrived_crc != crc:
                raise MisdeliveredError(f"other bytes than were sent arrived at end {number}")

    def _arrived(self) -> list[tuple[int, int]]:
        """Bytes and CRC-32 (0 where it was not asked for) of each end."""
        if self.drains:
            return [(drain.nbytes, drain.crc) for drain in self.drains]
        nbytes = os.fstat(self.sink.fileno()).st_size
        return [(nbytes, zlib.crc32(_mapped(self.sink, nbytes)) if self.check else 0)]


def _connected(sink: str) -> tuple[int, int]:
    """A new pipe or stream: where to read, and where to write."""
    if sink == "pipe":
        return os.pipe()
    here, there = socket.socketpair() if sink == "unix" else _tcp_pair()
    return here.detach(), there.detach()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        return server.accept()[0], there
