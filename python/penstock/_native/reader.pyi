"""`Reader` and its frames."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, final

from penstock._common.types import HasFileno, Priority, WritableData
from penstock._native.conversion import _Conversion
from penstock._native.cpu import AppliedPolicy, ThreadPolicy
from penstock._native.ticket import Ticket

@final
class Reader:
    """Reads frames of a fixed size from a file descriptor, ahead of the caller, on a native thread.

    Iterate over it with ``for`` or ``async for``, or call ``read``. The reader duplicates the descriptor and
    begins to read at once. A stream that ends inside a frame, or fails, first gives all whole frames and then
    raises; further calls raise the same error. ``with`` and ``async with`` close the reader.

    Args:
        fd: an int or an object with ``fileno()``, open for reading: a pipe, a stream socket, a device, or a file,
            which is read from its current position. A buffered Python stream such as ``Popen.stdout`` is read from
            the first byte that the program has not taken; the reader takes over what the stream has read ahead.
        frame_bytes: the size of a frame that ``read`` returns.
        queue_items: the most frames that are read ahead; None is 4. Memory is held for these, for the frames that you
            have, and for at most ``queue_items`` + 2 free frames that are kept for reuse.
        capacity_bytes: the pipe size to ask the kernel for; by default 1 MiB.
        policy: priority and CPUs of the worker thread: a ``ThreadPolicy``, or a level like ``"below-normal"``.

    Raises:
        OSError: EBADF if the descriptor is closed or not open for reading, EISDIR for a directory, ENOMEM for frames
            that do not fit into memory; or another failure of the system.
        TypeError: the descriptor does not carry the bytes that the object reads, as with a text stream, a compressed
            file or a TLS socket; or the object has no descriptor; or an argument has the wrong type.
        ValueError: an argument has a wrong value, or the socket preserves message boundaries.
    """
    def __new__(
        cls,
        fd: int | HasFileno,
        *,
        frame_bytes: int,
        queue_items: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | Priority | None = None,
    ) -> Self: ...
    @staticmethod
    def _converting(
        fd: int | HasFileno,
        *,
        frame_bytes: int,
        queue_items: int | None = None,
        capacity_bytes: int | None = None,
        policy: ThreadPolicy | Priority | None = None,
        conversion: _Conversion | None = None,
        parts: int = 1,
    ) -> Reader:
        """A reader whose worker converts each of so many parts of a frame; without a conversion, a plain one."""
    def read(self, timeout: float | None = None) -> Frame | None:
        """The next frame in order; None when the stream has ended between two frames.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError: the stream ended inside a frame.
            OSError: the stream failed.
            StalledError: no whole frame came in time. Nothing is lost: the next call continues.
            ClosedError: the reader is closed, or belongs to the parent process.
        """
    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copy the next frame into a buffer and return its size; 0 when the stream has ended between two frames.

        Args:
            buffer: a writable, C-contiguous buffer with room for a frame. Bytes behind the frame do not change.
            timeout: seconds; None waits without limit.

        Raises:
            ValueError: the buffer is smaller than a frame, or not C-contiguous. No frame is lost.
            BufferError, TypeError: the buffer is read-only, or the object has no buffer.
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def latest(self, timeout: float | None = None) -> Frame | None:
        """The newest frame, for live sources: the last that became whole after this call began; None at the end.

        Earlier frames are dropped; ``stats.frames_dropped`` counts them, and ``index`` skips them. The first
        call skips frames that are read ahead or wait whole in the pipe, unless the stream ends after them. From
        then on the worker never waits for callers, so the source never does either. ``read``, ``readinto`` and
        iteration make it wait again and return every frame that has not been dropped.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def take_rest(self) -> Frame | None:
        """The bytes of the incomplete last frame, as a shorter ``Frame``, once ``TruncatedStreamError`` was raised.

        None with a conversion, and on later calls.
        """
    def close(self) -> None:
        """Stop reading, drop the frames that nobody has taken, and close the duplicate of the descriptor.

        Frames that you have stay valid. Threads that wait for a frame get ``ClosedError``. Closing again does
        nothing. The call waits at most 5 seconds for the worker, which only a disk read or a lingering socket can
        delay. Ctrl-C interrupts it.
        """
    @property
    def closed(self) -> bool:
        """Whether the reader was closed."""
    @property
    def stats(self) -> ReaderStats:
        """What the reader has done so far, also after its end."""
    def _ready(self) -> Ticket:
        """Done when ``read`` would not wait."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Frame: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, Frame]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exception: object) -> None: ...

@final
class Frame:
    """A frame of a ``Reader``: a writable, page-aligned buffer.

    ``memoryview(frame)`` and ``numpy.asarray(frame)`` are views of its bytes, without a copy. Its memory is
    recycled once you drop the last view of it.
    """
    @property
    def index(self) -> int:
        """Its number in the stream, from 0. Dropped frames count."""
    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class ReaderStats:
    """What a reader has done so far. A snapshot."""
    @property
    def frames_read(self) -> int:
        """Whole frames read."""
    @property
    def frames_delivered(self) -> int:
        """Frames that callers took."""
    @property
    def frames_dropped(self) -> int:
        """Frames that ``latest`` skipped."""
    @property
    def frames_waiting(self) -> int:
        """Frames that are read ahead and wait for a caller."""
    @property
    def bytes_read(self) -> int:
        """Bytes read, including those of an incomplete frame."""
    @property
    def capacity_bytes(self) -> int | None:
        """The size of the pipe in bytes, as granted by the kernel; None if it is not a pipe."""
    @property
    def caller_wait_s(self) -> float:
        """Seconds that callers waited for frames."""
    @property
    def input_wait_s(self) -> float:
        """Seconds that the worker waited for its input, the source."""
    @property
    def output_wait_s(self) -> float:
        """Seconds that the worker waited for callers to take frames, because ``queue_items`` of them were ready."""
    @property
    def converting_s(self) -> float:
        """Seconds that the worker spent on conversions."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the worker; None if none was asked for, or before the worker starts."""
