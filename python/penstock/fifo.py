"""FIFOs, which are pipes with a name in the file system: create, open, and wait for them.

```python
fifo.create("/run/frames")
with fifo.open("/run/frames", "w", timeout=10) as writer:  # waits for a reader
    writer.write(frame)
```

Python's ``open`` blocks on a FIFO until another process opens the other side, and can't be cancelled. These functions
accept a timeout, Ctrl-C interrupts them, and ``cancel()`` ends them in the background. Once a path has led to a FIFO,
they wait for that FIFO, whatever happens to the path.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, final, overload

from penstock import _native
from penstock._common.event_loops import ended_or_cancelled
from penstock._platform.refusals import refuse
from penstock.pipes import PipeReader, PipeWriter

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath, WriteableBuffer

    ReadMode = Literal["r", "rb"]
    WriteMode = Literal["w", "wb"]
    FifoMode = ReadMode | WriteMode

__all__ = ["FifoReader", "FifoTicket", "create", "open", "open_async"]

_MODES = {"r": "r", "rb": "r", "w": "w", "wb": "w"}


def create(path: StrOrBytesPath, permissions: int = 0o666) -> None:
    """Creates a FIFO. The umask is removed from the permissions.

    Raises:
        FileExistsError: if something exists at that path, a FIFO or not.
        OSError: if the system failed in another way.
    """
    refuse("fifo")
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
    """Opens a FIFO. Only mode ``"w"`` may have to wait.

    Args:
        path: path of a FIFO.
        mode: ``"r"`` opens at once, and the first read waits for a writer. ``"w"`` waits for a reader. You may add a
            ``b``: both are binary and unbuffered.
        timeout: seconds to wait for a reader; None waits without limit.

    Raises:
        StalledError: if no reader came in time.
        ValueError: if the path leads to something other than a FIFO, or the mode is wrong.
        OSError: if the system failed in another way, such as FileNotFoundError.
    """
    access = _access(mode)
    refuse("fifo")
    fd = _native._fifo_open(os.fspath(path), access, timeout)
    return FifoReader(fd) if access == "r" else _STREAMS[access](fd)


@overload
def open_async(path: StrOrBytesPath, mode: ReadMode = "r") -> FifoTicket[PipeReader]: ...
@overload
def open_async(path: StrOrBytesPath, mode: WriteMode) -> FifoTicket[PipeWriter]: ...
def open_async(path: StrOrBytesPath, mode: FifoMode = "r") -> FifoTicket[Any]:
    """Opens a FIFO on a native thread, and returns a ticket that is done when the other side is open.

    With ``"r"``, this side of the FIFO is open at once, so writers find a reader while the ticket waits for the first
    writer.

    Args:
        path: path of a FIFO.
        mode: as for ``open``; ``"r"`` waits for a writer, ``"w"`` for a reader.

    Raises:
        ValueError: if the path leads to something other than a FIFO, or the mode is wrong.
        OSError: if the system failed in another way, such as FileNotFoundError.
    """
    access = _access(mode)
    refuse("fifo")
    return FifoTicket(_native._fifo_open_async(os.fspath(path), access), access)


def _access(mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(f"mode must be 'r' or 'w', with a 'b' or without, not {mode!r}")
    return _MODES[mode]


class FifoReader(PipeReader):
    """The reading side of a FIFO, opened before the first writer.

    The first read waits until there are bytes, or until a writer has opened and closed the FIFO: the system reports the
    end of the file while there is no writer, even before the first. If the descriptor is non-blocking, the first read
    returns None until then.
    """

    _has_met_a_writer = False

    def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]  # None: see io.RawIOBase
        """Reads at most ``size`` bytes; with -1 or None, all until the end of the file."""
        return super().read(size) if size == 0 or self._may_read() else None

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Reads into the buffer and returns the number of bytes."""
        return super().readinto(buffer) if self._may_read() else None

    def readall(self) -> bytes | None:  # type: ignore[override]
        """Reads until the end of the file."""
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

    If you cancel the task that awaits the ticket, the opening is cancelled. The thread ends when the other side is
    open, and when the ticket is cancelled or dropped.
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
        """Waits until the other side is open, and returns the stream, the same each time. Ctrl-C interrupts the wait.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: if the other side wasn't opened in that time. The opening continues.
            ClosedError: if the opening was cancelled.
            OSError: if the system failed.
        """
        self._opening.wait(timeout)
        # One of the threads that wait takes the descriptor, and all get its stream.
        with self._lock:
            if self._stream is None:
                self._stream = cast(Stream, _STREAMS[self._access](self._opening.take()))
            return self._stream

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as ``wait`` does, and returns the exception of an opening that failed; None if it succeeded.

        Raises:
            StalledError: if the other side wasn't opened in that time. The opening continues.
        """
        return self._opening.exception(timeout)

    def cancel(self) -> None:
        """Cancels the opening. When this returns, the FIFO is closed.

        Does nothing if ``wait`` has returned the stream already.
        """
        self._opening.cancel()

    def __await__(self) -> Generator[Any, Any, Stream]:
        return ended_or_cancelled(self).__await__()

    def _notify(self, waker: _native._LoopWaker, number: int) -> _native._Watch:
        return self._opening._notify(waker, number)
