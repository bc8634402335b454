"""A thread for calls that may never return."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class Daemon:
    """A thread that makes one call after another.

    The exit of the interpreter waits for no call, as it would with a ``ThreadPoolExecutor``.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_run, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Has the thread call `function`, after the calls before."""
        outcome: Future[T] = Future()

        def call() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self._calls.put(call)
        return outcome

    def end(self) -> None:
        """Ends the thread after the calls that it has got."""
        self._calls.put(None)

    def join(self, timeout_s: float) -> None:
        """Waits so many seconds at most for the thread to end."""
        self._thread.join(timeout_s)


def _run(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
