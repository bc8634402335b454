"""Tickets in asyncio: the worker signals an eventfd, the event loop wakes the waiter."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._native import Ticket


async def ended(ticket: Ticket) -> None:
    """Wait until the write has ended, and raise what it failed of, as ``ticket.wait()`` does."""
    if not ticket.done():
        await _signalled(ticket)
    ticket.wait()


async def _signalled(ticket: Ticket) -> None:
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
