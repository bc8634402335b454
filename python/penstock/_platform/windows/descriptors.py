"""File descriptors of Python's C library."""

from __future__ import annotations

import _winapi
import atexit
import ctypes
import errno
import msvcrt
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from ctypes import wintypes
from functools import cache, partial
from io import FileIO
from pathlib import Path
from typing import TypeVar

assert sys.platform == "win32"

_final_path = ctypes.WinDLL("kernel32", use_last_error=True).GetFinalPathNameByHandleW
_final_path.argtypes = (wintypes.HANDLE, wintypes.LPWSTR, wintypes.DWORD, wintypes.DWORD)
_reopen = ctypes.WinDLL("kernel32", use_last_error=True).ReOpenFile
_reopen.argtypes, _reopen.restype = (wintypes.HANDLE, *[wintypes.DWORD] * 3), wintypes.HANDLE
_console_mode = ctypes.WinDLL("kernel32").GetConsoleMode
_console_mode.argtypes = (wintypes.HANDLE, wintypes.LPDWORD)
_query_object = ctypes.WinDLL("ntdll").NtQueryObject
_query_object.argtypes = (wintypes.HANDLE, wintypes.ULONG, wintypes.LPVOID, wintypes.ULONG, wintypes.LPVOID)
# "PUBLIC_OBJECT_BASIC_INFORMATION", of which the second word has the rights, and "File Access Rights Constants".
_FACTS, _READ_DATA, _WRITE_DATA = 14, 1, 2 | 4
_PATH_CHARACTERS = 1 << 15
_COPIED_BYTES = 1 << 20
# FILE_SHARE_READ, FILE_SHARE_WRITE and FILE_SHARE_DELETE
_SHARE_ALL = 1 | 2 | 4
# Chosen: adds little to a wait, and keeps no processor busy.
_LOOK_S = 0.002

#: The paths of files that `in_memory` has made, by their descriptors.
_temporary: dict[int, str] = {}

Source = TypeVar("Source")
# What commands call their standard input.
_STDIN = "/dev/stdin"

BINARY = os.O_BINARY
"""The flag of os.open for bytes as they are."""


def duplicate(fd: int) -> int:
    """A duplicate with a number above 2, which other programs don't inherit. Its bytes are as they are.

    The caller may have opened the original as text: the C library then ends a read at a byte 0x1A.
    """
    copy = os.dup(fd)
    msvcrt.setmode(copy, os.O_BINARY)
    return copy if copy > 2 else above_standard(copy)


def duplicate_for_programs(fd: int) -> int:
    """A duplicate of a file; a copy if nobody else can open it, as a file that Python deletes when it is closed."""
    try:
        os.close(os.open(url_of(fd).removeprefix("file:"), os.O_RDONLY))
    except PermissionError:
        with open(open_again(fd), "rb") as file:
            return in_memory(iter(partial(file.read, _COPIED_BYTES), b""))
    return duplicate(fd)


def above_standard(fd: int) -> int:
    """Moves a descriptor to a number above 2. If no number is left, the descriptor stays open."""
    if fd > 2:
        return fd
    above = duplicate(fd)
    os.close(fd)
    return above


def is_open_for(fd: int, use: str) -> bool:
    """Whether a descriptor is open for ``"reading"`` or ``"writing"``. Raises OSError if it is closed."""
    facts = (wintypes.DWORD * _FACTS)()
    if _query_object(msvcrt.get_osfhandle(fd), 0, facts, ctypes.sizeof(facts), None):
        return True  # the system doesn't tell
    return bool(facts[1] & (_READ_DATA if use == "reading" else _WRITE_DATA))


def is_terminal(fd: int) -> bool:
    """Whether it leads to a console. Python takes each device for one, also NUL."""
    return os.isatty(fd) and bool(_console_mode(msvcrt.get_osfhandle(fd), ctypes.byref(wintypes.DWORD())))


def pipe_capacity(fd: int) -> int:
    """Windows doesn't tell the size of a pipe."""
    raise OSError(errno.ENOTSUP, "Windows doesn't report the size of a pipe")


def unread_bytes(fd: int) -> int:
    """Bytes in a pipe that weren't read yet."""
    available, _ = _winapi.PeekNamedPipe(msvcrt.get_osfhandle(fd), 0)
    return available


def untaken_bytes(fd: int) -> int:
    """Windows doesn't tell a pipe's writing end how much was read: what the pipe has had counts as taken."""
    return 0


