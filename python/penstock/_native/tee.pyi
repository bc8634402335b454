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

    If all ends are pipes, no byte passes through user space. For other ends, the tee puts a pipe of its own in between.
    If one output fails, the others still receive everything. The tee ends when the source ends, or when no output is
    left; in that case the bytes in the source stay there. The tee duplicates all descriptors: the reader of an output
    gets its end of file once you have closed the descriptor, too.

    ``with`` and ``async with`` start the tee, wait for it at the end of the block, and raise the error of the first
    output that failed. If the block raises, they cancel the tee. ``await tee`` returns the report. If you cancel the
    task that awaits it, the tee is cancelled.

    Args:
        src: an int or an object with ``fileno()``, open for reading. A buffered file is read from the stream's
            position.
        outputs: the same, open for writing. Bytes that a Python stream has buffered are flushed first.
        when_full: what to do if an output takes nothing: with ``"block"`` all others wait for it, with ``"evict"`` it
            is removed after ``stall_timeout``. A slow output stays.
        stall_timeout: seconds after which an output is evicted if it takes no byte although bytes are ready.
        policy: priority and CPUs of the thread: a ``ThreadPolicy``, or a level such as ``"below-normal"``.
        start: False delays the start until ``start()``, so that ``add`` can add outputs that miss nothing.

    Raises:
        OSError: EBADF if a descriptor is closed, or isn't open for reading or writing as needed; or another failure of
            the system.
        TypeError: if an object has no descriptor, or its descriptor doesn't carry the bytes that the object reads or
            writes: a text source, a compressed file or a TLS socket.
        ValueError: if an output is the source, or occurs twice; if the source is a pipe or socket of which a Python
            stream has read ahead; or if an argument has a wrong value.
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

    @final
    class Output:
        """One output of a tee. Its properties change while the tee runs."""
        @property
        def fd(self) -> int:
            """The number of the descriptor that you added."""
        @property
        def when_full(self) -> str:
            """``"block"`` or ``"evict"``."""
        @property
        def start_bytes(self) -> int:
            """The offset in the stream at which the output began, in bytes: 0 unless you added it after the start."""
        @property
        def bytes_delivered(self) -> int:
            """Bytes that the output has taken; if its reader went away, bytes that the reader had taken."""
        @property
        def bytes_lost(self) -> int:
            """Bytes that were taken from the source for the output and didn't arrive."""
        @property
        def ended(self) -> str | None:
            """Why it ended: ``"source-ended"``, ``"source-failed"``, ``"removed"``, ``"broken"`` (its reader went
            away), ``"evicted"``, ``"failed"`` (a system call failed, as on a full disk) or ``"cancelled"``; None while
            it runs.
            """
        @property
        def error(self) -> BaseException | None:
            """The failure: a BrokenStreamError, a StalledError (evicted) or another OSError; None if it didn't fail."""
        @property
        def method(self) -> str:
            """How its bytes move: ``"tee"``; or ``"tee, splice"`` or ``"tee, read-write"``, through the tee's own pipe.

            If the system refuses tee(2), ``"read-write"`` replaces ``"tee"``.
            """
        @property
        def reason(self) -> str:
            """Why this method is used."""

    def start(self) -> None:
        """Starts a tee that was made with ``start=False``. Otherwise does nothing.

        Raises:
            OSError: EAGAIN if no thread could be started. The tee can be started again.
            ClosedError: if the tee belongs to the parent process.
        """
    def add(
        self, output: int | HasFileno, *, when_full: TeeWhenFull = "block", stall_timeout: float = 5.0
    ) -> Tee.Output:
        """Adds an output. Before the start it gets the whole stream, later the bytes from now on.

        Args:
            output: an int or an object with ``fileno()``, open for writing.
            when_full: as for the constructor's ``outputs``.
            stall_timeout: as for the constructor's ``outputs``.

        Raises:
            ClosedError: if the tee has ended.
            OSError, TypeError, ValueError: as for the constructor.
        """
    def remove(self, output: Tee.Output | int | HasFileno) -> None:
        """Removes an output. Bytes that were taken for it are still delivered. Does nothing if it has ended.

        Args:
            output: the ``Tee.Output`` that ``add`` returned, or a descriptor of the output.

        Raises:
            ValueError: if it isn't an output of this tee.
        """
    def wait(self, timeout: float | None = None) -> TeeReport:
        """Starts the tee if needed, waits for its end and returns its report. Releases the GIL; Ctrl-C interrupts it.

        Failures of outputs don't raise here: see ``TeeReport.check``.

        Args:
            timeout: seconds; None waits without limit.

        Raises:
            StalledError: if the tee didn't end in that time. It continues.
            OSError: if the source failed.
            ClosedError: if the tee was cancelled.
        """
    def cancel(self) -> None:
        """Stops the tee. Does nothing after its end."""
    def done(self) -> bool:
        """Whether the tee has ended."""
    @property
    def report(self) -> TeeReport:
        """The report so far."""
    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that was applied to the thread; None if you asked for none, or before the thread starts."""
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
class TeeReport:
    """The result of a tee and of each of its outputs."""
    @property
    def bytes(self) -> int:
        """Bytes that were taken from the source."""
    @property
    def bytes_lost(self) -> int:
        """Bytes lost because all outputs were gone, from a source that is neither a pipe nor a file."""
    @property
    def source_ended(self) -> bool:
        """Whether the source has ended."""
    @property
    def outputs(self) -> tuple[Tee.Output, ...]:
        """The outputs, in the order in which you added them: all that run, and the last thousand that ended."""
    @property
    def forgotten(self) -> int:
        """The number of outputs that ended earlier and are no longer listed."""
    @property
    def forgotten_failures(self) -> int:
        """How many of the forgotten outputs failed. ``check`` raises the failure of the first."""
    @property
    def forgotten_bytes_lost(self) -> int:
        """Bytes that were taken from the source for forgotten outputs and didn't arrive."""
    def check(self) -> None:
        """Raises the first failure of an output, with the others as notes. Does nothing if none failed."""
