"""FIFOs, pipes with a name in the file system: made, opened, and waited for.

::

    fifo.create("/run/frames")
    with fifo.open("/run/frames", "w", timeout=10) as writer:  # waits for a reader
        writer.write(frame)

Opening a FIFO in the usual way blocks until somebody opens its other side, and cannot be given up. Here it can: by a
timeout, by Ctrl-C, and in the background by ``cancel()``. A FIFO that was found by its path stays the same one while
it is waited for, whatever becomes of the path.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, final, overload

from penstock import _native
from penstock._asyncio import ended_or_cancelled
from penstock.pipes import PipeReader, PipeWriter

if TYPE_CHECKING:
    from _typeshed import StrOrBytesPath, WriteableBuffer

    ReadMode = Literal["r", "rb"]
    WriteMode = Literal["w", "wb"]
    BothMode = Literal["r+", "r+b", "rb+"]
    FifoMode = ReadMode | WriteMode | BothMode

__all__ = ["FifoReader", "FifoReaderWriter", "FifoTicket", "create", "open", "open_async"]

_MODES = {"r": "r", "rb": "r", "w": "w", "wb": "w", "r+": "r+", "r+b": "r+", "rb+": "r+"}


def create(path: StrOrBytesPath, permissions: int = 0o666) -> None:
    """Make a FIFO; the umask is taken off the permissions.

    Raises:
        FileExistsError: there is something at that path, a FIFO or not.
        OSError: what else the system says.
    """
    try:
        os.mkfifo(path, permissions)
    except OSError as error:
        error.filename = path  # os.mkfifo does not say it
        raise


@overload
def open(path: StrOrBytesPath, mode: ReadMode = "r", *, timeout: float | None = None) -> FifoReader: ...
@overload
def open(path: StrOrBytesPath, mode: WriteMode, *, timeout: float | None = None) -> PipeWriter: ...
@overload
def open(path: StrOrBytesPath, mode: BothMode, *, timeout: float | None = None) -> FifoReaderWriter: ...
def open(
    path: StrOrBytesPath, mode: FifoMode = "r", *, timeout: float | None = None
) -> PipeReader | PipeWriter:
    """Open a FIFO, of which only ``"w"`` may have to wait.

    Args:
        path: of a FIFO.
        mode: ``"r"`` opens at once, and the first read waits for a writer; ``"w"`` waits for a reader; ``"r+"`` opens
            both sides at once. A ``b`` may be added: all are binary and unbuffered.
        timeout: seconds to wait for a reader; None waits for as long as it takes.

    Raises:
        StalledError: no reader came in time.
        ValueError: what is at the path is no FIFO, or a wrong mode.
        OSError: what else the system says, such as FileNotFoundError.
    """
    access = _access(mode)
    fd = _native._fifo_open(os.fspath(path), access, timeout)
    return FifoReader(fd) if access == "r" else _STREAMS[access](fd)


@overload
def open_async(path: StrOrBytesPath, mode: ReadMode = "r") -> FifoTicket[PipeReader]: ...
@overload
def open_async(path: StrOrBytesPath, mode: WriteMode) -> FifoTicket[PipeWriter]: ...
@overload
def open_async(path: StrOrBytesPath, mode: BothMode) -> FifoTicket[FifoReaderWriter]: ...
def open_async(path: StrOrBytesPath, mode: FifoMode = "r") -> FifoTicket[Any]:
    """Open a FIFO on a native thread, and give a ticket that is done when the other side is there.

    For reading, the FIFO is open at once, so that writers find a reader while the ticket waits for the first of them.

    Args:
        path: of a FIFO.
        mode: as of ``open``; ``"r"`` waits for a writer, ``"w"`` for a reader, ``"r+"`` for nobody.

    Raises:
        ValueError: what is at the path is no FIFO, or a wrong mode.
        OSError: what else the system says, such as FileNotFoundError.
    """
    access = _access(mode)
    return FifoTicket(_native._fifo_open_async(os.fspath(path), access), access)


def _access(mode: str) -> str:
    if mode not in _MODES:
        raise ValueError(f"mode must be 'r', 'w' or 'r+', with a 'b' or without, not {mode!r}")
    return _MODES[mode]


class FifoReader(PipeReader):
    """The reading side of a FIFO, opened before any writer has come.

    The system says "end of file" when there is no writer, and so it does before the first one. Therefore the first read
    waits until there are bytes, or a writer has come and gone. With a descriptor that does not block it gives None
    until then.
    """

    _has_met_a_writer = False

    def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]  # None: see io.RawIOBase
        """Read at most so many bytes; all until the end of file with -1 or None."""
        return super().read(size) if size == 0 or self._may_read() else None

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Read into the buffer, and give the number of bytes."""
        return super().readinto(buffer) if self._may_read() else None

    def readall(self) -> bytes | None:  # type: ignore[override]
        """Read until the end of file."""
        return super().readall() if self._may_read() else None

    def _may_read(self) -> bool:
        if not self._has_met_a_writer:
            # poll(2) knows what read(2) does not tell: there is no POLLHUP before the first writer.
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            self._has_met_a_writer = bool(poll.poll(None if os.get_blocking(self.fileno()) else 0))
        return self._has_met_a_writer


class FifoReaderWriter(PipeReader, PipeWriter):
    """Both sides of a FIFO: what is written can be read here, or by whoever has opened it for reading.

    There is always a writer, so that no read comes to an end of file.
    """

    _MODE = "rb+"


_STREAMS: dict[str, type[PipeReader] | type[PipeWriter]] = {
    "r": PipeReader,
    "w": PipeWriter,
    "r+": FifoReaderWriter,
}

Stream = TypeVar("Stream", bound=PipeReader | PipeWriter)


@final
class FifoTicket(Generic[Stream]):
    """An opening on a native thread.

    ``await ticket`` waits for it in asyncio; if the task that awaits is cancelled, so is the opening.
    The thread ends when the other side is there, and when the ticket is cancelled or forgotten.
    """

    def __init__(self, opening: _native._FifoTicket, access: str) -> None:
        self._opening = opening
        self._access = access
        self._stream: Stream | None = None
        self._lock = threading.Lock()

    def done(self) -> bool:
        """Whether the opening has ended, well or not."""
        return self._opening.done()

    def wait(self, timeout: float | None = None) -> Stream:
        """Wait until the other side is there, with the GIL released and awake to signals; the same stream each time.

        Args:
            timeout: seconds; None waits for as long as it takes.

        Raises:
            StalledError: nobody came in that time. The opening goes on.
            ClosedError: it was cancelled.
            OSError: what the system says.
        """
        self._opening.wait(timeout)
        with self._lock:
            if self._stream is None:
                self._stream = cast(Stream, _STREAMS[self._access](self._opening.take()))
            return self._stream

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does, and give what the opening failed of; None if it went well.

        Raises:
            StalledError: nobody came in that time. The opening goes on.
        """
        return self._opening.exception(timeout)

    def cancel(self) -> None:
        """Give the opening up. Does nothing when ``wait`` has given the stream already."""
        self._opening.cancel()

    def __await__(self) -> Generator[Any, Any, Stream]:
        return ended_or_cancelled(self).__await__()

    def _notify(self, eventfd: int) -> _native._Watch:
        return self._opening._notify(eventfd)
