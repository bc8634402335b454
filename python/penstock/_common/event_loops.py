"""Tickets and ``async with`` in asyncio: native threads signal an eventfd of the event loop, which wakes the waiter."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from penstock._common.exits import STALL_S
from penstock._native import _LoopWaker
from penstock._platform.forks import at_fork
from penstock._platform.loops import watch
from penstock.errors import StalledError

if TYPE_CHECKING:
    from penstock._native import Frame, Reader, RelayReport, RelayTicket, Tee, Ticket, Writer, _Watch

Entered = TypeVar("Entered")
Result_co = TypeVar("Result_co", covariant=True)

Raised: TypeAlias = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]
"""The arguments of ``__exit__``."""


class Watchable(Protocol):
    """An operation whose end can be waited for."""

    def done(self) -> bool:
        """Whether it has ended."""

    def _notify(self, waker: _LoopWaker, number: int) -> _Watch: ...


class Cancellable(Watchable, Protocol[Result_co]):
    """A ticket of an operation that can be cancelled."""

    def wait(self, timeout: float | None) -> Result_co:
        """Its result."""

    def cancel(self) -> object:
        """Stop it."""


async def ended(ticket: Ticket) -> None:
    """Wait until the write has ended, and raise its failure as ``ticket.wait()`` does."""
    await until_done(ticket)
    ticket.wait()


async def ended_or_cancelled(ticket: Cancellable[Result_co]) -> Result_co:
    """Wait for the end and return the result. Cancelling the task cancels the operation."""
    try:
        await until_done(ticket)
    except asyncio.CancelledError:
        ticket.cancel()
        raise
    return ticket.wait(None)


async def relayed(ticket: RelayTicket) -> RelayReport:
    """Wait as ``ended_or_cancelled`` does, and set the byte counts of the relay on a cancellation."""
    try:
        return await ended_or_cancelled(ticket)
    except asyncio.CancelledError as error:
        await until_done(ticket)  # soon: it has been cancelled
        ticket._tell(error)
        raise


async def until_done(watchable: Watchable) -> None:
    """Wait until the operation has ended, successfully or not."""
    if watchable.done():
        return
    loop = asyncio.get_running_loop()
    # It may end within one turn of the loop; then nobody sleeps, and nobody needs to be woken.
    await asyncio.sleep(0)
    if not watchable.done():
        if (awaited := _waiters.get(loop)) is None:
            awaited = _waiters[loop] = _LoopWaiters(loop)
        await awaited.until_ended(watchable, loop.create_future())


async def next_frame(reader: Reader) -> Frame:
    """The reader's next frame, as iteration returns it."""
    while True:
        await until_done(reader._ready())
        try:
            frame = reader.read(timeout=0)
        except StalledError:
            continue  # another task took the frame
        if frame is None:
            raise StopAsyncIteration
        return frame


async def entered(stream: Entered) -> Entered:
    """``__aenter__`` of all streams."""
    return stream


async def leave_writer(writer: Writer, raised: Raised) -> None:
    """``Writer.__aexit__``: close as ``__exit__`` does, but let the event loop run meanwhile."""
    error = raised[1]
    try:
        # `__exit__` would hold up the loop. One write after another is awaited, until nothing is left to wait for.
        while not writer.closed and (ticket := writer._oldest()) is not None:
            if not await _ends_or_moves(writer, ticket, None if error is None else STALL_S):
                break
        else:
            writer.__exit__(*raised)
            return
    except BaseException:
        writer.abort()
        raise
    assert error is not None, "there is no limit without one"
    lost = writer.stats.bytes_pending
    writer.abort()
    error.add_note(
        f"and the writer couldn't deliver {lost} bytes, because its reader took nothing for {STALL_S:g} s"
    )


async def _ends_or_moves(writer: Writer, ticket: Ticket, stall_timeout: float | None) -> bool:
    """Wait for the end of a write. Return False if the reader has taken nothing for so many seconds."""
    delivered = writer.stats.bytes_delivered
    try:
        async with asyncio.timeout(stall_timeout):
            await until_done(ticket)
    except TimeoutError:
        return writer.stats.bytes_delivered > delivered
    return True


async def leave_reader(reader: Reader, _raised: Raised) -> None:
    # The worker can be in a disk read, which nothing interrupts.
    await asyncio.to_thread(reader.close)


async def leave_tee(tee: Tee, raised: Raised) -> None:
    if raised[1] is None:
        (await tee).check()
    else:
        tee.cancel()


class _LoopWaiters:
    """The futures of one event loop's waiting tasks. They share one eventfd, which the loop watches until it closes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waker = _LoopWaker()
        self._numbers = itertools.count()
        self._futures: dict[int, asyncio.Future[None]] = {}
        watch(loop, self.waker, self._wake)

    async def until_ended(self, watchable: Watchable, future: asyncio.Future[None]) -> None:
        number = next(self._numbers)
        # The loop is in this step until the `await`, so that no wake comes before the future has its place.
        watch = watchable._notify(self.waker, number)
        self._futures[number] = future
        try:
            await future
        finally:
            del self._futures[number]
            watch.stop()

    def _wake(self) -> None:
        for number in self.waker.take():
            # A cancelled task has removed its future, or, in the same turn of the loop, has only cancelled it.
            if (future := self._futures.get(number)) is not None and not future.done():
                future.set_result(None)


_waiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWaiters] = weakref.WeakKeyDictionary()


def _forget_all_in_child() -> None:
    # The child has closed the eventfds, and the next descriptor that is opened may get the same number.
    for loop, awaited in _waiters.items():
        if not loop.is_closed():
            loop.remove_reader(awaited.waker.fileno())
    _waiters.clear()


at_fork(after_in_child=_forget_all_in_child)
