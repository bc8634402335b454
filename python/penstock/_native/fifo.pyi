"""FIFOs and pipes."""

from typing import final

from penstock._native.ticket import _LoopWaker, _Watch

@final
class _FifoTicket:
    """The opening of a FIFO on a native thread. ``penstock.fifo.FifoTicket`` turns its descriptor into a stream."""
    def done(self) -> bool:
        """Whether the opening has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> None:
        """Wait until the opening has ended."""
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as ``wait`` does and return the exception of an opening that failed; None if it succeeded."""
    def take(self) -> int:
        """Return the descriptor of an opening that has ended. Once."""
    def cancel(self) -> None:
        """Cancel the opening, and close a descriptor that was not taken."""
    def _notify(self, waker: _LoopWaker, number: int) -> _Watch:
        """Tell the waker that number when the opening ends."""

def _fifo_open(path: str | bytes, mode: str, timeout: float | None = None) -> int:
    """Open a FIFO and return the descriptor. Waits for a reader if it is opened for writing."""

def _fifo_open_async(path: str | bytes, mode: str) -> _FifoTicket:
    """Start to open a FIFO on a native thread."""

def _make_pipe(capacity_bytes: int | None = None) -> tuple[int, int]:
    """Make a pipe of that capacity, or the nearest that is granted, and return its reading and writing descriptors."""
