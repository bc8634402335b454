"""Pipes as Python files, and a relay on a thread of its own.

```python
reader, writer = penstock.pipes.make_pipe(capacity_bytes=1 << 20)
```

- `make_pipe` returns the two ends, `PipeReader` and `PipeWriter`. They work wherever a raw stream of ``io`` does:
  ``io.BufferedReader``, ``io.BufferedWriter``, ``shutil.copyfileobj``, ``gzip``, ``tarfile`` in its stream modes. Their
  calls run on the caller's thread. To queue writes, put a `penstock.Writer` on a `PipeWriter`.
- `start_relay` is `penstock.relay` on a native thread, between any two descriptors. `Relay` is prepared
  once for many pieces.

``penstock.fifo`` has named pipes.
"""

from __future__ import annotations

import errno
import io
from typing import TYPE_CHECKING, ClassVar

from penstock import _native
from penstock._platform import descriptors
from penstock._streams.relay import Relay, relay, start_relay
from penstock.errors import BrokenStreamError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from penstock._common.types import HasFileno, RelayMethod
    from penstock._native import RelayReport

__all__ = ["PipeReader", "PipeWriter", "Relay", "make_pipe", "start_relay"]


def make_pipe(capacity_bytes: int | None = None) -> tuple[PipeReader, PipeWriter]:
    """Makes a pipe, and returns its two ends. Programs that your program starts don't inherit them.

    Args:
        capacity_bytes: size to ask the kernel for, which rounds it up to a power of two. If the kernel grants less, the
            pipe is as large as possible, and the ``capacity_bytes`` of its ends is the actual size. None leaves the
            default of Linux, usually 64 KiB.

    Raises:
        ValueError: if ``capacity_bytes`` is less than 1.
        TypeError: if ``capacity_bytes`` isn't an integer.
        OSError: if the process has no descriptors left.
    """
    reader, writer = _native._make_pipe(capacity_bytes)
    return PipeReader(reader), PipeWriter(writer)


class _PipeEnd(io.FileIO):
    _MODE: ClassVar[str]

    def __init__(self, fd: int, *, closefd: bool = True) -> None:
        super().__init__(fd, self._MODE, closefd=closefd)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"fd={self.fileno()}"
        return f"<{type(self).__module__}.{type(self).__name__} {state}>"

    @property
    def capacity_bytes(self) -> int:
        """Size of the pipe in bytes."""
        return descriptors.pipe_capacity(self.fileno())

    @property
    def unread_bytes(self) -> int:
        """Bytes in the pipe that weren't read yet."""
        return descriptors.unread_bytes(self.fileno())


class PipeReader(_PipeEnd):
    """The reading end of a pipe: a raw stream on a descriptor.

    ``read`` and ``readinto`` return the bytes in the pipe, and wait if there are none. If the descriptor is
    non-blocking, they return None instead of waiting. ``b""`` and 0 mean the end of the file: the pipe is empty and has
    no writer.
    """

    _MODE = "rb"

    def write_to(
        self,
        dst: int | HasFileno,
        count: int | None = None,
        *,
        timeout: float | None = None,
        method: RelayMethod = "auto",
    ) -> RelayReport:
        """Relays from the pipe, as ``penstock.relay(self, dst, count)``."""
        return relay(self, dst, count, timeout=timeout, method=method)


class PipeWriter(_PipeEnd):
    """The writing end of a pipe: a raw stream on a descriptor."""

    _MODE = "wb"

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # None: see io.RawIOBase
        """Writes all bytes and returns their number.

        If the descriptor is non-blocking, the call writes as many bytes as there is room for, and returns their number,
        or None.

        Raises:
            BrokenStreamError: if the pipe has no reader. Its counts are those of this call; lost bytes are those that
                no reader has taken.
            ValueError: if the stream is closed.
        """
        written = 0
        try:
            first = super().write(data)
            if first is None:
                return None
            written = first
            # A write that a signal interrupts, or of more than 2 GiB, is short, and most callers never check.
            while written < memoryview(data).nbytes:
                more = super().write(memoryview(data).cast("B")[written:])
                if more is None:
                    break
                written += more
        except OSError as error:
            if not descriptors.tells_of_no_reader(error, self.fileno()):
                raise
            raise self._broken(memoryview(data).nbytes, written) from None
        return written

    def read_from(
        self,
        src: int | HasFileno,
        count: int | None = None,
        *,
        offset: int | None = None,
        timeout: float | None = None,
        method: RelayMethod = "auto",
    ) -> RelayReport:
        """Relays into the pipe, as ``penstock.relay(src, self, count)``."""
        return relay(src, self, count, offset=offset, timeout=timeout, method=method)

    def _broken(self, nbytes: int, written: int) -> BrokenStreamError:
        delivered = max(0, written - descriptors.untaken_bytes(self.fileno()))
        lost = nbytes - delivered
        text = f"the reader went away. {delivered} bytes were delivered, {lost} were lost"
        return BrokenStreamError(errno.EPIPE, text, delivered, lost)
