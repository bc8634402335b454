"""An eventfd, which event loops watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Waker(Protocol):
    """What a native thread sets."""

    def fileno(self) -> int: ...


def watch(loop: asyncio.AbstractEventLoop, waker: Waker, wake: Callable[[], None]) -> None:
    """Has the loop call `wake` when the waker is set, until the loop is closed."""
    loop.add_reader(waker.fileno(), wake)
