"""A process that renders chunks for `processes`: ``python -m penstock.rendering.engines.worker DESCRIPTOR``."""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from penstock.rendering.chunk import Renderer
from penstock.rendering.failure import Failure
from penstock.rendering.plan import Plan, numbered

#: Chosen: often enough for a progress bar.
PERIOD_S = 0.5


def watched(frame_timeout: float | None, tell: Callable[[int], object]) -> Callable[[int], None]:
    """What to call after each frame, with the number of frames so far: it tells that, but not too often.

    If no call follows within `frame_timeout` seconds, the process prints its stack and ends.
    """
    told_s = time.monotonic()

    def on_frame(done: int) -> None:
        nonlocal told_s
        if frame_timeout is not None:
            faulthandler.dump_traceback_later(frame_timeout, exit=True)
        if time.monotonic() >= told_s + PERIOD_S:
            told_s = time.monotonic()
            tell(done)

    return on_frame


def main(descriptor: int) -> None:
    """Renders the chunks whose numbers come, until the other end closes."""
    connection = Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        text, paths, threads, frame_timeout = connection.recv()
        sys.path[:] = paths
        renderer: Renderer | None = None
        while True:
            number = connection.recv()
            try:
                plan = Plan.from_json(text)
                on_frame = watched(frame_timeout, lambda done: connection.send(("frames", done)))
                on_frame(0)
                renderer = renderer or Renderer(plan, threads)
                answer: tuple[str, object] = ("done", renderer.render(numbered(plan, number), on_frame))
            except (BrokenPipeError, ConnectionResetError):
                raise
            except Exception as error:
                answer = ("failed", Failure.of(error))
            finally:
                faulthandler.cancel_dump_traceback_later()
            connection.send(answer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
