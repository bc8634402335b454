"""File descriptors: duplicates, and what a pipe holds."""

from __future__ import annotations

import fcntl
import os
import select
import sys
import termios
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL

Source = TypeVar("Source")

BINARY = 0
"""The flag of os.open for bytes as they are."""


def duplicate(fd: int) -> int:
    """A duplicate with a number above 2, which other programs don't inherit."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


duplicate_for_programs = duplicate


is_terminal = os.isatty


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


untaken_bytes = unread_bytes
"""By the writing end of a pipe, bytes of it that its reader hasn't taken."""


def tells_of_no_reader(error: OSError, fd: int) -> bool:
    """Whether a write failed because the pipe has no reader."""
    return isinstance(error, BrokenPipeError)


def zeros(_nbytes: int) -> str:
    """The path of a file that has so many zeros, or more, for other programs."""
    return "/dev/zero"


def grow_pipe(fd: int, nbytes: int) -> None:
    """Asks for a larger pipe. The user's pipes together may be at the kernel's limit."""
    with suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, nbytes)


def waits_to_read(fd: int, at_most_ms: int) -> bool:
    """Waits until a read may return: of a pipe that has no writer yet, it would report the end.

    Returns whether it may. A blocking descriptor waits in the read itself.
    """
    if os.get_blocking(fd):
        return True
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(at_most_ms))


def read_into(fd: int, buffer: memoryview) -> int:
    """Reads some bytes. Returns how many."""
    return os.readv(fd, [buffer])


write = os.write
"""Writes some bytes. Returns how many."""


def url_of(fd: int) -> str:
    """The file that a descriptor leads to, for other programs: opened again, with a position of its own."""
    return f"file:/proc/{os.getpid()}/fd/{fd}"


def open_again(fd: int) -> int:
    """The same file with a position of its own, for reading."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def for_libav(fd: int) -> str:
    """What libav opens to read a descriptor to its end."""
    return f"pipe:{fd}"


def path_of_standard_input() -> str:
    """The file that is this program's standard input, if it is one, for other programs."""
    return os.path.realpath("/dev/stdin")


def named(name: Source) -> Source | int:
    """A descriptor, if the system has no file of that name that leads to it."""
    return name


def in_memory(pieces: Iterable[bytes | memoryview]) -> int:
    """A file in memory that nobody can change, with these bytes."""
    held = os.memfd_create("penstock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(held, "wb", closefd=False) as file:
            file.writelines(pieces)
        fcntl.fcntl(held, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(held)
        raise
    return held


release = os.close
"""Closes what `in_memory` or `duplicate` has returned."""


status_of = os.stat
"""The status of a file."""


def sync(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def close_all_of(what: os.stat_result) -> None:
    """Closes all descriptors of this process that lead there."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only numbers
        with suppress(OSError):
            if os.path.samestat(os.fstat(int(name)), what):
                os.close(int(name))
