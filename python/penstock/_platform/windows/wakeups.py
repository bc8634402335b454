"""Nothing ends a wait here but what is waited for: a signal is seen after the read or the write."""

from __future__ import annotations

from typing import Literal

#: Its number on Linux: shells report 128 more.
READER_GONE = 13


def begin() -> None:
    pass


def end() -> None:
    pass


def wait(fd: int, use: Literal["reading", "writing"], *, is_main_thread: bool) -> None:
    """The read or the write itself waits."""


def end_by(number: int) -> None:
    """No signal ends a process here."""
