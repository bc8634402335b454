"""``penstock.relay``: from descriptor to descriptor, in all its ways to be called, and through every fault."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import run_script, succeeded, system_calls
from support.streams import ReaderThread, capacity_bytes, feed, noise, read_exactly
from support.this_process import open_fds, workers

import penstock
from penstock import BrokenStreamError, ClosedError, StalledError

DATA = noise(3_000_001)


SPLICE = "splice" if sys.platform == "linux" else "read-write"
"""How a relay moves what a pipe has."""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a file that holds ``DATA``."""
    path = tmp_path / "data"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def position(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_CUR)


class TestABlockingCall:
    def test_relay_moves_everything(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        reading = ReaderThread(reader)
        relayed = penstock.relay(file, writer)
        os.close(writer)
        assert reading.result() == DATA
        assert (relayed.bytes, relayed.method, relayed.source_ended) == (len(DATA), SPLICE, True)
        if SPLICE == "splice":
            assert relayed.reason == "there is a pipe at one end"
            assert repr(relayed).startswith("<RelayReport 3000001 bytes by splice")

    def test_relay_moves_count_bytes(self, file: int, tmp_path: Path) -> None:
        with (tmp_path / "copy").open("wb") as copy:
            relayed = penstock.relay(file, copy, 1000)
            assert (relayed.bytes, relayed.source_ended) == (1000, False)
            assert penstock.relay(file, copy, count=500).bytes == 500
            early = penstock.relay(file, copy, len(DATA))
            assert (early.bytes, early.source_ended) == (len(DATA) - 1500, True)
        assert (tmp_path / "copy").read_bytes() == DATA
        assert position(file) == len(DATA)

    def test_relay_moves_from_an_offset(self, file: int, tmp_path: Path) -> None:
        os.lseek(file, 7, os.SEEK_SET)
        with (tmp_path / "copy").open("wb") as copy:
            assert penstock.relay(file, copy, 100, offset=2_000_000).bytes == 100
        assert (tmp_path / "copy").read_bytes() == DATA[2_000_000:2_000_100]
        assert position(file) == 7

    def test_relay_grows_a_small_pipe(self, file: int, pair: tuple[int, int]) -> None:
        """Nobody reads before it has grown: a pipe that its reader keeps empty does not grow."""
        reader, writer = pair
        gate = threading.Event()
        reading = ReaderThread(reader, gate=gate)
        before = capacity_bytes(writer)
        ticket = penstock.pipes.start_relay(file, writer)
        grown = eventually(lambda: capacity_bytes(writer) > before)
        gate.set()
        assert ticket.wait().bytes == len(DATA)
        os.close(writer)
        assert reading.result() == DATA
        assert grown


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            ((-1 << 70,), {}, ValueError),
            ((), {"offset": 1 << 70}, ValueError),
            ((1.5,), {}, TypeError),
            ((), {"policy": penstock.cpu.ThreadPolicy(nice=1)}, TypeError),
        ],
    )
    def test_invalid_arguments_are_refused_and_nothing_moves(
        self, file: int, arguments: tuple[object, ...], options: dict[str, object], error: type[Exception]
    ) -> None:
        with tempfile.TemporaryFile() as copy:
            with pytest.raises(error):
                penstock.relay(file, copy, *arguments, **options)  # type: ignore[call-overload]
            assert copy.seek(0, os.SEEK_END) == 0
        assert position(file) == 0

    @pytest.mark.parametrize("count", [1 << 63, 1 << 64, 1 << 70])
    def test_count_beyond_any_stream_moves_everything(self, file: int, count: int) -> None:
        with tempfile.TemporaryFile() as copy:
            assert penstock.relay(file, copy, count).bytes == len(DATA)


