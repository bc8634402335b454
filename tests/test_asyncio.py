"""Tickets in asyncio: awaited without blocking the loop, with the errors of everywhere else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine

import pytest
from conftest import ReaderThread, eventually, noise, open_fds, read_exactly

import penstock

FRAME = 3_000_000


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


async def ticks_until(event: Awaitable[object]) -> int:
    """How often the loop came round meanwhile."""
    task = asyncio.ensure_future(event)
    count = 0
    while not task.done():
        await asyncio.sleep(0.001)
        count += 1
    await task
    return count


async def awaited(ticket: penstock.Ticket) -> None:
    assert await ticket is None


def test_a_ticket_is_awaited_while_the_loop_goes_round(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def main() -> None:
        ticket = penstock.pipe(noise(FRAME), writer)
        waiting = asyncio.create_task(ticks_until(awaited(ticket)))
        await asyncio.sleep(0.05)
        assert not waiting.done(), "nobody has read yet"
        got = ReaderThread(reader)
        assert await waiting > 5
        os.close(writer)
        assert await asyncio.to_thread(got.result) == noise(FRAME)

    run(main)


def test_a_ticket_that_is_done_is_awaited_at_once(pair: tuple[int, int]) -> None:
    async def main() -> None:
        ticket = penstock.pipe(b"x", pair[1])
        ticket.wait(10)
        await ticket
        await ticket, "as often as one likes"

    run(main)


def test_many_tickets_are_awaited_together() -> None:
    pipes = [os.pipe() for _ in range(20)]
    readers = [ReaderThread(reader) for reader, _ in pipes]

    async def main() -> None:
        await asyncio.gather(*(awaited(penstock.pipe(noise(300_000), writer)) for _, writer in pipes))

    run(main)
    for (_, writer), got in zip(pipes, readers, strict=True):
        os.close(writer)
        assert got.result() == noise(300_000)


def test_the_error_is_the_one_of_everywhere_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    async def main() -> None:
        with pytest.raises(penstock.BrokenStreamError) as caught:
            await penstock.pipe(bytes(1000), writer)
        assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (0, 1000)

    run(main)
    with pytest.raises(penstock.BrokenStreamError):
        penstock.sync()
    os.close(writer)


def test_a_wait_that_is_cancelled_leaves_the_write_alone(pair: tuple[int, int]) -> None:
    reader, writer = pair
    before = open_fds()

    async def main() -> None:
        ticket = penstock.pipe(noise(FRAME), writer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(awaited(ticket), 0.05)
        assert not ticket.done()
        assert len(await asyncio.to_thread(read_exactly, reader, FRAME)) == FRAME
        await ticket

    run(main)
    assert eventually(lambda: open_fds() == before), "no eventfd is left"


def test_writers_of_subprocesses_take_turns_with_asyncios_own() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        pipe = process.stdin.transport.get_extra_info("pipe")
        ticket = penstock.pipe(noise(FRAME), pipe)
        got = await process.stdout.readexactly(FRAME)
        await ticket
        process.stdin.close()
        assert await process.stdout.read() == b""
        assert got == noise(FRAME)
        assert await process.wait() == 0

    run(main)
