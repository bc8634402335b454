"""A relay that copies, where no other way is native. It looks for what comes, and a native stream writes it."""

from __future__ import annotations

import ctypes
import errno
import operator
import os
import stat
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
from penstock.errors import ClosedError, StalledError

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
        count, offset = _amount("count", count), _amount("offset", offset)
        if offset is not None and offset >= 1 << 63:
            raise ValueError(f"offset must be less than 2^63, not {offset}")
        self._count, self._offset, self._timeout = count, offset, timeout
        self._ahead, self._ahead_bytes = ahead, len(ahead)
        self._delivered = self._lost = 0
        self._source = -1
        self._stream: _native.Writer | None = None
        self.is_cancelled = False
        try:
            number = _number(src)
            if not descriptors.is_open_for(number, "reading"):
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._source = descriptors.duplicate(number)
            self._is_file = stat.S_ISREG(os.fstat(self._source).st_mode)
            if offset is not None:
                self._open_again()
                os.lseek(self._source, offset, os.SEEK_SET)
            self._stream = _native.Writer(dst, mode="write")
        except BaseException:
            self.close()
            raise

    def _open_again(self) -> None:
        """Gives the source a position of its own: duplicates share the caller's."""
        if not self._is_file:
            raise ValueError("offset needs a regular file as the source")
        again = descriptors.open_again(self._source)
        os.close(self._source)
        self._source = again

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
        if self._stream is None:
            raise ClosedError("the relay is closed")
        count = _amount("count", count)
        self._delivered = self._lost = 0
        try:
            while count is None or self._delivered < count:
                most = _PIECE_BYTES if count is None else min(_PIECE_BYTES, count - self._delivered)
                if not (data := self._next(most)):
                    return CopyReport(self._delivered, True)
                self._write(self._stream, data)
        except BaseException as error:
            if self._lost:
                self.close()
            if isinstance(error, StalledError):
                from penstock._common.log import logger  # slow to import, and few relays stall

                logger.warning("a relay stalled: %s", error)
            raise
        return CopyReport(self._delivered, False)

    def _next(self, most: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:most], self._ahead[most:]
            return data
        since_s = time.monotonic()
        while not descriptors.waits_to_read(self._source, _LOOK_MS):
            if self.is_cancelled:
                raise ClosedError("the relay was cancelled")
            waited_s = time.monotonic() - since_s
            if self._timeout is not None and waited_s >= self._timeout:
                raise StalledError("nothing moved", waited_s)
        return os.read(self._source, most)

    def _write(self, stream: _native.Writer, data: bytes) -> None:
        self._lost = len(data)  # a write that is cut short may have arrived in part
        failure = stream.submit(data).exception(self._timeout)
        if failure is None or isinstance(failure, OSError):  # the system's, whose counts are exact
            self._lost = getattr(failure, "bytes_lost", 0)
        self._delivered += len(data) - self._lost
        if isinstance(failure, OSError) and self._is_file:
            os.lseek(self._source, -self._lost, os.SEEK_CUR)
            self._lost = 0
        if failure is not None:
            raise failure

    def cancel(self) -> None:
        """Ends the waits of the thread that runs it."""
        self.is_cancelled = True
        if (stream := self._stream) is not None:
            stream.abort()

    def close_at_exit(self) -> None:
        """Nothing: the system closes all."""

    def close(self) -> None:
        """Closes the descriptors."""
        stream, self._stream = self._stream, None
        source, self._source = self._source, -1
        if stream is not None:
            stream.abort()
        if source >= 0:
            os.close(source)

    def tell(self, error: BaseException) -> None:
        """Sets the byte counts on the exception that ended the relay."""
        error.bytes_delivered, error.bytes_lost = self._delivered, self._lost  # type: ignore[attr-defined]

    @property
    def report(self) -> CopyReport:
        """The progress so far."""
        return CopyReport(self._delivered, False)


def _amount(name: str, value: int | None) -> int | None:
    """A number of bytes, as the native relay takes it."""
    if value is not None and (value := operator.index(value)) < 0:
        raise ValueError(f"{name} must be at least 0, not {value}")
    return value


def _number(src: Any) -> int:
    if isinstance(src, str | bytes | os.PathLike):
        raise TypeError(f"src must be an open file or a descriptor, not a path. Pass open({src!r}, 'rb')")
    return int(ctypes.pythonapi.PyObject_AsFileDescriptor(ctypes.py_object(src)))


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
        self._relay.cancel()

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
