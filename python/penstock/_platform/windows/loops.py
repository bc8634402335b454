"""An event, for which a thread waits: a Proactor loop watches no handles."""

from __future__ import annotations

import _winapi
import asyncio
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

assert sys.platform == "win32"

# Chosen: nobody notices that the thread lives on for so long after its loop.
_CLOSED_WITHIN_MS = 200


class Waker(Protocol):
    """What a native thread sets, and `wake` resets."""

    def fileno(self) -> int: ...


def watch(loop: asyncio.AbstractEventLoop, waker: Waker, wake: Callable[[], None]) -> None:
    """Has the loop call `wake` when the waker is set, until the loop is closed."""
    threading.Thread(target=_wait, args=(weakref.ref(loop), waker, wake), daemon=True).start()


def _wait(
    loop_of: Callable[[], asyncio.AbstractEventLoop | None], waker: Waker, wake: Callable[[], None]
) -> None:
    is_reset = threading.Event()

    def wake_and_go_on() -> None:
        wake()
        is_reset.set()

    while True:
        is_set = _winapi.WaitForSingleObject(waker.fileno(), _CLOSED_WITHIN_MS) == _winapi.WAIT_OBJECT_0
        loop = loop_of()
        if loop is None or loop.is_closed():
            return
        if is_set:
            is_reset.clear()
            try:
                loop.call_soon_threadsafe(wake_and_go_on)
            except RuntimeError:  # it was closed just now
                return
            while not is_reset.wait(_CLOSED_WITHIN_MS / 1000) and not loop.is_closed():
                pass
        del loop
