"""Reading from libav in this process: by one thread at a time, with timeouts, by asyncio, and closed from anywhere."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock._common.daemon import Daemon
from penstock._common.deadline import Deadline
from penstock._common.ownership import Closable
from penstock._decoding.open_video import keep_in_child
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock._native import AppliedPolicy

T = TypeVar("T")

_FOREVER = Deadline(None)


class Read(NamedTuple, Generic[T]):
    """A read on the reader's own thread, by its number."""

    number: int
    outcome: Future[T | None]


class OneAtATime(Closable):
    """Something that one thread uses at a time, and that any thread may close."""

    #: What to say if nothing came in time.
    late: ClassVar[str] = "libav decoded no frame"

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()  # which knows its owner
        self._reading_thread: int | None = None
        self._is_released = False
        self._times = Times()

    def _free(self) -> None:
        """Closes the file."""
        raise NotImplementedError

    @contextmanager
    def _turn(self, deadline: Deadline = _FOREVER) -> Iterator[None]:
        """Excludes other threads. `close` leaves it to the last of them to close the file."""
        thread = threading.get_ident()
        if self._reading_thread == thread:
            raise RuntimeError("a signal handler can't read from a decoder that its thread is reading")
        try:
            if not self._lock.acquire(timeout=deadline.at_most(threading.TIMEOUT_MAX)):
                raise deadline.late(f"another thread was reading, and {self.late}")
            self._reading_thread = thread
            self.check_usable()
            entered_s = self._times.enter()
            try:
                yield
            finally:
                self._times.leave(entered_s)
        finally:  # a signal handler may have raised right behind `acquire`
            if self._reading_thread == thread:
                self._reading_thread = None
            with suppress(RuntimeError):  # another thread has the lock
                self._lock.release()
            if self._is_closed:
                self._release()

    def close(self) -> None:
        """Closes it, or lets the thread do it that uses it. May be called again, also by a signal handler."""
        self._is_closed = True
        if not self.is_inherited:
            self._release()

    def _release(self) -> None:
        if self._reading_thread == threading.get_ident():
            return  # this is a signal handler, and the read that it interrupts closes the file
        while self._is_closed and not self._is_released and self._lock.acquire(blocking=False):
            try:
                if self._is_released:
                    return  # a signal handler has done it, right behind `acquire`
                self._is_released = True
                self._let_go()
            finally:
                self._lock.release()

    def _let_go(self) -> None:
        self._times.end()
        self._free()


