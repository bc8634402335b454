"""Tickets in asyncio, and asyncio's own pipes as destinations."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import MODES, eventually
from support.streams import ReaderThread, noise, read_exactly
from support.this_process import open_fds

import penstock
from penstock import _native

FRAME = noise(3 << 20)


@pytest.mark.parametrize("mode", MODES)
def test_a_ticket_is_awaited_while_the_loop_goes_on(pair: tuple[int, int], mode: str) -> None:
    """The reader is a task of the same loop: it could not read if the await kept the loop."""
    reader, writer = pair

    async def main() -> bytes:
        reading = asyncio.create_task(asyncio.to_thread(read_exactly, reader, len(FRAME)))
        ticket = _native._pipe(FRAME, writer, mode=mode)
        assert not ticket.done()
        assert await ticket is None
        assert ticket.done()
        assert await ticket is None  # again, when it has ended
        return await reading

    assert asyncio.run(asyncio.wait_for(main(), 30)) == FRAME


@pytest.mark.parametrize("loop", [None, asyncio.SelectorEventLoop], ids=["the default", "selector"])
def test_every_kind_of_loop_awaits_all_streams(
    loop: Callable[[], asyncio.AbstractEventLoop] | None, pair: tuple[int, int], tmp_path: Path
) -> None:
    """On Windows, the default is a loop that watches no descriptors."""
    reader, writer = pair
    piece = len(FRAME) // 3

    async def streams() -> None:
        async with (
            penstock.Reader(reader, frame_bytes=piece, queue_items=1) as frames,
            penstock.Writer(writer) as stream,
        ):
            ticket = stream.submit(FRAME)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ticket, 0.05)
            got = [bytes(await anext(frames)) for _ in range(2)]
            await ticket
            os.close(writer)
            got += [bytes(frame) async for frame in frames] if stream.close() is None else []
        assert b"".join(got) == FRAME

    async def videos() -> None:
        async with penstock.Encoder(tmp_path / "a.mkv", size=(16, 16), fps=10, codec="ffv1") as encoder:
            for value in range(5):
                await encoder.write(bytes([value]) * 768)
        async with penstock.Decoder(tmp_path / "a.mkv") as decoder:
            assert [int(frame[0, 0, 0]) async for frame in decoder] == [*range(5)]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(streams(), 30))
        runner.run(asyncio.wait_for(videos(), 60))


def test_many_tickets_are_awaited_at_once(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    frames = [noise(200_000, number) for number in range(50)]

    async def main() -> None:
        stream = penstock.Writer(writer)
        await asyncio.gather(*(stream.submit(frame) for frame in frames))
        stream.close()

    before = open_fds().keys()
    asyncio.run(asyncio.wait_for(main(), 30))
    assert eventually(lambda: open_fds().keys() <= before), "also those of the thread that has left"
    os.close(writer)
    assert result.result() == b"".join(frames)


@pytest.mark.linux("eventfd")
def test_all_awaits_of_a_loop_share_one_eventfd(pair: tuple[int, int]) -> None:
    reader, writer = pair

    def eventfds() -> int:
        return sum("eventfd" in target for target in open_fds().values())

    async def main() -> int:
        stream = penstock.Writer(writer)
        before = eventfds()
        waiting = [asyncio.ensure_future(stream.submit(FRAME)) for _ in range(20)]
        await asyncio.sleep(0)
        more = eventfds() - before
        ReaderThread(os.dup(reader))
        await asyncio.wait_for(asyncio.gather(*waiting), 30)
        for _ in range(20):
            await stream.submit(FRAME)
            more = max(more, eventfds() - before)
        stream.close()
        return more

    gc.collect()
    others = eventfds()  # of libraries that tests before have started, such as Ray
    assert asyncio.run(main()) == 2, "the loop's, and that of the writer's thread"
    # A loop may be in a cycle of references, also that of a test before.
    assert eventually(lambda: gc.collect() >= 0 and eventfds() <= others), "and it is closed with the loop"


def test_one_ticket_is_awaited_by_many_tasks(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def main() -> list[None]:
        ticket = _native._pipe(FRAME, writer)
        waiting = asyncio.gather(*(asyncio.wait_for(ticket, 30) for _ in range(10)))
        await asyncio.sleep(0.05)
        assert not ticket.done()
        ReaderThread(os.dup(reader))
        return await waiting

    assert asyncio.run(main()) == [None] * 10


def test_await_raises_the_same_error_as_wait(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def main() -> None:
        ticket = _native._pipe(FRAME, writer)
        asyncio.get_running_loop().call_later(0.05, os.close, reader)
        for _ in range(2):
            with pytest.raises(penstock.BrokenStreamError) as caught:
                await ticket
            assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (0, len(FRAME))
        with pytest.raises(penstock.BrokenStreamError):
            await _native._pipe(b"never", writer)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_cancelled_await_does_not_cancel_the_write(pair: tuple[int, int]) -> None:
    reader, writer = pair
    before = open_fds().keys()

    async def main() -> penstock.results.Ticket:
        ticket = _native._pipe(FRAME, writer)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ticket, 0.02)
        task = asyncio.ensure_future(ticket)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not ticket.done()
        return ticket

    ticket = asyncio.run(main())
    assert read_exactly(reader, len(FRAME)) == FRAME
    ticket.wait(10)
    assert eventually(lambda: open_fds().keys() <= before)


def test_second_event_loop_can_await_the_same_ticket(pair: tuple[int, int]) -> None:
    """The next loop may await the same ticket."""
    reader, writer = pair

    async def start() -> penstock.results.Ticket:
        ticket = _native._pipe(FRAME, writer)
        waiting = asyncio.ensure_future(ticket)
        await asyncio.sleep(0)
        assert not waiting.done()
        return ticket

    async def finish(ticket: penstock.results.Ticket) -> None:
        ReaderThread(os.dup(reader))
        await asyncio.wait_for(ticket, 30)

    asyncio.run(finish(asyncio.run(start())))


@pytest.mark.linux("modes that map or give away pages")
@pytest.mark.parametrize("mode", ["staged", "zero-copy"])
def test_asyncio_subprocess_pipe_receives_every_byte(mode: str) -> None:
    """Its descriptor does not block, which must cost no byte."""

    async def main() -> bytes:
        cat = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        reading = asyncio.create_task(cat.stdout.read())
        transport = cat.stdin.transport.get_extra_info("pipe")
        assert not os.get_blocking(transport.fileno())
        for _ in range(4):
            await _native._pipe(FRAME, transport, mode=mode)
        cat.stdin.close()
        got = await reading
        assert await cat.wait() == 0
        return got

    assert asyncio.run(asyncio.wait_for(main(), 60)) == FRAME * 4


def test_await_raises_without_a_running_loop(pair: tuple[int, int]) -> None:
    async def main(ticket: penstock.results.Ticket) -> None:
        await ticket

    coroutine = main(_native._pipe(FRAME, pair[1]))
    with pytest.raises(RuntimeError):
        coroutine.send(None)
    assert read_exactly(pair[0], len(FRAME)) == FRAME


def test_a_writer_closes_while_the_loop_goes_on(pair: tuple[int, int]) -> None:
    """The reader starts only when the block has ended, on the same loop."""
    reader, writer = pair

    async def main() -> bytes:
        reading = asyncio.create_task(asyncio.to_thread(read_exactly, reader, len(FRAME)))
        async with penstock.Writer(writer) as stream:
            assert isinstance(stream, penstock.Writer)
            stream.submit(FRAME)
        assert stream.closed
        assert stream.stats.bytes_delivered == len(FRAME) or not stream.stats.bytes_pending
        return await reading

    assert asyncio.run(asyncio.wait_for(main(), 30)) == FRAME


def test_a_writer_whose_reader_goes_raises_at_the_end_of_its_block(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def main() -> None:
        async with penstock.Writer(writer) as stream:
            stream.submit(FRAME)
            asyncio.get_running_loop().call_later(0.05, os.close, reader)

    with pytest.raises(penstock.BrokenStreamError):
        asyncio.run(asyncio.wait_for(main(), 30))


def test_a_block_that_raises_still_delivers(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader)

    async def main() -> None:
        async with penstock.Writer(writer) as stream:
            stream.submit(FRAME)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        asyncio.run(asyncio.wait_for(main(), 30))
    os.close(writer)
    assert result.result() == FRAME


def test_a_cancelled_close_aborts_the_writer(pair: tuple[int, int]) -> None:
    async def main() -> penstock.Writer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                async with penstock.Writer(pair[1]) as stream:
                    ticket = stream.submit(FRAME)
        assert isinstance(ticket.exception(10), penstock.ClosedError)
        return stream

    assert asyncio.run(asyncio.wait_for(main(), 30)).closed


def test_a_reader_closes_at_the_end_of_its_block(pair: tuple[int, int]) -> None:
    reader, writer = pair
    os.write(writer, b"0123456789")

    async def main() -> None:
        async with penstock.Reader(reader, frame_bytes=5) as frames:
            assert bytes(await anext(frames)) == b"01234"
        assert frames.closed

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.linux("Tee")
def test_a_tee_is_waited_for_at_the_end_of_its_block(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader)

    async def main() -> None:
        source, feed = os.pipe()
        async with penstock.Tee(source, writer, start=False) as tee:
            asyncio.get_running_loop().call_later(0.05, lambda: (os.write(feed, b"all"), os.close(feed)))
            os.close(writer)
        os.close(source)
        assert tee.done() and tee.report.bytes == 3

    asyncio.run(asyncio.wait_for(main(), 30))
    assert result.result() == b"all"


@pytest.mark.linux("Tee")
def test_a_tee_raises_the_failure_of_a_destination_and_is_cancelled_by_its_block(
    pair: tuple[int, int],
) -> None:
    reader, writer = pair

    async def fails() -> None:
        with penstock.pipes.make_pipe()[0] as source:
            async with penstock.Tee(source, writer):
                raise KeyError("mine")

    async def breaks() -> None:
        source, feed = penstock.pipes.make_pipe()
        os.close(reader)
        with source, feed:
            feed.write(b"lost")
            async with penstock.Tee(source, writer):
                pass

    with pytest.raises(KeyError):
        asyncio.run(asyncio.wait_for(fails(), 30))
    with pytest.raises(penstock.BrokenStreamError):
        asyncio.run(asyncio.wait_for(breaks(), 30))
