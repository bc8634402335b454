"""A thread that each signal wakes by a socket. It ends the system call that the main thread waits in."""

from __future__ import annotations

import ctypes
import signal
import socket
import sys
import threading
from ctypes import wintypes
from typing import Literal

assert sys.platform == "win32"

#: Its number on Linux: shells report 128 more.
READER_GONE = 13

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel32.OpenThread.restype = wintypes.HANDLE
_kernel32.CancelSynchronousIo.argtypes = (wintypes.HANDLE,)
# "Thread Security and Access Rights": what CancelSynchronousIo needs.
_THREAD_TERMINATE = 1
# Chosen: a call that begins after one look is ended by the next.
_LOOK_S = 0.005

_ends: tuple[socket.socket, socket.socket] | None = None
_is_seen = threading.Event()


def begin() -> None:
    """Has each signal end the waits of this thread from now on, until `end`."""
    global _ends
    _is_seen.clear()
    _ends = wakes, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.fileno(), warn_on_full_buffer=False)
    waiting = _kernel32.OpenThread(_THREAD_TERMINATE, False, threading.get_native_id())
    threading.Thread(target=_attend, args=(wakes, waiting), daemon=True).start()


def _attend(wakes: socket.socket, waiting: int) -> None:
    if wakes.recv(1):
        while not _is_seen.wait(_LOOK_S):
            _kernel32.CancelSynchronousIo(waiting)
    _kernel32.CloseHandle(wintypes.HANDLE(waiting))
    wakes.close()


def seen() -> None:
    """A handler of the signal runs: the thread waits no longer."""
    _is_seen.set()


def end() -> None:
    assert _ends is not None
    signal.set_wakeup_fd(-1)
    seen()
    _ends[1].close()


def wait(fd: int, use: Literal["reading", "writing"], *, is_main_thread: bool) -> None:
    """The read or the write itself waits."""


def end_by(number: int) -> None:
    """No signal ends a process here."""