class Turns(OneAtATime, Generic[T]):
    """Gives items of a file, or of another source, one after another.

    Args:
        may_hang: the source may keep libav waiting, and libav can't be interrupted: another thread reads.
    """

    def __init__(self, *, may_hang: bool = False) -> None:
        super().__init__()
        self._may_hang, self._closing = may_hang, Future[None]()
        self._is_torn = False  # an exception of a signal handler has interrupted a read
        self._worker: Daemon | None = None
        self._abandoned: list[Read[T]] = []  # reads for which nobody waits any more, as a heap
        self._reads, self._queueing = count(), threading.RLock()
        self._reads_ahead = 0
        keep_in_child(self)

    # --- what it reads -----------------------------------------------------------------------------------------------

    def _made(self, deadline: Deadline) -> T | None:
        """The next item; None at the end."""
        raise NotImplementedError

    def _go_back(self) -> None:
        """Goes on behind the item that was given last: of those that were begun, some may be lost."""
        raise NotImplementedError

    def _took(self, made: T | None) -> T | None:
        """Counts what a caller receives."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """The process id of the child that it reads from; None without one, and before its start."""
        return None

    @property
    def policy(self) -> AppliedPolicy | None:
        """The policy that the child started with; None if it has none."""
        return None

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, timeout: float | None = None) -> T | None:
        """The next item; None at the end."""
        deadline = Deadline(timeout)
        self.check_usable()
        if self._abandoned or self._may_hang:
            return self._read_elsewhere(deadline)
        with self._turn(deadline):
            return self._took(self._next(deadline))

    async def read_async(self) -> T | None:
        """`read` for asyncio, on a thread of this object. A task that is cancelled while it waits loses nothing."""
        import asyncio  # slow to import; a program that uses asyncio has done so

        self.check_usable()
        read = self._begun_read()
        try:
            return self._took(await asyncio.shield(asyncio.wrap_future(read.outcome)))
        except asyncio.CancelledError:
            heappush(self._abandoned, read)
            raise

    def _begun_read(self) -> Read[T]:
        """A read on the thread of this object: the first one for which nobody waits any more, or a new one."""
        with self._queueing:
            if self._worker is None:
                self._worker = Daemon("penstock-decode")
            while len(self._abandoned) <= self._reads_ahead:
                heappush(self._abandoned, Read(next(self._reads), self._worker.submit(self._read_alone)))
            return heappop(self._abandoned)

    def _read_elsewhere(self, deadline: Deadline) -> T | None:
        """Waits for a read on the thread of this object. A wait without success leaves it to the next call."""
        read, is_done = self._begun_read(), False
        try:
            is_done = self._await(read, deadline)
        finally:
            if not is_done:
                heappush(self._abandoned, read)
        return self._took(read.outcome.result()) if is_done else None

    def _await(self, read: Read[T], deadline: Deadline) -> bool:
        """Waits until a read is done."""
        if not self._is_done(read, deadline.left_s()):
            raise deadline.late(self.late)
        return True

    def _is_done(self, read: Read[T], timeout_s: float | None) -> bool:
        """Whether a read is done within so many seconds."""
        either: tuple[Future[Any], ...] = (read.outcome, self._closing)
        wait(either, timeout_s, FIRST_COMPLETED)
        if not read.outcome.done():
            self.check_usable()
        return read.outcome.done()

    def _read_alone(self) -> T | None:
        with self._turn():
            return self._next(_FOREVER)

    def _next(self, deadline: Deadline) -> T | None:
        if self._is_torn:
            self._go_back()
            self._is_torn = False
        try:
            return self._made(deadline)
        except BaseException as error:
            self._is_torn = not isinstance(error, PenstockError)
            raise

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the file, or lets the thread do it that reads. May be called again, also by a signal handler."""
        self._is_closed = True
        if not self.is_inherited and not self._closing.done():
            self._closing.set_result(None)
        super().close()

    def _let_go(self) -> None:
        super()._let_go()
        if self._worker is not None:
            self._worker.end()

    def _close_collected(self, title: str, *, is_used: bool) -> None:
        """Closes the file when the garbage collector takes the decoder, with a `ResourceWarning` before the end."""
        if self.is_closed:
            return
        if is_used:
            warnings.warn(f"{title} was never closed", ResourceWarning, source=self, stacklevel=3)
        self.close()


class Times:
    """What the time since the first read was spent on."""

    def __init__(self) -> None:
        self.reading_s = self.decoding_s = self.away_s = 0.0
        self._begun_s: float | None = None
        self._left_s: float | None = None
        self._ended_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first read, until the end."""
        if self._begun_s is None:
            return 0.0
        return (self._ended_s or time.perf_counter()) - self._begun_s

    def enter(self) -> float:
        """Begins to count a call of the reader, and adds the time since the last one. Returns what `leave` needs."""
        entered_s = time.perf_counter()
        if self._begun_s is None:
            self._begun_s = entered_s
        elif self._left_s is not None:
            self.away_s += entered_s - self._left_s
        return entered_s

    def leave(self, entered_s: float) -> None:
        """Ends the count of a call."""
        self._left_s = time.perf_counter()
        self.reading_s += self._left_s - entered_s

    def end(self) -> None:
        """Stops the clock."""
        if self._begun_s is not None and self._ended_s is None:
            self._ended_s = self._left_s
