"""A FUSE file system of one file, whose close takes its time or fails, as a disk on a network may fail that late.

Each close(2) sends FLUSH to the server, and returns the server's answer. The kernel's include/uapi/linux/fuse.h has the
structs. The server is this file as a program: ``python tests/fuse.py FOLDER SECONDS ERRNO LOG``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

_MNT_DETACH = 2
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN = 1, 2, 3, 4, 14
_WRITE, _RELEASE, _FLUSH, _INIT, _BATCH_FORGET = 16, 18, 25, 26, 42
_ROOT, _FILE = 1, 2
_DIRECT_IO = 1  # without the page cache: the server gets each write before it returns


class Mounted(NamedTuple):
    path: Path
    """The one file."""
    flushes: Path
    """Grows by a byte with each close that has reached the server."""
    abandon: Callable[[], None]
    """Fails all calls that wait for the server."""


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def mounted(folder: Path, flush_s: float = 0, flush_errno: int = 0) -> Iterator[Mounted]:
    """Mount the file system below `folder`, whose first close takes `flush_s`. Skips the test where that cannot be."""
    import pytest

    point, log = folder / "fuse", folder / "flushes"
    point.mkdir()
    log.touch()
    arguments = [sys.executable, __file__, point, str(flush_s), str(flush_errno), log]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            answer = server.stdout.readline().strip()
            if answer != "mounted":
                pytest.skip(f"no FUSE here: {answer}")
            yield Mounted(point / "file", log, server.kill)  # whoever waits for an answer gets ECONNABORTED
        finally:
            _unmount(point)
            server.kill()


def _unmount(point: str | Path) -> None:
    _libc().umount2(os.fsencode(point), _MNT_DETACH)


def _mount(point: str) -> int:
    connection = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={connection},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if _libc().mount(b"penstock", os.fsencode(point), b"fuse", 0, options.encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "mount(2)")
    return connection


def _serve(point: str, flush_s: float, flush_errno: int, log: str) -> None:
    try:
        connection = _mount(point)
    except OSError as error:
        print(error, flush=True)
        return
    flushes = os.open(log, os.O_WRONLY | os.O_APPEND)
    size = 0

    def reply(number: int, data: bytes = b"", failure: int = 0) -> None:
        with contextlib.suppress(FileNotFoundError):  # it was interrupted
            os.write(connection, struct.pack("<IiQ", 16 + len(data), -failure, number) + data)

    def attributes(node: int) -> bytes:
        mode, bytes_ = (0o40755, 0) if node == _ROOT else (0o100644, size)
        return struct.pack("<6Q10I", node, bytes_, *[0] * 7, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)

    print("mounted", flush=True)
    while True:
        try:
            request = os.read(connection, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return  # unmounted
            if error.errno in (errno.EINTR, errno.ENOENT):
                continue  # it was interrupted
            raise
        operation, number, node = struct.unpack_from("<IQQ", request, 4)
        arguments = request[40:]
        if operation == _INIT:  # version 7.31, writes of up to 64 KiB
            reply(number, struct.pack("<4I2H2I36x", 7, 31, 0, 0, 16, 12, 1 << 16, 1))
        elif operation == _LOOKUP and arguments == b"file\0":
            reply(number, struct.pack("<4Q2I", _FILE, 0, 0, 0, 0, 0) + attributes(_FILE))
        elif operation == _LOOKUP:
            reply(number, failure=errno.ENOENT)
        elif operation in (_GETATTR, _SETATTR):
            reply(number, struct.pack("<QII", 0, 0, 0) + attributes(node))
        elif operation == _OPEN:
            reply(number, struct.pack("<QII", 0, _DIRECT_IO, 0))
        elif operation == _WRITE:
            offset, written = struct.unpack_from("<QI", arguments, 8)
            size = max(size, offset + written)
            reply(number, struct.pack("<II", written, 0))
        elif operation == _FLUSH:
            os.write(flushes, b".")
            threading.Timer(flush_s, reply, (number, b"", flush_errno)).start()
            flush_s = 0  # those that follow are not what is tested
        elif operation == _RELEASE:
            reply(number)
        elif operation not in (_FORGET, _BATCH_FORGET):  # which have no answer
            reply(number, failure=errno.ENOSYS)


def _unmount_after_parent(point: str) -> None:
    sys.stdin.read()
    _unmount(point)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_unmount_after_parent, args=(sys.argv[1],), daemon=True).start()
    _serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    os._exit(0)  # without the answers that are due
