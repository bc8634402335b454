"""Tickets of queued writes, and watches on them."""

from collections.abc import Generator
from typing import Any, final

@final
class Ticket:
    """One queued write. ``await ticket`` waits for it in asyncio.

    A write has ended when its buffer is free again. With the transports ``write`` and ``staged``, that is when the
    kernel has all of its bytes; with ``zero-copy``, when the reader has read them.
    """
    @property
    def nbytes(self) -> int:
        """The size of the write in bytes."""
    def done(self) -> bool:
        """Whether the write has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> None:
        """Waits until the write has ended. Releases the GIL; Ctrl-C interrupts it.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: if the write didn't end in that time. It continues.
            BrokenStreamError, OSError: if the stream failed.
            ClosedError: if the write was aborted.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as ``wait`` does, and returns the exception of a write that failed; None if it succeeded.

        Raises:
            StalledError: if the write didn't end in that time.
        """
    def __await__(self) -> Generator[Any]: ...
    def _notify(self, waker: _LoopWaker, number: int) -> _Watch:
        """Tell the waker that number when the write ends. The native worker does it, without Python."""

@final
class _LoopWaker:
    """Wakes an event loop by an eventfd, and has the numbers of what has ended. Native threads use it."""
    def fileno(self) -> int:
        """The eventfd, which is readable when ``take`` has numbers."""
    def take(self) -> list[int]:
        """The numbers that were told since the last call."""

@final
class _Watch:
    """A watch on a ticket."""
    def stop(self) -> None:
        """Stop watching."""
