"""A relay that copies, where no other way is native. It waits in the system's reads and writes."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import _native
from penstock._common import exits
from penstock._platform import descriptors
from penstock._platform.refusals import refuse
from penstock.errors import BrokenStreamError, ClosedError, StalledError

if TYPE_CHECKING:
    from penstock._common.types import Priority
    from penstock._native import AppliedPolicy, ThreadPolicy

_PIECE_BYTES = 64 << 10
# Chosen: how long a wait for a source may last before Ctrl-C and the timeout are looked at.
_LOOK_MS = 50


@dataclass(frozen=True)
class CopyReport:
    """As `RelayReport`."""

    bytes: int
    source_ended: bool
    method: str = "read-write"
    reason: str = "the only method here"


class CopyingRelay:
    """As the native ``_Relay``: `relay` and `Relay` document it.

    Its descriptors are duplicates of the caller's.
    """

    def __init__(
        self,
        src: Any,
        dst: Any,
        count: int | None,
        offset: int | None,
        timeout: float | None,
        method: str,
        ahead: bytes,
    ) -> None:
        if method not in ("auto", "read-write"):
            raise ValueError(f"method must be 'auto' or 'read-write', not {method!r}")
        for name, value in (("count", count), ("offset", offset)):
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0, not {value}")
        if offset is not None and offset >= 1 << 63:
            raise ValueError(f"offset must be less than 2^63, not {offset}")
        if hasattr(dst, "flush"):
            dst.flush()
        self._count, self._offset, self._timeout = count, offset, timeout
        self._ahead, self._ahead_bytes = ahead, len(ahead)
        self._delivered = self._lost = 0
        self._ends: list[int] = []
        self.is_cancelled = False
        try:
            for number, use in ((_number(src), "reading"), (_number(dst), "writing")):
                if not descriptors.is_open_for(number, use):
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                self._ends.append(descriptors.duplicate(number))
            self._is_file = stat.S_ISREG(os.fstat(self._ends[0]).st_mode)
            if offset is not None:
                self._open_again()
                os.lseek(self._ends[0], offset, os.SEEK_SET)
        except BaseException:
            self.close()
            raise

    def _open_again(self) -> None:
        """Gives the source a position of its own: duplicates share the caller's."""
        if not self._is_file:
            raise ValueError("offset needs a regular file as the source")
        again = descriptors.opened_again(self._ends[0])
        os.close(self._ends[0])
        self._ends[0] = again

    def run(self, stream: Any = None) -> CopyReport:
        """Moves the bytes, then sets the stream of the source, if given, behind those that were delivered."""
        try:
            report = self.advance(self._count)
        finally:
            self.close()
            if stream is not None and self._offset is not None:
                stream.seek(self._offset + self._delivered)
            elif stream is not None:
                stream.read(min(self._delivered, self._ahead_bytes))
        return report

    def advance(self, count: int | None) -> CopyReport:
        """Moves so many bytes more, or all."""
        if not self._ends:
            raise ClosedError("the relay is closed")
        self._delivered = self._lost = 0
        while count is None or self._delivered < count:
            most = _PIECE_BYTES if count is None else min(_PIECE_BYTES, count - self._delivered)
            if not (data := self._next(most)):
                return CopyReport(self._delivered, True)
            self._write(data)
        return CopyReport(self._delivered, False)

    def _next(self, most: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:most], self._ahead[most:]
            return data
        since_s = time.monotonic()
        while not descriptors.waits_to_read(self._ends[0], _LOOK_MS):
            if self.is_cancelled:
                raise ClosedError("the relay was cancelled")
            waited_s = time.monotonic() - since_s
            if self._timeout is not None and waited_s >= self._timeout:
                stalled = StalledError("nothing moved", waited_s)
                from penstock._common.log import logger  # slow to import, and few relays stall

                logger.warning("a relay stalled: %s", stalled)
                raise stalled
        return os.read(self._ends[0], most)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                given = descriptors.write(self._ends[1], left)
                left, self._delivered = left[given:], self._delivered + given
        except BaseException as error:
            if self._is_file:
                os.lseek(self._ends[0], -len(left), os.SEEK_CUR)
            else:
                self._lost = len(left)
            if isinstance(error, BrokenPipeError):
                raise BrokenStreamError(error.errno or 0, error.strerror or "") from error
            raise

    def close_at_exit(self) -> None:
        """Nothing: the system closes all."""

    def close(self) -> None:
        """Closes the descriptors."""
        while self._ends:
            os.close(self._ends.pop())

    def tell(self, error: BaseException) -> None:
        """Sets the byte counts on the exception that ended the relay."""
        error.bytes_delivered, error.bytes_lost = self._delivered, self._lost  # type: ignore[attr-defined]

    @property
    def report(self) -> CopyReport:
        """The progress so far."""
        return CopyReport(self._delivered, False)


