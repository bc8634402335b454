"""Tickets of queued writes, and watches on them."""

from collections.abc import Generator
from typing import Any, final

@final
class Ticket:
    """One queued write and its outcome. ``await ticket`` waits for it in asyncio.

    A write has ended when its buffer is free again. With the transports ``write`` and ``staged``, that is
    when the kernel has all of its bytes; with ``zero-copy``, when the reader has read them.
    """
    @property
    def nbytes(self) -> int:
        """The size of the write in bytes."""
    def done(self) -> bool:
        """Whether the write has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the write has ended. Releases the GIL; Ctrl-C interrupts it.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the write did not end in that time. It continues.
            BrokenStreamError, OSError: the stream failed.
            ClosedError: the write was aborted.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of a write that failed; None if it succeeded.

        Raises:
            StalledError: the write did not end in that time.
        """
    def __await__(self) -> Generator[Any]: ...
    def _notify(self, eventfd: int) -> _Watch:
        """Add 1 to the eventfd when the write ends. The native worker does it, without Python."""

@final
class _Watch:
    """A watch on a ticket, with the eventfd that it holds."""
    def stop(self) -> None:
        """Stop watching."""
