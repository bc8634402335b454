"""File descriptors: duplicates, and what a pipe holds."""

from __future__ import annotations

import fcntl
import os
import sys
import termios


def duplicate(fd: int) -> int:
    """A duplicate with a number above 2, which other programs don't inherit."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


def above_standard(fd: int) -> int:
    """Moves a descriptor to a number above 2. If no number is left, the descriptor stays open."""
    if fd > 2:
        return fd
    above = duplicate(fd)
    os.close(fd)
    return above


def is_open_for(fd: int, use: str) -> bool:
    """Whether a descriptor is open for ``"reading"`` or ``"writing"``. Raises OSError if it is closed."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    wrong_mode = os.O_WRONLY if use == "reading" else os.O_RDONLY
    return flags & os.O_ACCMODE != wrong_mode and not flags & os.O_PATH


def pipe_capacity(fd: int) -> int:
    """Size of a pipe in bytes."""
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def unread_bytes(fd: int) -> int:
    """Bytes in a pipe that weren't read yet."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
