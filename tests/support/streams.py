"""Both ends of pipes: readers, noise to send, and what the kernel holds."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

from penstock._platform import descriptors
from support.cases import PATIENCE_S
from support.this_process import only_on_linux

PIPE_BYTES = 64 << 10
"""What Linux gives a new pipe (pipe(7))."""

CAT = ["cat"]
"""A program that copies its standard input to its standard output."""
if sys.platform == "win32":
    CAT = [
        sys.executable,
        "-c",
        "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)",
    ]


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that differ everywhere, so that a lost, doubled or exchanged piece shows."""
    return random.Random(seed).randbytes(size)


class ReaderThread:
    """Reads a descriptor to its end on a Python thread, in the same process as the writer."""

    def __init__(self, fd: int, *, chunk_bytes: int = 1 << 20, gate: threading.Event | None = None) -> None:
        self.fd = fd
        self.chunk_bytes = chunk_bytes
        self.gate = gate
        self.got = bytearray()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        if self.gate is not None:
            self.gate.wait()
        while chunk := os.read(self.fd, self.chunk_bytes):
            self.got += chunk
        os.close(self.fd)

    def result(self) -> bytes:
        """All that came until the end of file."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), f"the reader had no end of file; it has {len(self.got)} bytes"
        return bytes(self.got)


def read_exactly(fd: int, size: int) -> bytes:
    """That many bytes, or fewer at the end of file."""
    got = bytearray()
    while len(got) < size and (chunk := os.read(fd, size - len(got))):
        got += chunk
    return bytes(got)


def feed(data: bytes) -> int:
    """A pipe's reading end, which a thread feeds."""
    reader, writer = os.pipe()

    def write() -> None:
        with os.fdopen(writer, "wb", buffering=0) as file, contextlib.suppress(OSError):
            for start in range(0, len(data), 50_000):
                file.write(data[start : start + 50_000])

    threading.Thread(target=write, daemon=True).start()
    return reader


_COPY = "import shutil, sys; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
CAT = [sys.executable, "-c", _COPY] if sys.platform == "win32" else ["cat"]
"""A program that copies what it gets."""


@contextlib.contextmanager
def from_process(data: bytes) -> Iterator[IO[bytes]]:
    """The output of a process that writes the data."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        with subprocess.Popen(CAT, stdin=file, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            yield process.stdout


@contextlib.contextmanager
def from_socket(data: bytes) -> Iterator[IO[bytes]]:
    """A socket that is fed by a thread and ends with the data."""
    only_on_linux("sockets as descriptors")
    near, far = socket.socketpair()

    def send() -> None:
        with far, contextlib.suppress(ConnectionError):
            far.sendall(data)

    sender = threading.Thread(target=send)
    sender.start()
    with near, near.makefile("rb") as src:
        yield src
    sender.join()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


def capacity_bytes(fd: int) -> int:
    """The size of a pipe. Skips the test where the system doesn't report it."""
    only_on_linux("Windows doesn't report the size of a pipe")
    return descriptors.pipe_capacity(fd)


def unread_bytes(fd: int) -> int:
    """What is in a pipe."""
    return descriptors.unread_bytes(fd)
