"""The end of an encode that is a Python object, which FFmpeg's output is written to."""

from __future__ import annotations

import threading
from io import FileIO, RawIOBase
from typing import Any

# What a pipe holds at most by default: pipe(7).
_READ_BYTES = 64 << 10


class Sink:
    """Writes what FFmpeg puts out to a binary object, on a thread of its own. FFmpeg waits while ``write`` does.

    Attributes:
        failure: what ``write`` has raised; None if nothing. FFmpeg then finds its pipe closed.
        nbytes: how many bytes it has taken.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self.failure: BaseException | None = None
        self.nbytes = 0
        self._thread: threading.Thread | None = None

    def start(self, pipe: FileIO) -> None:
        """Starts to read `pipe`, which is closed at its end."""
        self._thread = threading.Thread(target=self._copy, args=(pipe,), name="penstock-sink", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end of the pipe. Returns whether it has come, and all has been written."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _copy(self, pipe: FileIO) -> None:
        with pipe:
            while data := pipe.read(_READ_BYTES):
                try:
                    self._write(data)
                except BaseException as failure:  # on this thread, nobody else hears of it
                    self.failure = failure
                    return
                self.nbytes += len(data)

    def _write(self, data: bytes) -> None:
        """All of `data`: unbuffered files may take a part, and say how many bytes that was."""
        while data:
            taken = self._target.write(data)
            if taken is None and not isinstance(self._target, RawIOBase):
                return
            if type(taken) is not int or not 0 < taken <= len(data):
                raise OSError(f"its write took {taken!r} of {len(data)} bytes")
            data = data[taken:]
