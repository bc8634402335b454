"""A pipe, a FIFO or a socket, which can be read only once: libav reads the beginning, and FFmpeg all of it."""

from __future__ import annotations

import os
import threading
import weakref

from penstock._platform import descriptors
from penstock._platform.forks import at_fork
from penstock._platform.programs import Inlet
from penstock._streams.relay import relay
from penstock.errors import BrokenStreamError

# Chosen: nobody notices that a descriptor stays open for so long after `close`.
_CLOSED_WITHIN_MS = 100
_living: weakref.WeakSet[SinglePassSource] = weakref.WeakSet()


def _close_inherited() -> None:
    """Runs in the child of a fork: its copies of the write ends would keep FFmpeg waiting for the end of the file."""
    for one in list(_living):
        one.close_inherited()


at_fork(after_in_child=_close_inherited)


class SinglePassSource:
    """A source that can be read only once. It keeps the bytes that libav reads, because FFmpeg needs them again.

    Args:
        source: a descriptor, which this object closes, or the path of a FIFO.
        ahead: bytes that were already read from the source.

    Attributes:
        url: FFmpeg's input, a pipe that `pass_on` fills.
        is_passed_on: `pass_on` was called.
        failure: the error with which reading the source ended; None without one.
    """

    def __init__(self, source: int | str | os.PathLike[str], ahead: bytes = b"") -> None:
        self.is_passed_on = False
        self.failure: OSError | None = None
        self._path: str | os.PathLike[str] = "" if isinstance(source, int) else source
        self._source = source if isinstance(source, int) else -1
        self._ahead, self._taken = ahead, bytearray()
        self._lock = threading.Lock()
        self._is_in_use = False  # whether a thread reads; it then closes the source, not `close`
        self._inlet = Inlet()
        self.url = self._inlet.url
        _living.add(self)

    def read(self, size: int) -> bytes:
        """Some of the next bytes, for libav; none at the end."""
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
        elif self._enter():
            try:
                if self._source < 0:
                    self._source = os.open(self._path, os.O_RDONLY)
                data = self._next(size)
                if not data:
                    self._end()
            finally:
                self._leave()
        else:
            data = b""
        self._taken += data
        return data

    def _next(self, size: int) -> bytes:
        """Waits for bytes; if the descriptor is non-blocking, also for a FIFO's first writer."""
        while self._inlet.is_open:
            try:
                # A FIFO that nobody has opened for writing yet would be at its end.
                if descriptors.waits_to_read(self._source, _CLOSED_WITHIN_MS):
                    return os.read(self._source, size)
            except BlockingIOError:
                pass  # another process has read it
        return b""

    def pass_on(self) -> None:
        """Starts a thread that sends all bytes to FFmpeg, beginning with those that libav has read."""
        self.is_passed_on = True
        if self._enter():
            threading.Thread(target=self._pass_on, name="penstock-source", daemon=True).start()

    def close(self) -> None:
        """Closes the source for us, and ends the thread. May be called again."""
        with self._lock:
            self._inlet.close()
            if not self._is_in_use:
                self._close_own()

    def close_inherited(self) -> None:
        """Closes all descriptors in the child of a fork, where the thread is not."""
        self._lock = threading.Lock()  # another thread may have held it
        self._inlet.close()
        self._close_own()

    def _end(self) -> None:
        """Called when the source has ended."""

    def _enter(self) -> bool:
        """Keeps the source open for the calling thread. False if it was closed."""
        with self._lock:
            self._is_in_use = self._inlet.is_open
            return self._is_in_use

    def _leave(self) -> None:
        with self._lock:
            self._is_in_use = False
            if not self._inlet.is_open or self.is_passed_on:
                self._close_own()

    def _close_own(self) -> None:
        self._inlet.close_ours()
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def _pass_on(self) -> None:
        try:
            writer = self._inlet.ours()
            for part in (self._taken, self._ahead):
                left = memoryview(bytes(part))
                while left:
                    left = left[os.write(writer, left) :]
            self._taken.clear()
            relay(self._source, writer)
            self._end()
        except (BrokenPipeError, BrokenStreamError):
            pass  # FFmpeg has ended
        except OSError as error:
            self.failure = error
        self._leave()