class TestInterruption:
    @pytest.mark.linux("signals to programs")
    def test_relay_continues_after_a_signal_handler_returns(self, pair: tuple[int, int]) -> None:
        """A signal in the middle of a relay is handled there and then, and the relay goes on."""
        reader, writer = pair
        handled: list[int] = []
        before = signal.signal(signal.SIGALRM, lambda number, _frame: handled.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            threading.Timer(0.2, lambda: (os.write(writer, b"frame"), os.close(writer))).start()
            with tempfile.TemporaryFile() as copy:
                assert penstock.relay(reader, copy).bytes == 5
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert handled


class TestInTheBackground:
    def test_ticket_reports_progress_and_can_be_waited_for(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        source, producer = os.pipe()
        ticket = penstock.pipes.start_relay(source, writer)
        os.close(source)
        os.close(writer)
        os.write(producer, b"frame")
        assert read_exactly(reader, 5) == b"frame"
        assert eventually(lambda: ticket.report.bytes == 5)
        assert not ticket.done()
        with pytest.raises(StalledError) as caught:
            ticket.wait(0.02)
        assert caught.value.bytes_delivered == 5
        os.close(producer)
        relayed = ticket.wait(PATIENCE_S)
        assert (relayed.bytes, relayed.source_ended, ticket.done(), ticket.exception()) == (
            5,
            True,
            True,
            None,
        )
        assert relayed == ticket.report
        assert os.read(reader, 1) == b"", "its descriptors are closed"

    def test_ticket_can_be_cancelled(self, pair: tuple[int, int]) -> None:
        quiet, producer = os.pipe()
        ticket = penstock.pipes.start_relay(quiet, pair[1])
        ticket.cancel()
        with pytest.raises(ClosedError):
            ticket.wait(PATIENCE_S)
        assert isinstance(ticket.exception(), ClosedError)
        assert eventually(lambda: not workers())
        os.close(producer)
        os.close(quiet)

    def test_failure_is_raised_at_the_call_or_by_the_ticket(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        with pytest.raises(OSError):
            penstock.pipes.start_relay(writer, writer)
        os.close(reader)
        ticket = penstock.pipes.start_relay(file, writer)
        with pytest.raises(BrokenStreamError):
            ticket.wait(PATIENCE_S)

    def test_kept_ticket_holds_no_descriptor(self) -> None:
        with Path(os.devnull).open("wb") as null:
            before = open_fds()
            tickets = [penstock.pipes.start_relay(feed(b"frame"), null, 5) for _ in range(10)]
            for ticket in tickets:
                ticket.wait(PATIENCE_S)
            ours = [fd for fd in set(open_fds()) - set(before) if "eventfd" in open_fds()[fd]]
        assert not ours

    def test_relay_continues_after_its_ticket_is_dropped(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        penstock.pipes.start_relay(file, writer)
        os.close(writer)
        gc.collect()
        assert ReaderThread(os.dup(reader)).result() == DATA

    def test_relay_is_finished_before_the_program_ends(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(DATA)
        done = run_script(
            """
            penstock.pipes.start_relay(open(sys.argv[1], "rb", buffering=0), 1)
            """,
            tmp_path / "file",
        )
        assert succeeded(done) == DATA

    def test_stalled_relay_is_cut_off_at_exit(self) -> None:
        done = run_script(
            """
            import penstock._common.exits
            penstock._common.exits.STALL_S = 0.2
            quiet, kept_open = os.pipe()
            penstock.pipes.start_relay(quiet, 1)
            """
        )
        assert (done.returncode, done.stdout) == (0, b"")
        assert b"1 relays were cut off" in done.stderr


class TestInAsyncio:
    def test_many_relays_can_be_awaited_at_once(self) -> None:
        async def main() -> list[int]:
            with Path(os.devnull).open("wb") as null:
                tickets = [penstock.pipes.start_relay(feed(DATA[: 1000 * i]), null) for i in range(20)]
                return [(await ticket).bytes for ticket in tickets]

        assert asyncio.run(main()) == [1000 * i for i in range(20)]

    def test_relay_ends_with_the_task_that_awaits_it(self, pair: tuple[int, int]) -> None:
        quiet, producer = os.pipe()
        tickets = []

        async def main() -> None:
            ticket = penstock.pipes.start_relay(quiet, pair[1])
            tickets.append(ticket)
            await asyncio.wait_for(ticket, 0.05)

        before = set(open_fds()) | {str(quiet), str(producer)}
        with pytest.raises(TimeoutError):
            asyncio.run(main())
        assert isinstance(tickets[0].exception(PATIENCE_S), ClosedError)
        tickets.clear()
        gc.collect()
        assert eventually(lambda: set(open_fds()) <= before)
        os.close(quiet)
        os.close(producer)


def test_relay_gives_a_socket_all_that_it_has_room_for() -> None:
    [calls] = system_calls(
        """
        import socket, tempfile, threading
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
        file = tempfile.TemporaryFile()
        file.truncate(32 << 20)
        got = bytearray(1 << 20)
        def drain():
            while theirs.recv_into(got): pass
        thread = threading.Thread(target=drain)
        thread.start()
        os.getppid()
        penstock.relay(file.fileno(), ours.fileno())
        os.getppid()
        ours.shutdown(socket.SHUT_WR)
        thread.join()
        """
    )
    # 256 KiB in each would be 128 calls.
    assert 0 < calls.count("sendfile") < 64


def test_prepared_relay_moves_one_piece_after_the_other() -> None:
    (source, feeding), (draining, sink) = os.pipe(), os.pipe()
    os.write(feeding, b"onetwothree")
    with penstock.pipes.Relay(source, sink) as relay:
        for end in (source, sink):
            os.close(end)  # it has its own
        for piece in (b"one", b"two"):
            report = relay.move(3)
            assert (report.bytes, report.method, report.source_ended) == (3, SPLICE, False)
            assert os.read(draining, 100) == piece
        os.close(feeding)
        report = relay.move(100)
        assert (report.bytes, report.source_ended, os.read(draining, 100)) == (5, True, b"three")
    assert os.read(draining, 100) == b""
    with pytest.raises(ClosedError):
        relay.move(1)
    relay.close()
    os.close(draining)


def test_prepared_relay_begins_where_a_buffered_file_is_read(tmp_path: Path) -> None:
    path, copy = tmp_path / "data", tmp_path / "copy"
    path.write_bytes(bytes(range(200)))
    with path.open("rb") as source, copy.open("wb") as sink:
        assert source.read(10) == bytes(range(10))
        with penstock.pipes.Relay(source, sink) as relay:
            assert [relay.move(100).bytes for _ in range(3)] == [100, 90, 0]
        assert source.read(1) == bytes([10])
    assert copy.read_bytes() == bytes(range(10, 200))


def test_prepared_relay_goes_on_after_a_stall_with_the_counts_of_the_piece() -> None:
    (source, feeding), (draining, sink) = os.pipe(), os.pipe()
    with penstock.pipes.Relay(source, sink, timeout=0.05) as relay:
        os.write(feeding, bytes(5))
        assert relay.move(2).bytes == 2
        for delivered in (3, 0):
            with pytest.raises(StalledError) as raised:
                relay.move(10)
            assert (raised.value.bytes_delivered, raised.value.bytes_lost) == (delivered, 0)
        os.write(feeding, bytes(10))
        assert relay.move(10).bytes == 10
    for end in (source, feeding, draining, sink):
        os.close(end)


def test_a_piece_of_a_prepared_relay_takes_three_system_calls() -> None:
    calls, _ = system_calls(
        """
        (source, feeding), (draining, sink) = os.pipe(), os.pipe()
        relay = penstock.pipes.Relay(source, sink)
        os.write(feeding, bytes(100))
        relay.move(10)
        os.getppid()
        relay.move(50)
        os.getppid()
        relay.close()
        os.getppid()
        """
    )
    assert calls == ["rt_sigprocmask", "splice", "rt_sigprocmask"]
