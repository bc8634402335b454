"""GlobalMemoryStatusEx. Windows has none of the settings and limits."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

assert sys.platform == "win32"


class _Memory(ctypes.Structure):
    """MEMORYSTATUSEX, of which the last sizes aren't used."""

    _fields_ = (
        ("size", wintypes.DWORD),
        ("load", wintypes.DWORD),
        ("total", ctypes.c_ulonglong),
        ("others", ctypes.c_ulonglong * 6),
    )


def memory_bytes() -> int | None:
    """The machine's memory."""
    memory = _Memory(size=ctypes.sizeof(_Memory))
    if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(memory)):
        return None
    return int(memory.total)


def setting(_path: str) -> None:
    """No file, not even where Wine shows those of Linux."""


def limit(_name: str) -> None:
    """None."""
