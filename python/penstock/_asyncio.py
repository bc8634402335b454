"""Tickets in asyncio: the worker signals an eventfd, the event loop wakes the waiter."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Protocol, TypeVar

from penstock.errors import StalledError

if TYPE_CHECKING:
    from penstock._native import Frame, Reader, Relayed, RelayTicket, Ticket, _Watch

Result_co = TypeVar("Result_co", covariant=True)


class Watchable(Protocol):
    """Something whose end can be waited for."""

    def done(self) -> bool:
        """Whether it has ended."""

    def _notify(self, eventfd: int) -> _Watch: ...


class Cancellable(Watchable, Protocol[Result_co]):
    """A ticket for something that can be stopped."""

    def wait(self) -> Result_co:
        """What it came to."""

    def cancel(self) -> None:
        """Stop it."""


async def ended(ticket: Ticket) -> None:
    """Wait until the write has ended, and raise what it failed of, as ``ticket.wait()`` does."""
    if not ticket.done():
        await _signalled(ticket)
    ticket.wait()


async def ended_or_cancelled(ticket: Cancellable[Result_co]) -> Result_co:
    """Wait for the end and give the result; if the task that waits is cancelled, so is what the ticket is for."""
    if not ticket.done():
        try:
            await _signalled(ticket)
        except asyncio.CancelledError:
            ticket.cancel()
            raise
    return ticket.wait()


async def relayed(ticket: RelayTicket) -> Relayed:
    """As ``ended_or_cancelled``; and a cancellation has the relay's counts, as all that ends one does."""
    try:
        return await ended_or_cancelled(ticket)
    except asyncio.CancelledError as error:
        await until_done(ticket)  # soon: it has been cancelled
        ticket._tell(error)
        raise


async def until_done(watchable: Watchable) -> None:
    """Wait until it is done, whatever came of it."""
    if not watchable.done():
        await _signalled(watchable)


async def next_frame(reader: Reader) -> Frame:
    """The reader's next frame, as iteration gives it."""
    while True:
        await until_done(reader._ready())
        try:
            frame = reader.read(timeout=0)
        except StalledError:
            continue  # another task was quicker
        if frame is None:
            raise StopAsyncIteration
        return frame


async def _signalled(ticket: Watchable) -> None:
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()
    eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wake() -> None:
        loop.remove_reader(eventfd)
        if not woken.done():  # it is, when the task was cancelled in the same turn of the loop
            woken.set_result(None)

    try:
        loop.add_reader(eventfd, wake)
        watch = ticket._notify(eventfd)
        try:
            await woken
        finally:
            watch.stop()
    finally:
        loop.remove_reader(eventfd)
        os.close(eventfd)
