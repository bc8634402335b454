"""`Tee`, its outputs and its report."""

from collections.abc import Generator
from types import TracebackType
from typing import Any, Self, final

from penstock._common.types import HasFileno, Priority, TeeWhenFull
from penstock._native.cpu import AppliedPolicy, ThreadPolicy
from penstock._native.ticket import _LoopWaker, _Watch

@final
class Tee:
    """Copies one stream to many outputs on a native thread, by tee(2) and splice(2).

    ```python
    report = Tee(source, archive, process.stdin).wait()
    report.check()  # raises if an output failed
    ```

    If all ends are pipes, no byte passes through user space; for other ends the tee puts a pipe of its own in
    between. If one output fails, the others still receive everything. The tee ends when the source ends, or
    when no output is left; then what the source holds stays there. The tee duplicates all descriptors: the
    reader of an output gets its end of file once the caller has closed the descriptor, too.

    ``with`` and ``async with`` start the tee, wait for it at the end of the block, and raise the error of the first
    output that failed; if the block raises, they cancel the tee. ``await tee`` returns the report; cancelling
    the task that awaits it cancels the tee.

    Args:
        src: an int or an object with ``fileno()``, open for reading. A buffered file is read from the stream's
            position.
        outputs: the same, open for writing. Bytes that a Python stream has buffered for one are flushed first.
        when_full: what happens when one of ``outputs`` takes nothing: with ``"block"`` all others wait for it, with
            ``"evict"`` it is removed after ``stall_timeout``. A slow output stays.
        stall_timeout: seconds without a single byte taken, although bytes were ready, before an eviction.
        policy: priority and CPUs of the thread: a ``ThreadPolicy``, or a level like ``"below-normal"``.
        start: False delays the start until ``start()``, so that ``add`` can add outputs that miss nothing.

    Raises:
        OSError: EBADF if a descriptor is closed or open for something else; or another failure of the system.
        TypeError: a descriptor does not carry the bytes that its object reads or writes, as with a text source, a
            compressed file or a TLS socket; or an object has no descriptor.
        ValueError: an output is the source, or is given twice; the source is a pipe or socket of which a Python
            stream has read ahead; or an argument has a wrong value.
    """
    def __new__(
        cls,
        src: int | HasFileno,
        *outputs: int | HasFileno,
        when_full: TeeWhenFull = "block",
        stall_timeout: float = 5.0,
        policy: ThreadPolicy | Priority | None = None,
        start: bool = True,
    ) -> Self: ...
    def start(self) -> None:
        """Start a tee that was made with ``start=False``. Otherwise does nothing.

        Raises:
            OSError: EAGAIN if no thread could be started. The tee can be started again.
            ClosedError: the tee belongs to the parent process.
        """
    def add(
        self, output: int | HasFileno, *, when_full: TeeWhenFull = "block", stall_timeout: float = 5.0
    ) -> TeeOutput:
        """Add an output. Before the start it gets the whole stream, later the bytes from now on.

        Args:
            output: an int or an object with ``fileno()``, open for writing.
            when_full: as for the constructor's ``outputs``.
            stall_timeout: as for the constructor's ``outputs``.

        Raises:
            ClosedError: the tee has ended.
            OSError, TypeError, ValueError: as for the constructor.
        """
    def remove(self, output: TeeOutput | int | HasFileno) -> None:
        """Remove an output. Bytes that were taken for it are still delivered. Does nothing if it has ended.

        Args:
            output: the ``TeeOutput`` that ``add`` returned, or a descriptor of the output.

        Raises:
            ValueError: it is not an output of this tee.
        """
    def wait(self, timeout: float | None = None) -> TeeReport:
        """Start the tee if necessary, wait for its end and return its report. Releases the GIL; Ctrl-C interrupts it.

        Failures of outputs do not raise here: see ``TeeReport.check``.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: the tee did not end in that time. It continues.
            OSError: the source failed.
            ClosedError: the tee was cancelled.
        """
    def cancel(self) -> None:
        """Stop the tee. Does nothing after its end."""
    def done(self) -> bool:
        """Whether the tee has ended."""
    @property
    def report(self) -> TeeReport:
        """The report so far."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the thread; None if none was asked for, or before the thread starts."""
    def __await__(self) -> Generator[Any, Any, TeeReport]: ...
    def _notify(self, waker: _LoopWaker, number: int) -> _Watch:
        """Tell the waker that number when the tee, which must have started, ends."""
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
class TeeOutput:
    """One output of a tee. Its properties are live while the tee runs."""
    @property
    def fd(self) -> int:
        """The number of the descriptor that it was added with."""
    @property
    def when_full(self) -> str:
        """``"block"`` or ``"evict"``."""
    @property
    def start_bytes(self) -> int:
        """The offset in the stream at which it began, in bytes: 0 unless it was added after the start."""
    @property
    def bytes_delivered(self) -> int:
        """Bytes that it has taken; if its reader went away, those that the reader had taken."""
    @property
    def bytes_lost(self) -> int:
        """Bytes that were taken from the source for it and did not arrive."""
    @property
    def ended(self) -> str | None:
        """Why it ended: ``"source-ended"``, ``"source-failed"``, ``"removed"``, ``"broken"`` (its reader went away),
        ``"evicted"``, ``"failed"`` (a system call failed, as on a full disk) or ``"cancelled"``; None while it runs.
        """
    @property
    def error(self) -> BaseException | None:
        """Its failure: a BrokenStreamError, a StalledError (evicted) or another OSError; None if it did not fail."""
    @property
    def method(self) -> str:
        """How its bytes move: ``"tee"``; or ``"tee, splice"`` or ``"tee, read-write"``, through a pipe of the tee's.

        Where the system refuses tee(2), ``"read-write"`` stands in the place of ``"tee"``.
        """
    @property
    def reason(self) -> str:
        """Why this method is used."""

@final
class TeeReport:
    """The outcome of a tee and of each of its outputs."""
    @property
    def bytes(self) -> int:
        """Bytes that were taken from the source."""
    @property
    def bytes_lost(self) -> int:
        """Bytes that were read from a source that is neither a pipe nor a file and that no output got, because
        all were gone.
        """
    @property
    def source_ended(self) -> bool:
        """Whether the source has ended."""
    @property
    def outputs(self) -> tuple[TeeOutput, ...]:
        """The outputs, in the order in which they were added: all that run, and the last thousand that ended."""
    @property
    def forgotten(self) -> int:
        """The number of outputs that ended earlier and are not listed any more."""
    @property
    def forgotten_failures(self) -> int:
        """How many of the forgotten outputs failed. ``check`` raises the failure of the first."""
    @property
    def forgotten_bytes_lost(self) -> int:
        """Bytes that were taken from the source for forgotten outputs and did not arrive."""
    def check(self) -> None:
        """Raise the first failure of an output, with the others as notes. Does nothing if none failed."""
