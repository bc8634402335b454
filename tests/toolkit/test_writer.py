"""`Writer`, `Ticket`, statistics, policies, limits and timeouts, and the functions that need no writer."""

from __future__ import annotations

import errno
import gc
import math
import mmap
import os
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
from support.cases import MODES, eventually
from support.streams import PIPE_BYTES, ReaderThread, capacity_bytes, noise, read_exactly, unread_bytes
from support.this_process import are_asleep, workers

from penstock import BrokenStreamError, ClosedError, StalledError, Writer, _native
from penstock.cpu import ThreadPolicy

FRAME = noise(3 << 20)
"""Larger than any pipe that we get: it stays in flight until somebody reads."""


@pytest.mark.parametrize("mode", MODES)
def test_smoke(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    with Writer(writer, mode=mode) as stream:
        tickets = [stream.submit(noise(200_000, number)) for number in range(20)]
        stream.flush()
        assert all(ticket.done() for ticket in tickets)
        assert not stream.closed
    assert stream.closed
    os.close(writer)
    assert result.result() == b"".join(noise(200_000, number) for number in range(20))


def test_reader_sees_end_of_file_at_close(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with Writer(writer) as stream:
        os.close(writer)
        stream.submit(b"whole")
        assert read_exactly(reader, 5) == b"whole"
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    assert os.read(reader, 1) == b""


@pytest.mark.parametrize("mode", MODES)
def test_a_writer_that_is_dropped_still_delivers_and_then_closes(pair: tuple[int, int], mode: str) -> None:
    reader, writer = pair
    Writer(writer, mode=mode).submit(bytearray(FRAME))
    gc.collect()
    os.close(writer)
    assert ReaderThread(reader).result() == FRAME


def test_closed_writer_refuses_writes(pair: tuple[int, int]) -> None:
    stream = Writer(pair[1])
    stream.close()
    stream.close()
    stream.abort()
    for call in (lambda: stream.submit(b"late"), stream.flush):
        with pytest.raises(ClosedError):
            call()
    with pytest.raises(ValueError):  # as with any closed file of Python's
        stream.submit(b"late")
    with stream:
        pass
    assert stream.closed
    assert stream.stats.bytes_accepted == 0


@pytest.mark.parametrize("mode", MODES)
def test_close_raises_if_the_writer_is_aborted_during_the_close(pair: tuple[int, int], mode: str) -> None:
    stream = Writer(pair[1], mode=mode)
    stream.submit(FRAME)
    threading.Timer(0.2, stream.abort).start()  # after the first of the steps in which close waits
    with pytest.raises(ClosedError):
        stream.close()
    stream.close()


def test_a_block_that_raises_still_delivers(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader)
    with pytest.raises(KeyError), Writer(writer) as stream:
        stream.submit(FRAME)
        raise KeyError("mine")
    assert stream.closed
    os.close(writer)
    assert result.result() == FRAME


def test_block_that_raises_notes_the_bytes_lost_by_a_gone_reader(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with pytest.raises(KeyError) as caught, Writer(writer) as stream:
        stream.submit(FRAME)
        os.close(reader)
        raise KeyError("mine")
    [note] = caught.value.__notes__
    assert "lost" in note


def test_stream_failure_is_not_reported_twice(pair: tuple[int, int]) -> None:
    reader, writer = pair
    os.close(reader)
    with pytest.raises(BrokenStreamError) as caught, Writer(writer) as stream:
        stream.submit(FRAME)
        stream.flush()
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.slow
def test_a_block_that_raises_does_not_wait_for_ever(pair: tuple[int, int]) -> None:
    """The reader reads nothing: after 5 s it is given up, and the block's own exception says so."""
    reader, writer = pair
    with pytest.raises(KeyError) as caught, Writer(writer) as stream:
        ticket = stream.submit(FRAME)
        raise KeyError("mine")
    [note] = caught.value.__notes__
    assert "bytes" in note
    assert stream.closed
    assert isinstance(ticket.exception(10), ClosedError)
    got = unread_bytes(reader)
    assert stream.stats.bytes_delivered == 0
    assert read_exactly(reader, got) == FRAME[:got]


class TestTickets:
    def test_ticket_of_a_pending_write_times_out(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        ticket = Writer(writer).submit(FRAME)
        assert ticket.nbytes == len(FRAME)
        assert not ticket.done()
        assert "pending" in repr(ticket)
        for wait in (ticket.wait, ticket.exception):
            with pytest.raises(StalledError) as stalled:
                wait(0.05)
            assert stalled.value.seconds >= 0.05
            assert stalled.value.bytes_pending == len(FRAME)
            with pytest.raises(TimeoutError):
                wait(timeout=0)
        assert read_exactly(reader, len(FRAME)) == FRAME

    def test_ticket_of_a_finished_write_is_done(self, pair: tuple[int, int]) -> None:
        ticket = _native._pipe(b"small", pair[1])
        assert ticket.wait() is None
        assert ticket.wait(0) is None
        assert ticket.exception() is None
        assert ticket.done()
        assert "done" in repr(ticket)

    def test_ticket_of_a_failed_write_raises_with_exact_counts(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        os.close(reader)
        ticket = Writer(writer).submit(FRAME)
        failure = ticket.exception(10)
        assert isinstance(failure, BrokenStreamError)
        assert (failure.bytes_delivered, failure.bytes_lost) == (0, len(FRAME))
        assert ticket.done()
        assert "failed" in repr(ticket)
        for _ in range(2):
            with pytest.raises(BrokenStreamError):
                ticket.wait()

    def test_ticket_can_be_waited_for_by_many_threads(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        ticket = _native._pipe(FRAME, writer)
        ended = []
        threads = [threading.Thread(target=lambda: ended.append(ticket.wait(30))) for _ in range(8)]
        for thread in threads:
            thread.start()
        assert read_exactly(reader, len(FRAME)) == FRAME
        for thread in threads:
            thread.join(30)
        assert ended == [None] * 8


class TestTimeouts:
    @pytest.mark.parametrize("long", [math.inf, 1e300, 10**9, None])
    def test_timeout_longer_than_any_clock_is_accepted(
        self, pair: tuple[int, int], long: float | None
    ) -> None:
        stream = Writer(pair[1])
        ticket = stream.submit(b"x", timeout=long)
        ticket.wait(long)
        stream.flush(long)
        _native._sync(None, long)
        _native._close(long)
        stream.close(long)

    def test_timeout_of_flush_or_close_changes_nothing(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        stream = Writer(writer)
        stream.submit(FRAME)
        for call in (stream.flush, stream.close):
            with pytest.raises(StalledError) as stalled:
                call(0.05)
            assert 0 < stalled.value.bytes_pending <= len(FRAME)
            assert stalled.value.seconds >= 0.05
            with pytest.raises(ValueError):
                call(-1)
        assert not stream.closed
        stream.submit(b"behind")
        os.close(writer)
        result = ReaderThread(reader)
        stream.close(10)
        assert result.result() == FRAME + b"behind"

    def test_timeout_of_sync_and_module_close_loses_nothing(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        _native._pipe(FRAME, writer)
        for call in (_native._sync, _native._close):
            with pytest.raises(StalledError):
                call(timeout=0.05)
        assert read_exactly(reader, len(FRAME)) == FRAME
        _native._sync(timeout=10)

    def test_timeout_at_a_full_queue_takes_nothing(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        stream = Writer(writer, queue_items=2)
        kept = [stream.submit(FRAME), stream.submit(FRAME)]
        refused = bytearray(b"refused")
        with pytest.raises(StalledError) as stalled:
            stream.submit(refused, timeout=0.05)
        refused.clear()  # nobody holds it
        assert stalled.value.bytes_pending == 2 * len(FRAME)
        with pytest.raises(StalledError):
            stream.submit(b"refused", timeout=0)
        assert stream.stats.items_accepted == 2
        os.close(writer)
        result = ReaderThread(reader)
        for ticket in kept:
            ticket.wait(10)
        stream.close()
        assert result.result() == FRAME * 2


class TestLimits:
    @pytest.mark.parametrize("size", [2**31, 2**32, 2**63, 2**64 - 1])
    def test_huge_limits_are_accepted(self, pair: tuple[int, int], size: int) -> None:
        reader, writer = pair
        with Writer(writer, queue_bytes=size, queue_items=size, capacity_bytes=size) as stream:
            stream.submit(b"fits")
            assert stream.stats.capacity_bytes == capacity_bytes(writer)
        assert read_exactly(reader, 4) == b"fits"

    def test_pipe_without_a_writer_waits_at_its_default_limits(self, pair: tuple[int, int]) -> None:
        """64 writes, or 128 MiB, as documented: the 65th waits, here for a reader."""
        reader, writer = pair
        accepted = []

        def produce() -> None:
            for _ in range(70):
                _native._pipe(FRAME, writer)
                accepted.append(None)

        thread = threading.Thread(target=produce)
        thread.start()
        assert eventually(lambda: accepted and are_asleep(lambda: {thread.native_id}))
        assert len(accepted) == (128 << 20) // len(FRAME)
        assert read_exactly(reader, 70 * len(FRAME)) == FRAME * 70
        thread.join(30)
        assert len(accepted) == 70

    def test_chosen_capacity_is_kept(self, pair: tuple[int, int]) -> None:
        with Writer(pair[1], capacity_bytes=PIPE_BYTES):
            _native._pipe(b"another way in", pair[1]).wait(10)
            assert capacity_bytes(pair[1]) == PIPE_BYTES


class TestAbort:
    def test_abort_frees_the_buffers(self, pair: tuple[int, int]) -> None:
        stream = Writer(pair[1])
        frames = [bytearray(FRAME) for _ in range(3)]
        tickets = [stream.submit(frame) for frame in frames]
        stream.abort()
        for ticket in tickets:
            assert ticket.exception(10) is not None
        for frame in frames:
            frame.clear()

    def test_abort_wakes_waiting_callers(self, pair: tuple[int, int]) -> None:
        stream = Writer(pair[1])
        ticket = stream.submit(FRAME)
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.append(ticket.exception(30)))
        thread.start()
        stream.abort()
        thread.join(30)
        assert [type(outcome) for outcome in outcomes] == [ClosedError]

    def test_abort_refuses_callers_that_wait_for_room(self) -> None:
        """Else a whole frame would follow one that was cut, which no reader could tell."""
        outcomes: list[object] = []

        def write(stream: Writer) -> None:
            try:
                outcomes.append(stream.submit(b"behind the cut"))
            except ClosedError as error:
                outcomes.append(error)

        got = []
        for number in range(10):
            reader, writer = os.pipe()
            stream = Writer(writer, queue_items=1)
            stream.submit(FRAME)
            thread = threading.Thread(target=write, args=(stream,))
            time.sleep(0.005 * number)  # at different moments of our own naps
            thread.start()
            time.sleep(0.01)
            stream.abort()
            thread.join(10)
            os.close(writer)
            got.append(ReaderThread(reader).result())
        assert all(FRAME.startswith(cut) for cut in got)
        assert [type(outcome) for outcome in outcomes] == [ClosedError] * 10


class TestStats:
    def test_stats_of_an_unused_writer_are_zero(self, pair: tuple[int, int]) -> None:
        stats = Writer(pair[1]).stats
        assert stats.transport is None
        assert stats.reason
        assert stats.policy is None
        assert stats.bytes_by_transport == {"write": 0, "staged": 0, "zero-copy": 0}
        counts = [stats.bytes_accepted, stats.bytes_delivered, stats.bytes_pending, stats.items_accepted]
        assert [*counts, stats.items_pending] == [0] * 5

    @pytest.mark.linux("what a pipe holds that was not read")
    @pytest.mark.parametrize("mode", ["write", "staged", "zero-copy"])
    def test_stats_count_the_bytes_that_the_reader_has_taken(self, pair: tuple[int, int], mode: str) -> None:
        reader, writer = pair
        aligned = mmap.mmap(-1, len(FRAME))  # so that zero-copy fills each page of the pipe
        aligned[:] = FRAME
        stream = Writer(writer, mode=mode)
        stream.submit(aligned)
        assert eventually(lambda: unread_bytes(reader) == capacity_bytes(reader))
        assert stream.stats.bytes_delivered == 0
        assert stream.stats.bytes_pending == stream.stats.bytes_accepted == len(FRAME)
        assert read_exactly(reader, 1 << 20) == FRAME[: 1 << 20]
        # The worker counts what it has written a moment after the pipe has it.
        assert eventually(lambda: stream.stats.bytes_delivered == 1 << 20)
        assert read_exactly(reader, 2 << 20) == FRAME[1 << 20 :]
        stream.close(10)
        stats = stream.stats
        assert (stats.bytes_delivered, stats.bytes_pending) == (len(FRAME), 0)
        assert (stats.items_accepted, stats.items_pending) == (1, 0)
        assert stats.transport == mode
        assert stats.reason == "asked for"
        assert stats.bytes_by_transport[mode] == sum(stats.bytes_by_transport.values()) == len(FRAME)
        assert stats.output_wait_s > 0

    @pytest.mark.linux("what a pipe holds that was not read")
    @pytest.mark.parametrize("mode", ["write", "zero-copy"])
    def test_stats_never_count_unread_bytes_as_delivered(self, pair: tuple[int, int], mode: str) -> None:
        reader, writer = pair
        stream, got = Writer(writer, mode=mode), 0
        data = bytes(16 << 20)
        stream.submit(data)
        while got < len(data):
            got += len(os.read(reader, 1 << 17))
            for _ in range(8):  # while the worker fills what was emptied
                assert stream.stats.bytes_delivered <= got
        stream.close(10)

    @pytest.mark.linux("what a pipe holds that was not read")
    def test_nothing_is_pending_after_a_flush(self, pair: tuple[int, int]) -> None:
        stream = Writer(pair[1], mode="write")
        stream.submit(bytes(1000))
        stream.flush(10)
        stats = stream.stats
        assert (stats.bytes_accepted, stats.bytes_delivered, stats.bytes_pending) == (1000, 0, 0)
        assert stats.items_pending == 0

    def test_stats_measure_how_long_callers_waited(self, pair: tuple[int, int]) -> None:
        stream = Writer(pair[1], queue_items=1)
        stream.submit(FRAME)
        with pytest.raises(StalledError):
            stream.submit(FRAME, timeout=0.1)
        assert stream.stats.caller_wait_s > 0
        stream.abort()

    REASONS = (
        ("auto", False, 1 << 20, None, "staged", "reader is not known"),
        ("auto", True, 1000, None, "write", "small"),
        ("staged", False, 1 << 20, PIPE_BYTES, "write", "too small"),
        ("zero-copy", False, 1000, None, "zero-copy", "asked"),
    )

    @pytest.mark.linux("pages that pipes take")
    @pytest.mark.parametrize(("mode", "reader_copies", "size", "capacity", "transport", "reason"), REASONS)
    def test_stats_name_the_transport_and_the_reason(
        self,
        pair: tuple[int, int],
        mode: str,
        reader_copies: bool,
        size: int,
        capacity: int | None,
        transport: str,
        reason: str,
    ) -> None:
        huge_pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
        if transport == "staged" and "[never]" in huge_pages.read_text():
            pytest.skip("this kernel gives no huge pages, without which `staged` is `write`")
        reader, writer = pair
        result = ReaderThread(reader)
        with Writer(writer, mode=mode, reader_copies=reader_copies, capacity_bytes=capacity) as stream:
            stream.submit(FRAME[:size]).wait(10)
            assert stream.stats.transport == transport
            assert reason in stream.stats.reason
            assert transport in repr(stream.stats)
        os.close(writer)
        assert result.result() == FRAME[:size]

    @pytest.mark.linux("files in memory")
    def test_memory_past_the_end_of_its_file_raises_efault(self, pair: tuple[int, int]) -> None:
        """A mapping past the end of its file is an error of that stream."""
        fd = os.memfd_create("short")
        os.ftruncate(fd, 1 << 20)
        area = mmap.mmap(fd, 1 << 20)
        os.ftruncate(fd, 0)
        failure = Writer(pair[1], mode="write").submit(area).exception(10)
        assert isinstance(failure, OSError)
        assert (failure.errno, failure.bytes_lost) == (errno.EFAULT, 1 << 20)
        os.close(fd)


class TestSync:
    def test_sync_reports_every_failure(self) -> None:
        pipes = [os.pipe() for _ in range(3)]
        for reader, writer in pipes:
            os.close(reader)
            _native._pipe(FRAME, writer)
        with pytest.raises(BrokenStreamError) as caught:
            _native._sync(timeout=10)
        assert sum("another stream failed as well" in note for note in caught.value.__notes__) == 2
        _native._sync(timeout=10)
        for _, writer in pipes:
            os.close(writer)

    def test_sync_waits_only_for_writes_queued_by_pipe(self, pair: tuple[int, int]) -> None:
        stream = Writer(pair[1])
        stream.submit(FRAME)
        _native._sync(timeout=0.5)
        stream.abort()

    def test_sync_of_everything_ignores_later_writes(self, pair: tuple[int, int]) -> None:
        """Another thread goes on piping meanwhile: that must not keep us for ever."""
        reader, writer = pair
        stop = threading.Event()

        def go_on() -> None:
            while not stop.is_set():
                _native._pipe(FRAME, writer)

        def read() -> None:
            while os.read(reader, 1 << 20):
                pass

        threads = [threading.Thread(target=go_on), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                _native._sync(timeout=30)
        finally:
            stop.set()
            threads[0].join(30)
            os.close(writer)
            threads[1].join(30)

    def test_close_ends_workers_and_pipe_works_again(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        before = workers()
        for _ in range(3):
            _native._pipe(b"fr", writer)
            _native._pipe(b"ame", writer)  # after a first write none stays
            assert eventually(lambda: workers() - before)  # a thread has its name a moment after its start
            _native._close(timeout=10)
            assert eventually(lambda: not workers() - before)
        assert read_exactly(reader, 15) == b"frame" * 3

    def test_module_close_leaves_open_writers_alone(self, pair: tuple[int, int]) -> None:
        with Writer(pair[1]) as stream:
            stream.submit(b"one ")
            _native._close(timeout=10)
            stream.submit(b"two")
        assert read_exactly(pair[0], 7) == b"one two"


def test_idle_workers_end_and_start_again(pair: tuple[int, int]) -> None:
    reader, writer = pair
    stream = Writer(writer, policy=ThreadPolicy(priority="background"))
    before = workers()
    for _ in range(2):
        stream.submit(b"frame").wait(10)
        assert eventually(lambda: workers() - before)
        assert stream.stats.policy.priority == "background"
        assert eventually(lambda: not workers() - before)
    assert read_exactly(reader, 10) == b"frame" * 2


def test_buffer_is_released_at_the_next_call(pair: tuple[int, int]) -> None:
    """Whoever keeps no ticket and never syncs holds no more frames than the last few."""

    class Frame(np.ndarray):
        pass

    alive = []
    result = ReaderThread(pair[0])
    for number in range(200):
        frame = np.full(200_000, number, np.uint8).view(Frame)
        alive.append(weakref.ref(frame))
        _native._pipe(frame, pair[1])
        del frame
    _native._sync(timeout=10)
    assert [reference() for reference in alive] == [None] * 200
    os.close(pair[1])
    assert len(result.result()) == 200 * 200_000
