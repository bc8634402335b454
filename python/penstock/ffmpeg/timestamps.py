"""When each frame is to be shown: FFmpeg tells it on a pipe of its own, beside that of the frames."""

from __future__ import annotations

import re
import select
import threading
from fractions import Fraction
from io import FileIO

# What the filter prints for each frame; "NOPTS" if it has none.
_LINE = re.compile(rb"^frame:\d+ +pts:(\S+)", re.MULTILINE)
# Guessed: the line of a frame is written before the frame itself, so that there is nothing to wait for.
_PATIENCE_MS = 1000


def filters(descriptor: int, time_base: Fraction) -> list[str]:
    """FFmpeg's filters that write a line for each frame to `descriptor`, with its timestamp in units of `time_base`.

    `metadata` prints frames that have some, so each is given some. With `direct` a line is there before its frame.
    """
    return [
        f"settb={time_base.numerator}/{time_base.denominator}",
        "metadata=mode=add:key=penstock:value=1",
        # Two levels of quoting: the list of filters takes one away, the filter's options the other.
        rf"metadata=mode=print:key=penstock:direct=1:file=pipe\\:{descriptor}",
    ]


class Timestamps:
    """The timestamps of frames, by their number: several threads may ask, and not in order.

    Args:
        told: the pipe on which FFmpeg tells them.

    Attributes:
        last: the latest of those told so far; None before the first.
        longest: the longest step from one to the next.
    """

    def __init__(self, told: FileIO) -> None:
        self._pipe = told
        self._rest = b""
        self._told = 0
        self._waiting: dict[int, int | None] = {}
        self.last: int | None = None
        self.longest = 0
        self._lock = threading.Lock()

    def take(self, index: int) -> int | None:
        """The timestamp of frame `index`, once; None if it has none, or FFmpeg did not tell."""
        with self._lock:
            while self._told <= index and self._read():
                pass
            return self._waiting.pop(index, None)

    def take_in_all(self) -> None:
        """Takes in all that an FFmpeg that has ended told."""
        with self._lock:
            while self._read():
                pass

    def close(self) -> None:
        with self._lock:  # else another thread might go on with a descriptor that is somebody else's by then
            self._pipe.close()

    def _read(self) -> bool:
        """Takes in what FFmpeg has written; False at the end."""
        if self._pipe.closed:
            return False
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        if not waiting.poll(_PATIENCE_MS):
            return False
        said = self._pipe.read(1 << 16)
        lines, _, self._rest = (self._rest + said).rpartition(b"\n")
        for pts in _LINE.findall(lines):
            self._waiting[self._told] = None if pts == b"NOPTS" else self._seen(int(pts))
            self._told += 1
        return bool(said)

    def _seen(self, pts: int) -> int:
        if self.last is not None:
            self.longest = max(self.longest, pts - self.last)
        self.last = pts if self.last is None else max(self.last, pts)
        return pts
