"""Feeds frames to a method, for timing and for content checks. Also the methods that several benchmarks share."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from benchmarks.harness.accounts import note_children_peak
from benchmarks.harness.content import Frame
from benchmarks.harness.results import Run

#: As in TurboPipe's own comparison.
QUEUED_FRAMES = 10


@dataclass
class Sender:
    """A started method."""

    #: Sends a frame. If it borrows the frame, it returns a function that waits until the frame may be overwritten.
    write: Callable[[Frame], Any]
    #: Waits until every frame has arrived. Raises if one was lost.
    finish: Callable[[], object]
    #: What the method reports about itself after `finish`, for the record.
    notes: Callable[[], dict[str, object]] = dict


def feed(
    sender: Sender,
    frames: Sequence[Frame],
    count: int,
    run: Run,
    *,
    paced_fps: int | None = None,
    paint: Callable[[Frame, int], None] | None = None,
) -> None:
    """Send ``count`` frames, the buffers in turn, and measure how long each call blocked.

    With a pace, also time a plain copy of each frame, for comparison. ``paint`` is for content checks: it overwrites a
    buffer as soon as the method allows.
    """
    blocked_s: list[float] = []
    copied_s: list[float] = []
    free: list[Any] = [None] * len(frames)
    started = time.perf_counter()
    copy = frames[0].copy() if paced_fps else None

    def time_copy(frame: Frame) -> None:
        if copy is not None:
            before = time.perf_counter()
            copy[...] = frame
            copied_s.append(time.perf_counter() - before)

    for number in range(count):
        index = number % len(frames)
        if paced_fps:
            time.sleep(max(0.0, started + number / paced_fps - time.perf_counter()))
        # Copy before every second call and after the others, so that both find the frame in the cache equally often.
        if number % 2:
            time_copy(frames[index])
        before = time.perf_counter()
        if callable(free[index]):
            free[index]()
        if paint is not None:
            paint(frames[index], number)
        free[index] = sender.write(frames[index])
        blocked_s.append(time.perf_counter() - before)
        if not number % 2:
            time_copy(frames[index])
    note_children_peak(run)
    sender.finish()
    note_quantiles(run, "blocked", blocked_s, p50=0.5, p99=0.99, max=1.0)
    if copied_s:
        note_quantiles(run, "copy", copied_s, p99=0.99)
    run.notes = sender.notes()


def note_quantiles(run: Run, name: str, seconds: Sequence[float], **parts: float) -> None:
    """Set figures such as ``blocked_p50_ms``."""
    for label, part in parts.items():
        run.figures[f"{name}_{label}_ms"] = 1e3 * quantile(seconds, part)


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that ``part`` of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def stdin_write(stdin: IO[bytes]) -> Sender:
    """``stdin.write(frame.tobytes())`` on the calling thread."""
    return Sender(lambda frame: stdin.write(frame.tobytes()), stdin.flush)


def thread_queue(stdin: IO[bytes]) -> Sender:
    """The same on a Python thread, behind a queue of 10 frames."""
    frames: queue.Queue[bytes | None] = queue.Queue(QUEUED_FRAMES)
    errors: list[OSError] = []

    def write_all() -> None:
        while (frame := frames.get()) is not None:
            # After an error it goes on taking frames: nobody else empties the queue, and a full one blocks the caller.
            if not errors:
                try:
                    stdin.write(frame)
                except OSError as error:
                    errors.append(error)

    def finish() -> None:
        frames.put(None)
        thread.join()
        if errors:
            raise errors[0]
        stdin.flush()

    thread = threading.Thread(target=write_all, daemon=True)
    thread.start()
    return Sender(lambda frame: frames.put(frame.tobytes()), finish)


def turbopipe(stdin: IO[bytes]) -> Sender:
    """TurboPipe, with ``sync`` before a buffer is used again.

    As in its README. TurboPipe holds no reference to buffers or descriptor, so both must outlive its queue.
    """
    import turbopipe

    fd, buffers = stdin.fileno(), {}

    def write(frame: Frame) -> Callable[[], None]:
        buffers[id(frame)] = frame
        turbopipe.pipe(frame, fd)
        return partial(turbopipe.sync, frame)

    def finish() -> None:
        for frame in buffers.values():
            turbopipe.sync(frame)
            turbopipe.done(frame)

    return Sender(write, finish)
