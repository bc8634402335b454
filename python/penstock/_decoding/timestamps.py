"""Presentation timestamps of frames, which FFmpeg writes to a pipe of their own."""

from __future__ import annotations

import re
import select
import threading
from fractions import Fraction
from io import FileIO

# The filter's line for a frame; "NOPTS" stands for no timestamp.
_LINE = re.compile(rb"^frame:\d+ +pts:(\S+)", re.MULTILINE)
# Guessed: the line is written before its frame, so this wait is rarely needed.
_PATIENCE_MS = 1000


def filters(descriptor: int, time_base: Fraction) -> list[str]:
    """FFmpeg's filters that write a line for each frame to `descriptor`, with its timestamp in units of `time_base`.

    `metadata` prints only frames that have metadata, so the first one adds some. With `direct` the line is written
    before its frame.
    """
    return [
        f"settb={time_base.numerator}/{time_base.denominator}",
        "metadata=mode=add:key=penstock:value=1",
        # Two levels of quoting: one for the list of filters, one for the filter's options.
        rf"metadata=mode=print:key=penstock:direct=1:file=pipe\\:{descriptor}",
    ]


class Timestamps:
    """The timestamps of frames by index, which FFmpeg writes to `pipe`. Several threads may ask, in any order.

    Attributes:
        last: the latest timestamp so far; None before the first.
        longest: the longest step between two timestamps.
    """

    def __init__(self, pipe: FileIO) -> None:
        self._pipe = pipe
        self._rest = b""
        self._count = 0
        self._pts: dict[int, int | None] = {}
        self.last: int | None = None
        self.longest = 0
        self._lock = threading.Lock()

    def take(self, index: int) -> int | None:
        """The timestamp of frame `index`, once; None if it has none or FFmpeg wrote none."""
        with self._lock:
            while self._count <= index and self._read():
                pass
            return self._pts.pop(index, None)

    def read_all(self) -> None:
        """Reads the rest, after FFmpeg has ended."""
        with self._lock:
            while self._read():
                pass

    def close(self) -> None:
        with self._lock:  # another thread could otherwise read from a reused descriptor
            self._pipe.close()

    def _read(self) -> bool:
        """Reads what FFmpeg has written; False at the end."""
        if self._pipe.closed:
            return False
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        if not waiting.poll(_PATIENCE_MS):
            return False
        data = self._pipe.read(1 << 16)
        lines, _, self._rest = (self._rest + data).rpartition(b"\n")
        for pts in _LINE.findall(lines):
            self._pts[self._count] = None if pts == b"NOPTS" else self._seen(int(pts))
            self._count += 1
        return bool(data)

    def _seen(self, pts: int) -> int:
        if self.last is not None:
            self.longest = max(self.longest, pts - self.last)
        self.last = pts if self.last is None else max(self.last, pts)
        return pts
