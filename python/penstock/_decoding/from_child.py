"""Reading from a child process, which a thread does some items ahead, as long as the child shows signs of life."""

from __future__ import annotations

import time
from dataclasses import replace
from heapq import heappush
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._common.reports import DecoderEngine, DecoderStats
from penstock._decoding.libav_engine import LibavEngine, RawFrame
from penstock._decoding.session import KILL_GRACE_S, ChildSession
from penstock._decoding.turns import Read, Turns
from penstock.errors import StalledError

if TYPE_CHECKING:
    from penstock._common.deadline import Deadline
    from penstock._decoding.pixels import Arrays
    from penstock._decoding.plan import DecodePlan
    from penstock._decoding.session import ChildRun
    from penstock._facts.file_checks import FileChecks
    from penstock._native import AppliedPolicy

T = TypeVar("T")

# Items that are read ahead.
_READ_AHEAD = 4
_LATE = {"ffmpeg": "FFmpeg delivered nothing", "libav": "libav's process delivered nothing"}


class FromChild(Turns[T]):
    """Gives items that a child makes, which the first read starts.

    Attributes:
        warning: what is to be said of the file at its end; None if that is nothing.
    """

    warning: str | None = None
    _facts: DecoderEngine
    _run: ChildRun[Any]
    _waited_s = 0.0

    def _read_from(self, run: ChildRun[Any], facts: DecoderEngine, queue_items: int | None) -> None:
        self._run, self._facts = run, facts
        self._reads_ahead = queue_items or _READ_AHEAD

    @property
    def facts(self) -> DecoderEngine:
        """The engine, for a caller, with what the kernel cannot confine of the sandbox."""
        return self._facts

    @property
    def pid(self) -> int | None:
        """The child's process id; None before it has started."""
        return self._run.pid

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that the child started with; None if none was given, and before it has started."""
        return self._run.policy

    def read_ahead(self) -> None:
        """Starts the child before the first read, so that items are read ahead."""
        self._started()
        heappush(self._abandoned, self._begun_read())

    def read(self, timeout: float | None = None) -> T | None:
        """The next item; None at the end."""
        run, began_s = self._started(), time.perf_counter()
        try:
            with run.logged_stalls():
                made = super().read(timeout)
        finally:
            self._waited_s += time.perf_counter() - began_s
        if made is None:
            self._finish()
        return made

    async def read_async(self) -> T | None:
        """`read` for asyncio. A task that is cancelled while it waits loses nothing."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        run = self._started()
        read, is_there = self._begun_read(), False
        try:
            with run.logged_stalls():
                is_there = await run.wait_for_async(self._is_there, lambda: read.outcome, read)
        finally:
            if not is_there:
                heappush(self._abandoned, read)
        made = self._took(read.outcome.result()) if is_there else None
        if made is None:
            await asyncio.to_thread(self._finish)
        return made

    def _finish(self) -> None:
        """Finds out at the end whether all is well. Raises why it is not, the same at each call."""
        self._run.finish()
        if self._run.warning is not None:
            self.warning, self._run.warning = self._run.warning, None

    def _started(self) -> ChildSession:
        self.check_usable()
        session: ChildSession = self._run.session
        return session

    def _await(self, read: Read[T], deadline: Deadline) -> bool:
        """Waits for a read as long as the child shows signs of life. False at the end, if no read shows that."""
        session: ChildSession = self._run.session
        return session.wait_for(self._is_there, deadline, _LATE[self._facts.name], read)

    def _is_there(self, read: Read[T], timeout_s: float) -> bool:
        """Waits for a read. False if what a wrapper of FFmpeg has left running keeps the pipe open."""
        if self._is_done(read, timeout_s):
            return True
        if not self._run.is_left_running:
            raise StalledError("nothing came", timeout_s)
        return False

    def close(self) -> None:
        """Ends the child at once. What was delivered stays valid. May be called again, also by a signal handler."""
        self._is_closed = True
        # The child first: a read that waits for it ends only then.
        self._run.stop()
        super().close()
        if self._worker is not None and not self.is_inherited:
            self._worker.join(KILL_GRACE_S)  # its read ends with the child

    def end_collected(self) -> None:
        """Ends the child when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if not self.is_closed:
            self._run.end_collected()
            super().close()


class FramesFromChild(FromChild[RawFrame], LibavEngine):
    """Gives frames that a child makes, which the first read starts.

    Args:
        plan, pixels: as for `LibavEngine`.
        run: the child.
        questions: answers what else there is to know of the file.
        facts: the engine, for a caller.
    """

    def __init__(
        self,
        plan: DecodePlan,
        run: Any,
        checks: FileChecks,
        facts: DecoderEngine,
        pixels: Arrays,
    ) -> None:
        super().__init__(plan, run, facts.reason, may_hang=True, pixels=pixels)
        self._read_from(run, facts, plan.options.settings.queue_items)
        self.checks = checks

    @property
    def stats(self) -> DecoderStats:
        """What was done so far."""
        return replace(super().stats, caller_wait_s=self._waited_s)

    def _end(self) -> None:
        self._is_fed = True  # the child's end tells whether all is well
