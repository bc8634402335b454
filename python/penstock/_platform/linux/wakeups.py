"""Waits that a signal ends: a pipe, into which the interpreter writes each signal, and poll(2)."""

from __future__ import annotations

import os
import select
import signal
from typing import Literal

from penstock._platform.linux.descriptors import above_standard

READER_GONE = signal.SIGPIPE
"""The signal of a program that writes to a pipe without a reader."""

# A pipe from which each signal that comes can be read; -1 without one.
_came = _writes = -1


def begin() -> None:
    """Has each signal end the waits of this thread from now on, until `end`."""
    global _came, _writes
    _came, _writes = map(above_standard, os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC))
    signal.set_wakeup_fd(_writes, warn_on_full_buffer=False)


def seen() -> None:
    """A handler of the signal runs: the waits find that out themselves."""


def end() -> None:
    global _came
    signal.set_wakeup_fd(-1)
    for fd in (_came, _writes):
        os.close(fd)
    _came = -1


def wait(fd: int, use: Literal["reading", "writing"], *, is_main_thread: bool) -> None:
    """Waits until a descriptor can be read or written, or lets a signal raise."""
    waiting = select.poll()
    waiting.register(fd, select.POLLIN if use == "reading" else select.POLLOUT)
    # Handlers run in the main thread: another thread must not take what wakes that one.
    if _came >= 0 and is_main_thread:
        waiting.register(_came, select.POLLIN)
    while _came in {ready for ready, _ in waiting.poll()}:
        os.read(_came, 64)  # it has raised, or is deferred


def end_by(number: int) -> None:
    """Ends this process by a signal, if the kernel lets it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
