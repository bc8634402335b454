"""The methods under test: each takes frames from the same loop and owes it the same promises."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any, Protocol

from penstock.bench.pipe.cases import STANDARD, Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    import penstock

    Frame = NDArray[np.uint8]

#: As long as the queue of TurboPipe's own comparison.
QUEUED_FRAMES = 10


class Sender(Protocol):
    """Sends frames to a pipe, one buffer at a time."""

    def wait_until_free(self, index: int) -> None:
        """Return when buffer ``index`` may be overwritten."""

    def send(self, index: int) -> None:
        """Write buffer ``index``, or queue it."""

    def finish(self) -> None:
        """Return when every frame has been written, or raise what went wrong."""

    def notes(self) -> dict[str, object]:
        """What the method says of itself, for the record."""


class StdinWrite:
    """The standard method."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        self.stdin = stdin
        self.frames = frames

    def wait_until_free(self, index: int) -> None:
        """At once: ``send`` has written it."""

    def send(self, index: int) -> None:
        self.stdin.write(self.frames[index].tobytes())

    def finish(self) -> None:
        self.stdin.flush()

    def notes(self) -> dict[str, object]:
        return {}


class ThreadQueue:
    """The standard method on a thread, so that the caller need not wait for the pipe."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        self.stdin = stdin
        self.frames = frames
        self.error: OSError | None = None
        self.queue: queue.Queue[bytes | None] = queue.Queue(QUEUED_FRAMES)
        self.thread = threading.Thread(target=self._write_all, daemon=True)
        self.thread.start()

    def _write_all(self) -> None:
        while (frame := self.queue.get()) is not None:
            # Goes on taking frames after an error: a full queue that nobody reads would hang the caller.
            if self.error is None:
                try:
                    self.stdin.write(frame)
                except OSError as error:
                    self.error = error

    def wait_until_free(self, index: int) -> None:
        """At once: ``send`` has copied it."""

    def send(self, index: int) -> None:
        self.queue.put(self.frames[index].tobytes())

    def finish(self) -> None:
        self.queue.put(None)
        self.thread.join()
        if self.error is not None:
            raise self.error
        self.stdin.flush()

    def notes(self) -> dict[str, object]:
        return {}


class TurboPipe:
    """TurboPipe 2: it keeps neither the buffer nor the descriptor, so both outlive its queue here."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame]) -> None:
        import turbopipe

        self.turbopipe = turbopipe
        self.fd = stdin.fileno()
        self.frames = frames

    def wait_until_free(self, index: int) -> None:
        self.turbopipe.sync(self.frames[index])

    def send(self, index: int) -> None:
        self.turbopipe.pipe(self.frames[index], self.fd)

    def finish(self) -> None:
        for frame in self.frames:
            self.turbopipe.sync(frame)
            self.turbopipe.done(frame)

    def notes(self) -> dict[str, object]:
        return {}


class PenstockWriter:
    """Our own, in one of its modes."""

    def __init__(self, stdin: IO[bytes], frames: Sequence[Frame], method: Method) -> None:
        import penstock

        assert method.mode is not None, "only our own methods come here"
        self.writer = penstock.Writer(stdin, mode=method.mode, reader=method.reader)
        self.frames = frames
        self.tickets: list[penstock.results.Ticket | None] = [None] * len(frames)

    def wait_until_free(self, index: int) -> None:
        ticket = self.tickets[index]
        if ticket is not None:
            ticket.wait()

    def send(self, index: int) -> None:
        self.tickets[index] = self.writer.write(self.frames[index])

    def finish(self) -> None:
        self.writer.close()

    def notes(self) -> dict[str, object]:
        stats = self.writer.stats
        return {
            "transport": stats.transport,
            "reason": stats.reason,
            "capacity_bytes": stats.capacity_bytes,
            "bytes_by_transport": dict(stats.bytes_by_transport),
            "caller_blocked_s": stats.caller_blocked_s,
            "worker_blocked_s": stats.worker_blocked_s,
        }


_OTHERS: dict[str, Any] = {STANDARD: StdinWrite, "thread+queue": ThreadQueue, "turbopipe": TurboPipe}


def make_sender(method: Method, stdin: IO[bytes], frames: Sequence[Frame]) -> Sender:
    """The sender of a method, ready for its first frame."""
    if method.mode is not None:
        return PenstockWriter(stdin, frames, method)
    sender: Sender = _OTHERS[method.name](stdin, frames)
    return sender
