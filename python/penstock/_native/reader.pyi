"""`Reader` and its frames."""

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, final

from penstock._common.types import HasFileno, Priority, WritableData
from penstock._native.cpu import AppliedPolicy, ThreadPolicy
from penstock._native.ticket import Ticket

@final
class Reader:
    """Reads frames of a fixed size from a file descriptor, ahead of the caller, on a native thread.

    Iterate over it with ``for`` or ``async for``, or call ``read``. The reader duplicates the descriptor and begins to
    read at once. If a stream ends inside a frame, or fails, you first get all whole frames, and then the error. Further
    calls raise the same error. ``with`` and ``async with`` close the reader.

    Args:
        fd: an int or an object with ``fileno()``, open for reading: a pipe, a stream socket, a device, or a file, which
            is read from its current position. A buffered Python stream such as ``Popen.stdout`` is read from the first
            byte that your program hasn't taken; the reader takes over what the stream has read ahead.
        frame_bytes: size in bytes of a frame that ``read`` returns.
        queue_items: maximum number of frames to read ahead; None is 4. Memory is held for these, for the frames that
            you have, and for at most ``queue_items`` + 2 free frames that are kept for reuse.
        capacity_bytes: pipe size to ask the kernel for, in bytes; None is 1 MiB.
        policy: priority and CPUs of the worker thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.

    Raises:
        OSError: EBADF if the descriptor is closed or not open for reading, EISDIR for a directory, ENOMEM if the frames
            don't fit into memory; or another failure of the system.
        TypeError: if the object has no descriptor, or the descriptor doesn't carry the bytes that the object reads: a
            text stream, a compressed file or a TLS socket; or if an argument has the wrong type.
        ValueError: if an argument has a wrong value, or the socket preserves message boundaries.
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
    def read(self, timeout: float | None = None) -> Frame | None:
        """Returns the next frame in order; None when the stream has ended between two frames.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError: if the stream ended inside a frame.
            OSError: if the stream failed.
            StalledError: if no whole frame came in time. Nothing is lost: the next call continues.
            ClosedError: if the reader is closed, or belongs to the parent process.
        """
    def readinto(self, buffer: WritableData, timeout: float | None = None) -> int:
        """Copies the next frame into a buffer and returns its size; 0 when the stream has ended between two frames.

        Args:
            buffer: a writable, C-contiguous buffer with room for a frame. Bytes after the frame don't change.
            timeout: seconds; None waits without limit.

        Raises:
            ValueError: if the buffer is smaller than a frame, or isn't C-contiguous. No frame is lost.
            BufferError, TypeError: if the buffer is read-only, or the object has no buffer.
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def latest(self, timeout: float | None = None) -> Frame | None:
        """Returns the newest frame of a live source: the last that became whole after this call began; None at the end.

        Earlier frames are dropped; ``stats.frames_dropped`` counts them, and ``index`` skips them. The first call also
        skips frames that are read ahead or wait whole in the pipe, unless the stream ends after them. After the first
        call, the worker never waits for callers, so the source never waits either. ``read``, ``readinto`` and iteration
        make it wait again, and return every frame that hasn't been dropped.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            TruncatedStreamError, OSError, StalledError, ClosedError: as for ``read``.
        """
    def take_rest(self) -> Frame | None:
        """Returns the bytes of the incomplete last frame, as a shorter ``Frame``, after a ``TruncatedStreamError``.

        Returns None on later calls.
        """
    def close(self) -> None:
        """Stops reading, drops the frames that nobody has taken, and closes the duplicate of the descriptor.

        Frames that you have stay valid. Threads that wait for a frame get ``ClosedError``. Closing again does nothing.
        The call waits at most 5 seconds for the worker, which only a disk read or a lingering socket can delay. Ctrl-C
        interrupts it.
        """
    @property
    def closed(self) -> bool:
        """Whether the reader was closed."""
    @property
    def stats(self) -> ReaderStats:
        """Statistics so far, also after the reader's end."""
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

    ``memoryview(frame)`` and ``numpy.asarray(frame)`` are views of its bytes, without a copy. The memory is recycled
    once you drop the last view of it.
    """
    @property
    def index(self) -> int:
        """The frame's number in the stream, from 0. Dropped frames count."""
    @property
    def nbytes(self) -> int:
        """The frame's size in bytes."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class ReaderStats:
    """Statistics of a reader: a snapshot."""
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
        """Frames that were read ahead and wait for a caller."""
    @property
    def bytes_read(self) -> int:
        """Bytes read, including those of an incomplete frame."""
    @property
    def capacity_bytes(self) -> int | None:
        """The size of the pipe in bytes, as granted by the kernel; None if it isn't a pipe."""
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
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the worker; None if you asked for none, or before the worker starts."""