def tells_of_no_reader(error: OSError, fd: int) -> bool:
    """Whether a write failed because the pipe has no reader, for which the C library has no number of its own."""
    return error.errno in (errno.EPIPE, errno.EINVAL) and stat.S_ISFIFO(os.fstat(fd).st_mode)


def grow_pipe(fd: int, nbytes: int) -> None:
    """A pipe's size is fixed when it's made."""


def waits_to_read(fd: int, at_most_ms: int) -> bool:
    """Waits until a pipe has something to read, or is at its end. Returns whether that is so. A file always has."""
    until_s = time.monotonic() + at_most_ms / 1000
    with suppress(OSError):  # it is no pipe, or its writer has gone
        while not unread_bytes(fd):
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
    return True


def read_into(fd: int, buffer: memoryview) -> int:
    """Reads some bytes. Returns how many."""
    data = os.read(fd, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def write(fd: int, data: bytes | memoryview) -> int:
    """Writes some bytes. Returns how many."""
    try:
        return os.write(fd, data)
    except OSError as error:
        if tells_of_no_reader(error, fd):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error
        raise


def zeros(nbytes: int) -> str:
    """The path of a file that has so many zeros, or more, for other programs. It is removed at exit."""
    path = _file_of_zeros()
    if os.stat(path).st_size < nbytes:  # noqa: PTH116 - a str
        os.truncate(path, nbytes)
    return path


@cache
def _file_of_zeros() -> str:
    fd, path = tempfile.mkstemp(prefix="penstock-")
    os.close(fd)
    atexit.register(Path(path).unlink, missing_ok=True)
    return path


def url_of(fd: int) -> str:
    """The file that a descriptor leads to, for other programs: opened again, with a position of its own."""
    name = ctypes.create_unicode_buffer(_PATH_CHARACTERS)
    if not _final_path(msvcrt.get_osfhandle(fd), name, _PATH_CHARACTERS, 0):
        raise ctypes.WinError(ctypes.get_last_error())
    return f"file:{name.value.removeprefix(chr(92) * 2 + '?' + chr(92))}"


def open_again(fd: int) -> int:
    """The same file with a position of its own, for reading. It may be one that Python deletes when it's closed."""
    again = _reopen(msvcrt.get_osfhandle(fd), _winapi.GENERIC_READ, _SHARE_ALL, 0)
    if again == _winapi.INVALID_HANDLE_VALUE:
        raise ctypes.WinError(ctypes.get_last_error())
    return msvcrt.open_osfhandle(again, os.O_RDONLY | os.O_NOINHERIT | BINARY)


def path_of_standard_input() -> str:
    """The file that is this program's standard input, if it is one, for other programs."""
    try:
        return url_of(0).removeprefix("file:")
    except OSError:
        return _STDIN


def named(name: Source) -> Source | int:
    """A descriptor, if the system has no file of that name that leads to it."""
    return 0 if isinstance(name, str) and name == _STDIN else name


def for_libav(fd: int) -> FileIO:
    """What libav opens to read a descriptor to its end. Its C library is another one, which doesn't know the number."""
    return FileIO(fd, closefd=False)


def in_memory(pieces: Iterable[bytes | memoryview]) -> int:
    """A file with these bytes, which `release` deletes: other programs can't open what is in memory."""
    held, path = tempfile.mkstemp(prefix="penstock-")
    _temporary[held] = path
    try:
        with open(held, "wb", closefd=False) as file:
            file.writelines(pieces)
    except BaseException:
        release(held)
        raise
    return held


def release(fd: int) -> None:
    """Closes what `in_memory` or `duplicate` has returned."""
    os.close(fd)
    if (path := _temporary.pop(fd, None)) is not None:
        try:
            os.unlink(path)  # noqa: PTH108 - also while the interpreter ends
        except PermissionError:  # a thread or a program that is about to end has it open
            atexit.register(Path(path).unlink, missing_ok=True)


def status_of(path: str) -> os.stat_result:
    """The status of a file. A pipe has none: to look would open it, and a pipe is opened once."""
    if path.replace("\\", "/").lower().startswith("//./pipe/"):
        raise OSError(errno.EINVAL, "a pipe has no status", path)
    return os.stat(path)  # noqa: PTH116 - as given


def sync(path: Path) -> None:
    """Waits until a file is on the disk. Windows does that for folders."""
    if path.is_file():
        with path.open("r+b") as file:
            os.fsync(file.fileno())


def close_all_of(what: os.stat_result) -> None:
    """Only the child of a fork asks for it."""
