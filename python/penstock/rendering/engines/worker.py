"""A process that renders chunks for `processes`: ``python -m penstock.rendering.engines.worker DESCRIPTOR``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from penstock.errors import FFmpegWarning
from penstock.rendering.chunk import Renderer
from penstock.rendering.engines import ENDING_S, Done, Event, Failed, FramesDone
from penstock.rendering.planning import Plan, chunk_of_number

#: Chosen: often enough for a progress bar.
PERIOD_S = 0.5


def at_times(tell: Callable[[int], object]) -> Callable[[int], None]:
    """Returns a function to call with the number of frames so far after each one. It calls `tell` twice a second."""
    told_s = time.monotonic()

    def on_frame(done: int) -> None:
        nonlocal told_s
        if time.monotonic() >= told_s + PERIOD_S:
            told_s = time.monotonic()
            tell(done)

    return on_frame


def main(descriptor: int) -> None:
    """Renders the chunks whose numbers come, until the other end closes."""
    connection = Connection(descriptor)
    orders: SimpleQueue[Any] = SimpleQueue()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    threading.Thread(target=_receive, args=(connection, orders), daemon=True).start()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        text, paths, threads = orders.get()
        sys.path[:] = paths
        warnings.simplefilter("ignore", FFmpegWarning)  # the report has them
        plan: Plan | None = None
        renderer: Renderer | None = None
        while True:
            number = orders.get()
            try:
                plan = plan or Plan.from_json(text)
                chunk = chunk_of_number(plan, number)
                tell = partial(_tell, connection, number)
                renderer = renderer or Renderer(plan, threads, is_checked=True)
                event: Event = Done(number, renderer.render(chunk, at_times(tell)))
            except Exception as error:
                event = Failed.of(number, error)
            connection.send(event)


def _tell(connection: Connection, number: int, frames: int) -> None:
    connection.send(FramesDone(number, frames))


def _receive(connection: Connection, orders: SimpleQueue[Any]) -> None:
    """Takes what the driver sends. When the driver has gone, ends this process, its FFmpeg, and the chunk at work."""
    try:
        while True:
            orders.put(connection.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ENDING_S)
        os._exit(1)  # SIGTERM had no effect: the scene is in a call that does not return to Python


if __name__ == "__main__":
    main(int(sys.argv[1]))
