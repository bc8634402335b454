"""`RelayReport`, the tickets of relays, and how to start one."""

from collections.abc import Generator
from io import BufferedRandom, BufferedReader
from typing import Any, Self, final

from penstock._common.types import HasFileno, Priority, RelayMethod
from penstock._native.cpu import AppliedPolicy, ThreadPolicy
from penstock._native.ticket import _LoopWaker, _Watch

@final
class RelayReport:
    """The result of a relay: how many bytes it moved, and by which method."""
    @property
    def bytes(self) -> int:
        """Bytes that reached the destination."""
    @property
    def method(self) -> str:
        """``"splice"``, ``"splice-through-pipe"``, ``"copy_file_range"``, ``"sendfile"`` or ``"read-write"``; the last
        method if the relay changed it.
        """
    @property
    def reason(self) -> str:
        """Why this method was used."""
    @property
    def source_ended(self) -> bool:
        """Whether the relay ended because the source ended, and not because of ``count``."""

@final
class RelayTicket:
    """A relay on a native thread. ``await ticket`` waits for it in asyncio.

    If you cancel the task that awaits the ticket, the relay is cancelled; the ``CancelledError`` has
    ``bytes_delivered`` and ``bytes_lost``.
    """
    def done(self) -> bool:
        """Whether the relay has ended, successfully or not."""
    def wait(self, timeout: float | None = None) -> RelayReport:
        """Waits until the relay has ended, and returns its result. Releases the GIL; Ctrl-C interrupts it.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: if the relay didn't end in that time, and continues; or if no byte moved for its own timeout.
            ClosedError: if the relay was cancelled.
            BrokenStreamError, OSError: as for ``relay``.
        """
    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits as ``wait`` does, and returns the exception of a relay that failed; None if it succeeded.

        Raises:
            StalledError: if the relay didn't end in that time.
        """
    def cancel(self) -> None:
        """Stops the relay. Moved bytes stay moved. Does nothing after its end."""
    @property
    def report(self) -> RelayReport:
        """The progress so far."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the thread; None if you asked for none, or before the thread starts."""
    def __await__(self) -> Generator[Any, Any, RelayReport]: ...
    def _notify(self, waker: _LoopWaker, number: int) -> _Watch:
        """Tell the waker that number when the relay ends."""
    def _tell(self, error: BaseException) -> None:
        """Set the byte counts of this relay, which has ended, on an exception."""

@final
class _Relay:
    """A relay on the caller's thread, prepared to run once or to move piece by piece. ``penstock.relay`` and
    ``penstock.pipes.Relay`` document it.
    """
    def __new__(
        cls,
        src: int | HasFileno,
        dst: int | HasFileno,
        count: int | None,
        offset: int | None,
        timeout: float | None,
        method: RelayMethod,
        ahead: bytes,
    ) -> Self: ...
    def run(self, stream: BufferedReader | BufferedRandom | None) -> RelayReport:
        """Move the bytes, then set the stream of the source, if given, behind those that were delivered."""
    def advance(self, count: int) -> RelayReport:
        """Move so many bytes more, and keep the descriptors."""
    def close_at_exit(self) -> None:
        """Have a file closed before the interpreter ends, if the object is dropped before."""
    def close(self) -> None:
        """Close the descriptors of the relay."""
    def tell(self, exception: BaseException) -> None:
        """Set the byte counts on the exception that ended the relay."""

def _start_relay(
    src: int | HasFileno,
    dst: int | HasFileno,
    count: int | None,
    offset: int | None,
    timeout: float | None,
    method: RelayMethod,
    policy: ThreadPolicy | Priority | None,
) -> RelayTicket:
    """Start a relay on a native thread. ``penstock.pipes.start_relay`` documents it."""
