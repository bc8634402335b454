"""Both ends of pipes: readers, noise to send, and what the kernel holds."""

from __future__ import annotations

import fcntl
import os
import random
import sys
import termios
import threading

from support.cases import PATIENCE_S

PIPE_BYTES = 64 << 10
"""What Linux gives a new pipe (pipe(7))."""


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


def capacity_bytes(fd: int) -> int:
    """The size of a pipe."""
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def unread_bytes(fd: int) -> int:
    """What is in a pipe."""
    answer = fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(answer, sys.byteorder)