def _number(end: Any) -> int:
    sockets = sys.modules.get("socket")  # without which there is none
    if sockets is not None and isinstance(getattr(end, "raw", end), sockets.SocketIO | sockets.socket):
        refuse("a socket as a descriptor")
    return end if isinstance(end, int) else int(end.fileno())


class CopyTicket:
    """As `RelayTicket`. The arguments are those of `start_relay`."""

    def __init__(
        self,
        src: Any,
        dst: Any,
        count: int | None,
        offset: int | None,
        timeout: float | None,
        method: str,
        policy: ThreadPolicy | Priority | None,
    ) -> None:
        self._relay = CopyingRelay(src, dst, count, offset, timeout, method, b"")
        self._outcome: Future[CopyReport] = Future()
        self._outcome.set_running_or_notify_cancel()  # asyncio would cancel it otherwise, and the thread go on
        self._wanted = policy
        self.policy: AppliedPolicy | None = None
        _running.add(self)
        exits.at_exit(_finish_all, 0)
        threading.Thread(target=self._run, name="penstock-relay", daemon=True).start()

    def _run(self) -> None:
        try:
            if self._wanted is not None:
                self.policy = _native._apply_policy(self._wanted, try_undo=False)
            self._outcome.set_result(self._relay.run())
        except BaseException as error:
            self._relay.tell(error)
            self._outcome.set_exception(error)
        finally:
            _running.discard(self)

    def done(self) -> bool:
        return self._outcome.done()

    @property
    def report(self) -> CopyReport:
        return self._outcome.result() if self._has_succeeded() else self._relay.report

    def _has_succeeded(self) -> bool:
        return self._outcome.done() and self._outcome.exception() is None

    def wait(self, timeout: float | None = None) -> CopyReport:
        self._await(timeout)
        return self._outcome.result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return self._outcome.exception()

    def _await(self, timeout: float | None) -> None:
        if not wait([self._outcome], timeout).done:
            continues = StalledError("the relay continues", timeout or 0)
            self._relay.tell(continues)
            raise continues

    def cancel(self) -> None:
        self._relay.is_cancelled = True

    def __await__(self) -> Generator[Any, None, CopyReport]:
        import asyncio  # slow to import; a program that uses asyncio has done so

        try:
            return (yield from asyncio.wrap_future(self._outcome).__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise


_running: set[CopyTicket] = set()


def _progress() -> dict[CopyTicket, int]:
    return {ticket: ticket.report.bytes for ticket in list(_running) if not ticket.done()}


def _finish_all() -> None:
    """Before the program ends, waits for the relays while they move something."""
    before, now = None, _progress()
    with suppress(KeyboardInterrupt):
        while now and now != before:
            wait([ticket._outcome for ticket in now], exits.STALL_S)
            before, now = now, _progress()
    if now:
        exits.report_loss(f"{len(now)} relays were cut off, because {exits.CUT_OFF_REASON}")
