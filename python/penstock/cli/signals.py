"""Ctrl-C and other signals: a command reports its progress, and then ends as the signal would have ended it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, NoReturn

from penstock._platform import wakeups

#: The signals that end a command, and what it reports then.
ENDING = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
if hasattr(signal, "SIGHUP"):
    ENDING[signal.SIGHUP] = "hung up"

#: Signals that came in a block of `deferred`; None outside of one.
_deferred: list[int] | None = None


class Stopped(BaseException):
    """A signal came. This is no Exception, so that handlers of failures let it pass.

    Python ignores SIGPIPE. A command raises Stopped for it, and ends without a message, as other filters do.

    Attributes:
        number: the signal.
        progress: the progress to report; empty if there is nothing to report.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.progress = ""


@contextmanager
def ending_by_signal() -> Iterator[None]:
    """Let signals raise `Stopped` in the block. If it leaves the block, the signal ends this process.

    Signals that are ignored stay ignored: nohup(1) and shells ignore them for processes that are to live on.
    """
    wakeups.begin()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    except Stopped as stopped:
        if stopped.number in ENDING:
            _report(stopped)
        _end(stopped.number)
    finally:
        wakeups.end()


def wait_for(fd: int, use: Literal["reading", "writing"]) -> None:
    """Wait until a descriptor can be read or written, or let a signal raise.

    Python looks for signals before a system call. One that comes between that look and a read would be seen only when
    the read has ended.
    """
    wakeups.wait(fd, use, is_main_thread=threading.current_thread() is threading.main_thread())


@contextmanager
def deferred() -> Iterator[None]:
    """Let signals wait until the block ends, so that the caller can assign the object it starts before one raises."""
    global _deferred
    numbers: list[int] = []
    _deferred = numbers
    try:
        yield
    finally:
        _deferred = None
        if numbers:
            _stop(numbers[0], None)


def _stop(number: int, _frame: FrameType | None) -> None:
    wakeups.seen()
    if _deferred is not None:
        _deferred.append(number)
        return
    # A second signal ends the process at once, whatever it does about the first.
    for each in ENDING:
        if signal.getsignal(each) is _stop:
            signal.signal(each, signal.SIG_DFL)
    raise Stopped(number)


def _report(stopped: Stopped) -> None:
    parts = filter(None, (f"Error: {ENDING[signal.Signals(stopped.number)]}", stopped.progress))
    # After a hang-up there is no terminal. If sys.stderr is None, print would write to standard output.
    with suppress(OSError, AttributeError):
        sys.stderr.write("; ".join(parts) + "\n")
        sys.stderr.flush()


def _end(number: int) -> NoReturn:
    """End by the signal itself: a shell then ends its loop or script as well."""
    wakeups.end_by(number)
    os._exit(128 + number)  # the first process of a container survives its own signals
