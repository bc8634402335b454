"""Feeds frames to a method, for timing and for content checks; and the ways into a pipe that benchmarks share."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from benchmarks.harness.accounts import note_children_peak
from benchmarks.harness.pictures import Frame
from benchmarks.harness.results import Run
from penstock.results import Ticket

#: As long as the queue of TurboPipe's own comparison.
QUEUED_FRAMES = 10


class Sender:
    """Takes frames, one buffer at a time. By default it has a buffer's bytes when ``send`` returns."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames

    def wait_until_free(self, index: int) -> None:
        """Return when buffer ``index`` may be overwritten."""

    def send(self, index: int) -> None:
        """Hand over buffer ``index``."""
        raise NotImplementedError

    def finish(self) -> None:
        """Return when every frame is where it has to go, or raise what went wrong."""

    def notes(self) -> dict[str, object]:
        """What the method says of itself, for the record."""
        return {}


def feed(sender: Sender, count: int, run: Run, paced_fps: int | None = None) -> None:
    """Send so many frames, the buffers in turn, and note how long each blocked the caller.

    With a pace, a frame is also copied plainly in the same program, timed for comparison.
    """
    frames = sender.frames
    blocked_s, copied_s = [], []
    started = time.perf_counter()
    copy = frames[0].copy() if paced_fps else None
    for number in range(count):
        index = number % len(frames)
        if paced_fps:
            time.sleep(max(0.0, started + number / paced_fps - time.perf_counter()))
        # The frame is copied before every second call and after the others: both find it in the cache as often.
        if copy is not None and number % 2:
            copied_s.append(_copy_s(copy, frames[index]))
        before = time.perf_counter()
        sender.wait_until_free(index)
        sender.send(index)
        blocked_s.append(time.perf_counter() - before)
        if copy is not None and not number % 2:
            copied_s.append(_copy_s(copy, frames[index]))
    note_children_peak(run)
    sender.finish()
    for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        run.figures[f"blocked_{name}_ms"] = 1e3 * quantile(blocked_s, part)
    if copied_s:
        run.figures["copy_p99_ms"] = 1e3 * quantile(copied_s, 0.99)
    run.notes = sender.notes()


def _copy_s(copy: Frame, frame: Frame) -> float:
    before = time.perf_counter()
    copy[...] = frame
    return time.perf_counter() - before


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def feed_repainted(sender: Sender, count: int, paint: Callable[[Frame, int], None]) -> None:
    """Send so many frames, and paint each into its buffer as soon as the method says that it may be overwritten."""
    for number in range(count):
        index = number % len(sender.frames)
        sender.wait_until_free(index)
        paint(sender.frames[index], number)
        sender.send(index)
    sender.finish()


class TicketSender(Sender):
    """What gives a ticket for each buffer that it borrows."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        super().__init__(frames)
        self.tickets: list[Ticket | None] = [None] * len(frames)

    def wait_until_free(self, index: int) -> None:
        ticket = self.tickets[index]
        if ticket is not None:
            ticket.wait()


class StdinWrite(Sender):
    """What most programs do."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        super().__init__(frames)
        self.stdin = stdin

    def send(self, index: int) -> None:
        self.stdin.write(self.frames[index].tobytes())

    def finish(self) -> None:
        self.stdin.flush()


class ThreadQueue(StdinWrite):
    """The same on a Python thread, so that the caller need not wait for the pipe."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        super().__init__(stdin, frames)
        self.error: OSError | None = None
        self.queue: queue.Queue[bytes | None] = queue.Queue(QUEUED_FRAMES)
        self.thread = threading.Thread(target=self._write_all, daemon=True)
        self.thread.start()

    def _write_all(self) -> None:
        while (frame := self.queue.get()) is not None:
            # It goes on taking frames after an error: a full queue that nobody reads would hang the caller.
            if self.error is None:
                try:
                    self.stdin.write(frame)
                except OSError as error:
                    self.error = error

    def send(self, index: int) -> None:
        self.queue.put(self.frames[index].tobytes())

    def finish(self) -> None:
        self.queue.put(None)
        self.thread.join()
        if self.error is not None:
            raise self.error
        super().finish()


class TurboPipe(Sender):
    """TurboPipe 2, as its README has it. It keeps neither buffer nor descriptor, so both outlive its queue here."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        import turbopipe

        super().__init__(frames)
        self.turbopipe, self.fd = turbopipe, stdin.fileno()

    def wait_until_free(self, index: int) -> None:
        self.turbopipe.sync(self.frames[index])

    def send(self, index: int) -> None:
        self.turbopipe.pipe(self.frames[index], self.fd)

    def finish(self) -> None:
        for frame in self.frames:
            self.turbopipe.sync(frame)
            self.turbopipe.done(frame)
