"""Ctrl-C and its kind: a command says how far it came, and then ends as the signal would have ended it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

#: What ends a command, and what it says then.
ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}

#: Those that came in a block of ``held``; None outside.
_held: list[int] | None = None


class Stopped(BaseException):
    """One of the signals has come. No Exception: what deals with failures shall let it pass.

    A command raises it of SIGPIPE itself, which Python ignores, and ends in silence then, as other filters do.

    Attributes:
        progress: how far the command came, for people; empty if there is nothing to tell.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.progress = ""


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Have the signals raise ``Stopped`` in the block; one that comes out of it ends this process.

    What is ignored stays ignored: nohup(1) and shells do so for what is to live on.
    """
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    except Stopped as stopped:
        if stopped.number in ENDING:
            _say(stopped)
        _end(stopped.number)


@contextmanager
def held() -> Iterator[None]:
    """Have a signal wait for the block's end: what begins there has a name then, by which to tell how far it came."""
    global _held
    numbers: list[int] = []
    _held = numbers
    try:
        yield
    finally:
        _held = None
        if numbers:
            _stop(numbers[0], None)


def _stop(number: int, _frame: FrameType | None) -> None:
    if _held is not None:
        _held.append(number)
        return
    # A second one ends the process at once, whatever it is doing about the first.
    for each in ENDING:
        if signal.getsignal(each) is _stop:
            signal.signal(each, signal.SIG_DFL)
    raise Stopped(number)


def _say(stopped: Stopped) -> None:
    parts = filter(None, (f"Error: {ENDING[signal.Signals(stopped.number)]}", stopped.progress))
    # After a hang-up there is no terminal. Without a standard error, print would take the output for one.
    with suppress(OSError, AttributeError):
        sys.stderr.write("; ".join(parts) + "\n")
        sys.stderr.flush()


def _end(number: int) -> NoReturn:
    """Of the signal itself: by that a shell knows that its loop or script is to end as well."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container outlives its own signals
