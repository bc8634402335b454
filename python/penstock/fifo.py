"""FIFOs, which are pipes with a name in the file system: create, open, and wait for them.

```python
fifo.create("/run/frames")
with fifo.open("/run/frames", "w", timeout=10) as writer:  # waits for a reader
    writer.write(frame)
```

The usual way to open a FIFO blocks until somebody opens the other side, and cannot be cancelled. These functions accept
a timeout, Ctrl-C interrupts them, and in the background ``cancel()`` ends them. Once a path has led to a FIFO, they
wait for that FIFO, whatever happens to the path.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, final, overload

from penstock import _native
from penstock._common.event_loops import ended_or_cancelled
from penstock.pipes import PipeReader, PipeWriter

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath, WriteableBuffer

    ReadMode = Literal["r", "rb"]
    WriteMode = Literal["w", "wb"]
    FifoMode = ReadMode | WriteMode

__all__ = ["FifoReader", "FifoTicket", "create", "open", "open_async"]

_MODES = {"r": "r", "rb": "r", "w": "w", "wb": "w"}


def create(path: StrOrBytesPath, permissions: int = 0o666) -> None:
    """Create a FIFO. The umask is removed from the permissions.

    Raises:
        FileExistsError: something exists at that path, a FIFO or not.
        OSError: another failure of the system.
    """
    try:
        os.mkfifo(path, permissions)
    except OSError as error:
        error.filename = path  # os.mkfifo does not set it
        raise


@overload
def open(path: StrOrBytesPath, mode: ReadMode = "r", *, timeout: float | None = None) -> FifoReader: ...
@overload
def open(path: StrOrBytesPath, mode: WriteMode, *, timeout: float | None = None) -> PipeWriter: ...
def open(
    path: StrOrBytesPath, mode: FifoMode = "r", *, timeout: float | None = None
) -> PipeReader | PipeWriter:
    """Open a FIFO. Only mode ``"w"`` can have to wait.

    Args:
        path: the path of a FIFO.
        mode: ``"r"`` opens at once, and the first read waits for a writer; ``"w"`` waits for a reader. A ``b`` may be
            added: both are binary and unbuffered.
        timeout: seconds to wait for a reader; None waits without limit.

    Raises:
        StalledError: no reader came in time.
        ValueError: the path leads to something other than a FIFO, or the mode is wrong.
        OSError: another failure of the system, such as FileNotFoundError.
    """
    access = _access(mode)
    fd = _native._fifo_open(os.fspath(path), access, timeout)
    return FifoReader(fd) if access == "r" else _STREAMS[access](fd)


@overload
def open_async(path: StrOrBytesPath, mode: ReadMode = "r") -> FifoTicket[PipeReader]: ...
@overload
def open_async(path: StrOrBytesPath, mode: WriteMode) -> FifoTicket[PipeWriter]: ...
def open_async(path: StrOrBytesPath, mode: FifoMode = "r") -> FifoTicket[Any]:
    """Open a FIFO on a native thread, and return a ticket that is done when the other side is open.

    For reading, the FIFO is open at once, so writers find a reader while the ticket waits for the first of them.

    Args:
        path: the path of a FIFO.
        mode: as for ``open``; ``"r"`` waits for a writer, ``"w"`` for a reader.

    Raises:
        ValueError: the path leads to something other than a FIFO, or the mode is wrong.
        OSError: another failure of the system, such as FileNotFoundError.
    """
    access = _access(mode)
    return FifoTicket(_native._fifo_open_async(os.fspath(path), access), access)


def _access(mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(f"mode must be 'r' or 'w', with a 'b' or without, not {mode!r}")
    return _MODES[mode]


class FifoReader(PipeReader):
    """The reading side of a FIFO, opened before the first writer.

    The system reports the end of the file while there is no writer, even before the first one. Therefore the first read
    waits until there are bytes, or until a writer has opened and closed the FIFO. If the descriptor is non-blocking, it
    returns None until then.
    """

    _has_met_a_writer = False

    def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]  # None: see io.RawIOBase
        """Read at most ``size`` bytes; with -1 or None, all until the end of the file."""
        return super().read(size) if size == 0 or self._may_read() else None

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read into the buffer and return the number of bytes."""
        return super().readinto(buffer) if self._may_read() else None

    def readall(self) -> bytes | None:  # type: ignore[override]
        """Read until the end of the file."""
        return super().readall() if self._may_read() else None

    def _may_read(self) -> bool:
        if not self._has_met_a_writer:
            # Unlike read(2), poll(2) tells: there is no POLLHUP before the first writer.
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            self._has_met_a_writer = bool(poll.poll(None if os.get_blocking(self.fileno()) else 0))
        return self._has_met_a_writer


_STREAMS: dict[str, type[PipeReader] | type[PipeWriter]] = {"r": PipeReader, "w": PipeWriter}

Stream = TypeVar("Stream", bound=PipeReader | PipeWriter)


@final
class FifoTicket(Generic[Stream]):
    """A FIFO that a native thread opens. ``await ticket`` waits for it in asyncio.

    Cancelling the task that awaits it cancels the opening. The thread ends when the other side is open, and when the
    ticket is cancelled or dropped.
    """

    def __init__(self, opening: _native._FifoTicket, access: str) -> None:
        self._opening = opening
        self._access = access
        self._stream: Stream | None = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether the opening has ended, successfully or not."""
        return self._opening.done()

    def wait(self, timeout: float | None = None) -> Stream:
        """Wait until the other side is open and return the stream, the same each time. Ctrl-C interrupts the wait.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the other side was not opened in that time. The opening continues.
            ClosedError: the opening was cancelled.
            OSError: a failure of the system.
        """
        self._opening.wait(timeout)
        with self._lock:
            if self._stream is None:
                self._stream = cast(Stream, _STREAMS[self._access](self._opening.take()))
            return self._stream

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of an opening that failed; None if it succeeded.

        Raises:
            StalledError: the other side was not opened in that time. The opening continues.
        """
        return self._opening.exception(timeout)

    def cancel(self) -> None:
        """Cancel the opening. When this returns, the FIFO is closed.

        Does nothing if ``wait`` has returned the stream already.
        """
        self._opening.cancel()

    def __await__(self) -> Generator[Any, Any, Stream]:
        return ended_or_cancelled(self).__await__()

    def _notify(self, waker: _native._LoopWaker, number: int) -> _native._Watch:
        return self._opening._notify(waker, number)
