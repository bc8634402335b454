"""``penstock.relay``: from descriptor to descriptor, in all its ways to be called, and through every fault."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import PATIENCE_S, eventually, examples
from support.processes import run_script, start_script, succeeded
from support.streams import ReaderThread, capacity_bytes, noise, read_exactly, unread_bytes
from support.this_process import are_asleep, open_fds, threads, workers

import penstock
from penstock import BrokenStreamError, ClosedError, StalledError

DATA = noise(3_000_001)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a file that holds ``DATA``."""
    path = tmp_path / "data"
    path.write_bytes(DATA)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def feed(data: bytes, *, chunk_bytes: int = 1 << 20, close: bool = True) -> int:
    """A pipe's reading end, which a thread feeds."""
    reader, writer = os.pipe()

    def write() -> None:
        with contextlib.suppress(BrokenPipeError):
            for start in range(0, len(data), chunk_bytes):
                os.write(writer, data[start : start + chunk_bytes])
        if close:
            os.close(writer)

    threading.Thread(target=write, daemon=True).start()
    return reader


def position(fd: int) -> int:
    return os.lseek(fd, 0, os.SEEK_CUR)


class TestABlockingCall:
    def test_moves_everything(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        reading = ReaderThread(reader)
        relayed = penstock.relay(file, writer)
        os.close(writer)
        assert reading.result() == DATA
        assert (relayed.bytes, relayed.method, relayed.source_ended) == (len(DATA), "splice", True)
        assert relayed.reason == "there is a pipe at one end"
        assert repr(relayed).startswith("<Relayed 3000001 bytes by splice")

    def test_moves_so_many(self, file: int, tmp_path: Path) -> None:
        with (tmp_path / "copy").open("wb") as copy:
            relayed = penstock.relay(file, copy, 1000)
            assert (relayed.bytes, relayed.source_ended) == (1000, False)
            assert penstock.relay(file, copy, count=500).bytes == 500
        assert (tmp_path / "copy").read_bytes() == DATA[:1500]
        assert position(file) == 1500

    def test_moves_from_an_offset(self, file: int, tmp_path: Path) -> None:
        os.lseek(file, 7, os.SEEK_SET)
        with (tmp_path / "copy").open("wb") as copy:
            assert penstock.relay(file, copy, 100, offset=2_000_000).bytes == 100
        assert (tmp_path / "copy").read_bytes() == DATA[2_000_000:2_000_100]
        assert position(file) == 7

    def test_by_read_and_write_alone(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        reading = ReaderThread(reader)
        relayed = penstock.relay(file, writer, method="read-write")
        os.close(writer)
        assert reading.result() == DATA
        assert (relayed.method, relayed.reason) == ("read-write", "asked for")

    def test_between_processes(self) -> None:
        """A producer's output to a consumer's input, as a shell's ``|`` would have it."""
        make = [sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 20000)"]
        count = [sys.executable, "-c", "import sys; print(len(sys.stdin.buffer.read()))"]
        with (
            subprocess.Popen(make, stdout=subprocess.PIPE) as producer,
            subprocess.Popen(count, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as consumer,
        ):
            assert producer.stdout and consumer.stdin and consumer.stdout
            assert penstock.relay(producer.stdout, consumer.stdin).bytes == 256 * 20000
            consumer.stdin.close()
            assert int(consumer.stdout.read()) == 256 * 20000

    def test_grows_a_pipe_that_is_in_the_way(self, file: int, pair: tuple[int, int]) -> None:
        """Nobody reads before it has grown: a pipe that its reader keeps empty does not grow."""
        reader, writer = pair
        gate = threading.Event()
        reading = ReaderThread(reader, gate=gate)
        before = capacity_bytes(writer)
        ticket = penstock.start_relay(file, writer)
        grown = eventually(lambda: capacity_bytes(writer) > before)
        gate.set()
        assert ticket.wait().bytes == len(DATA)
        os.close(writer)
        assert reading.result() == DATA
        assert grown

    def test_lets_other_threads_run(self, pair: tuple[int, int]) -> None:
        """The GIL is released: else the thread that feeds could not, and this would never end."""
        reader, writer = pair
        threading.Timer(0.05, os.write, (writer, b"frame")).start()
        with tempfile.TemporaryFile() as copy:
            assert penstock.relay(reader, copy, 5).bytes == 5


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "options", "error"),
        [
            ((-1,), {}, ValueError),
            ((-1 << 70,), {}, ValueError),
            ((), {"offset": 1 << 70}, ValueError),
            ((1.5,), {}, TypeError),
            ((), {"offset": -1}, ValueError),
            ((), {"timeout": -1.0}, ValueError),
            ((), {"method": "magic"}, ValueError),
            ((), {"policy": penstock.ThreadPolicy(nice=1)}, TypeError),
        ],
    )
    def test_that_mean_nothing(
        self, file: int, arguments: tuple[object, ...], options: dict[str, object], error: type[Exception]
    ) -> None:
        with tempfile.TemporaryFile() as copy:
            with pytest.raises(error):
                penstock.relay(file, copy, *arguments, **options)  # type: ignore[call-overload]
            assert copy.seek(0, os.SEEK_END) == 0
        assert position(file) == 0

    @pytest.mark.parametrize("count", [1 << 63, 1 << 64, 1 << 70])
    def test_that_no_stream_reaches(self, file: int, count: int) -> None:
        with tempfile.TemporaryFile() as copy:
            assert penstock.relay(file, copy, count).bytes == len(DATA)

    @pytest.mark.parametrize("bad", [-1, 987_654, None, "name", object()])
    def test_that_are_no_descriptors(self, file: int, bad: object) -> None:
        for ends in ((bad, file), (file, bad)):
            with pytest.raises((OSError, ValueError, TypeError)):
                penstock.relay(*ends)  # type: ignore[call-overload]

    def test_the_wrong_way_round(self, pair: tuple[int, int]) -> None:
        writer = pair[1]
        with pytest.raises(OSError) as caught:
            penstock.relay(writer, writer)
        assert caught.value.errno == errno.EBADF

    def test_an_offset_needs_a_file(self, pair: tuple[int, int]) -> None:
        with (
            tempfile.TemporaryFile() as copy,
            pytest.raises(ValueError, match="offset needs a source that is a file"),
        ):
            penstock.relay(pair[0], copy, offset=0)

    def test_a_directory(self, tmp_path: Path) -> None:
        folder = os.open(tmp_path, os.O_RDONLY)
        with tempfile.TemporaryFile() as copy, pytest.raises(IsADirectoryError):
            penstock.relay(folder, copy)
        os.close(folder)


class TestFaults:
    def test_a_source_that_ends_early(self) -> None:
        with tempfile.TemporaryFile() as copy:
            relayed = penstock.relay(feed(b"short"), copy, 1000)
        assert (relayed.bytes, relayed.source_ended) == (5, True)

    def test_a_reader_that_goes(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair

        def read_and_go() -> None:
            read_exactly(reader, 200_000)
            os.close(reader)

        threading.Thread(target=read_and_go).start()
        with pytest.raises(BrokenStreamError) as caught:
            penstock.relay(file, writer)
        assert caught.value.errno == errno.EPIPE
        assert caught.value.bytes_delivered == 200_000
        assert caught.value.bytes_delivered + caught.value.bytes_lost == position(file)

    def test_a_reader_that_goes_does_not_kill(self, tmp_path: Path) -> None:
        """Also where the program has SIGPIPE end it, as command-line tools do."""
        done = run_script(
            """
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            reader, writer = os.pipe()
            os.close(reader)
            for relay in (penstock.relay, lambda *ends: penstock.start_relay(*ends).wait()):
                try:
                    relay(os.open(sys.argv[1], os.O_RDONLY), writer)
                except penstock.BrokenStreamError:
                    print("broken", signal.sigpending())
            """,
            Path(__file__),
        )
        assert succeeded(done).split() == [b"broken", b"set()"] * 2

    @pytest.mark.parametrize("method", ["auto", "read-write"])
    def test_a_destination_that_stalls(self, file: int, pair: tuple[int, int], method: str) -> None:
        reader, writer = pair
        with pytest.raises(StalledError) as caught:
            penstock.relay(file, writer, timeout=0.05, method=method)  # type: ignore[call-overload]
        stalled = caught.value
        assert stalled.seconds >= 0.05
        assert 0 < stalled.bytes_delivered < len(DATA)
        assert stalled.bytes_pending == len(DATA) - stalled.bytes_delivered
        assert position(file) == stalled.bytes_delivered
        reading = ReaderThread(reader)
        penstock.relay(file, writer)
        os.close(writer)
        assert reading.result() == DATA

    def test_a_source_that_stalls(self, pair: tuple[int, int]) -> None:
        with tempfile.TemporaryFile() as copy, pytest.raises(StalledError) as caught:
            penstock.relay(pair[0], copy, timeout=0.05)
        assert (caught.value.bytes_delivered, caught.value.bytes_pending) == (0, 0)

    def test_slow_is_not_stalled(self, pair: tuple[int, int]) -> None:
        reader, writer = pair

        def write() -> None:
            for _ in range(6):
                time.sleep(0.1)
                os.write(writer, b"x")
            os.close(writer)

        threading.Thread(target=write).start()
        with tempfile.TemporaryFile() as copy:
            assert penstock.relay(reader, copy, timeout=0.5).bytes == 6

    def test_ends_that_do_not_block(self, pair: tuple[int, int]) -> None:
        """As asyncio has them: to be full or empty is no error."""
        reader, writer = pair
        source = feed(DATA, chunk_bytes=50_000)
        for fd in (source, writer):
            os.set_blocking(fd, False)
        reading = ReaderThread(reader)
        assert penstock.relay(source, writer).bytes == len(DATA)
        assert not os.get_blocking(source)
        os.close(writer)
        assert reading.result() == DATA

    def test_a_full_disk(self, file: int) -> None:
        with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError) as caught:
            penstock.relay(file, full)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.bytes_delivered == 0  # type: ignore[attr-defined]
        assert position(file) == 0

    def test_a_full_file_system(self) -> None:
        """What fits is there, what does not is still to be read from the source."""
        with tempfile.TemporaryDirectory() as folder:
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
            )
            if mounted.returncode != 0:
                pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()}")
            try:
                for source in (feed(DATA), os.open("/dev/zero", os.O_RDONLY)):
                    path = Path(folder) / "copy"
                    with path.open("wb", buffering=0) as copy, pytest.raises(OSError) as caught:
                        penstock.relay(source, copy)
                    assert caught.value.errno == errno.ENOSPC
                    assert caught.value.bytes_delivered == path.stat().st_size > 500_000  # type: ignore[attr-defined]
                    os.close(source)
                    path.unlink()
            finally:
                subprocess.run(["umount", folder], check=True)

    def test_a_destination_in_append_mode(self, file: int, tmp_path: Path) -> None:
        for source in (file, feed(DATA)):
            path = tmp_path / f"copy{source}"
            path.write_bytes(b"before ")
            with path.open("ab") as copy:
                relayed = penstock.relay(source, copy)
            assert path.read_bytes() == b"before " + DATA
            assert (relayed.method, relayed.bytes) == ("read-write", len(DATA))
            assert "append mode" in relayed.reason

    def test_onto_itself(self, tmp_path: Path, pair: tuple[int, int]) -> None:
        path = tmp_path / "data"
        path.write_bytes(b"frame")
        with path.open("r+b") as one, path.open("r+b") as other:
            for ends in ((one, one), (one, other)):
                with pytest.raises(ValueError, match="same file"):
                    penstock.relay(*ends)
        assert path.read_bytes() == b"frame"
        with pytest.raises(ValueError, match="same pipe"):
            penstock.relay(*pair)

    @pytest.mark.slow
    def test_more_than_four_gib(self, pair: tuple[int, int]) -> None:
        size = (5 << 30) + 4321
        with tempfile.TemporaryFile() as sparse, Path("/dev/null").open("wb") as null:
            sparse.truncate(size)
            drained = penstock.start_relay(pair[0], null)
            assert penstock.relay(sparse, pair[1]).bytes == size
            os.close(pair[1])
            assert drained.wait(PATIENCE_S).bytes == size
            assert penstock.relay(sparse, null, offset=0).bytes == size

    def test_a_descriptor_closed_by_another_thread(self, pair: tuple[int, int], tmp_path: Path) -> None:
        """The relay has its own: not a byte goes to whatever gets the number next."""
        reader, writer = pair
        source = feed(DATA, chunk_bytes=100_000)
        outcome: list[object] = []
        thread = threading.Thread(target=lambda: outcome.append(penstock.relay(source, writer)))
        thread.start()
        got = bytearray(read_exactly(reader, 100_000))  # it is under way
        os.close(source)
        os.close(writer)
        decoys = [os.open(tmp_path / f"decoy{i}", os.O_RDWR | os.O_CREAT) for i in range(2)]
        assert {source, writer} >= set(decoys)
        while chunk := os.read(reader, 1 << 20):
            got += chunk
        thread.join(PATIENCE_S)
        assert got == DATA
        assert [os.fstat(decoy).st_size for decoy in decoys] == [0, 0]
        assert [result.bytes for result in outcome] == [len(DATA)]  # type: ignore[attr-defined]
        for decoy in decoys:
            os.close(decoy)

    @pytest.mark.parametrize("times", [500, pytest.param(10_000, marks=pytest.mark.slow)])
    def test_many_in_a_row_leave_nothing(self, tmp_path: Path, times: int) -> None:
        path = tmp_path / "data"
        path.write_bytes(b"frame")
        ours, theirs = socket.socketpair()
        with ours, theirs, path.open("rb", buffering=0) as source, Path("/dev/null").open("wb") as null:
            fds, threads = open_fds(), workers()
            for number in range(times):
                penstock.relay(source, null, offset=0)
                if number % 10 == 0:
                    theirs.send(b"frame")
                    penstock.relay(ours, null, 5)
                if number % 50 == 0:
                    penstock.start_relay(source, null, offset=0).wait()
            assert eventually(lambda: workers() <= threads)
            assert open_fds() == fds


class TestInterruption:
    @pytest.mark.parametrize("stuck", ["source", "destination"])
    def test_by_ctrl_c(self, stuck: str) -> None:
        program = start_script(
            """
            reader, writer = os.pipe()
            quiet, kept_open = os.pipe()
            zero = os.open("/dev/zero", os.O_RDONLY)
            source, destination = (quiet, writer) if sys.argv[1] == "source" else (zero, writer)
            print("ready", flush=True)
            try:
                penstock.relay(source, destination)
            except KeyboardInterrupt as interruption:
                print(interruption.bytes_delivered, flush=True)
            """,
            stuck,
        )
        with program:
            assert program.stdout and program.stdout.readline() == b"ready\n"
            assert eventually(lambda: are_asleep(lambda: threads(program.pid)))
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=PATIENCE_S)
        assert err == b""
        assert (int(out) > 0) == (stuck == "destination")

    def test_by_a_handler_that_returns(self, pair: tuple[int, int]) -> None:
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
    def test_is_watched_and_waited_for(self, pair: tuple[int, int]) -> None:
        reader, writer = pair
        source, producer = os.pipe()
        ticket = penstock.start_relay(source, writer)
        os.close(source)
        os.close(writer)
        os.write(producer, b"frame")
        assert read_exactly(reader, 5) == b"frame"
        assert eventually(lambda: ticket.relayed.bytes == 5)
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
        assert relayed == ticket.relayed
        assert os.read(reader, 1) == b"", "its descriptors are closed"

    def test_is_cancelled(self, pair: tuple[int, int]) -> None:
        quiet, producer = os.pipe()
        ticket = penstock.start_relay(quiet, pair[1])
        ticket.cancel()
        with pytest.raises(ClosedError):
            ticket.wait(PATIENCE_S)
        assert isinstance(ticket.exception(), ClosedError)
        assert eventually(lambda: not workers())
        os.close(producer)
        os.close(quiet)

    def test_is_cancelled_while_it_runs_flat_out(self) -> None:
        with Path("/dev/zero").open("rb", buffering=0) as zero, Path("/dev/null").open("wb") as null:
            ticket = penstock.start_relay(zero, null)
            assert eventually(lambda: ticket.relayed.bytes > 10_000_000)
            ticket.cancel()
            assert isinstance(ticket.exception(PATIENCE_S), ClosedError)

    def test_fails_at_the_call_or_in_the_ticket(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        with pytest.raises(OSError):
            penstock.start_relay(writer, writer)
        os.close(reader)
        ticket = penstock.start_relay(file, writer)
        with pytest.raises(BrokenStreamError):
            ticket.wait(PATIENCE_S)

    def test_has_a_policy(self, pair: tuple[int, int]) -> None:
        quiet, producer = os.pipe()
        before = workers()
        ticket = penstock.start_relay(quiet, pair[1], policy=penstock.ThreadPolicy(nice=17))
        assert eventually(lambda: workers() - before)
        (thread,) = workers() - before
        nice = lambda: int(Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()[16])  # noqa: E731
        assert eventually(lambda: nice() == 17)
        os.close(producer)
        ticket.wait(PATIENCE_S)
        os.close(quiet)

    def test_leaves_no_descriptor_to_those_who_keep_its_ticket(self) -> None:
        with Path("/dev/null").open("wb") as null:
            before = open_fds()
            tickets = [penstock.start_relay(feed(b"frame"), null, 5) for _ in range(10)]
            for ticket in tickets:
                ticket.wait(PATIENCE_S)
            ours = [fd for fd in set(open_fds()) - set(before) if "eventfd" in open_fds()[fd]]
        assert not ours

    def test_outlives_its_ticket(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair
        penstock.start_relay(file, writer)
        os.close(writer)
        gc.collect()
        assert ReaderThread(os.dup(reader)).result() == DATA

    def test_is_finished_before_the_program_ends(self, file: int) -> None:
        done = run_script(
            """
            reader, writer = os.pipe()
            penstock.start_relay(int(sys.argv[1]), 1)
            """,
            file,
            pass_fds=(file,),
        )
        assert succeeded(done) == DATA

    def test_is_cut_off_at_the_programs_end_if_it_stands_still(self) -> None:
        done = run_script(
            """
            import penstock._exit
            penstock._exit.STALL_S = 0.2
            quiet, kept_open = os.pipe()
            penstock.start_relay(quiet, 1)
            """
        )
        assert (done.returncode, done.stdout) == (0, b"")
        assert b"1 relays were cut off" in done.stderr

    def test_is_the_parents_after_a_fork(self) -> None:
        """The child neither keeps the reader from its end of file nor waits for a thread that it does not have."""
        done = run_script(
            """
            source, producer = os.pipe()
            reader, writer = os.pipe()
            ticket = penstock.start_relay(source, writer)
            os.close(source); os.close(writer)
            told, tell = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(producer); os.close(tell)
                try:
                    ticket.wait()
                except penstock.ClosedError as error:
                    print(error, flush=True)
                ticket.cancel()
                os.read(told, 1)  # it lives on, with whatever it has inherited
                os._exit(0)
            os.write(producer, b"frame"); os.close(producer)
            assert os.read(reader, 10) == b"frame" and os.read(reader, 10) == b""
            os.write(tell, b"!")  # the end of file came while the child lived
            print(ticket.wait().bytes, os.waitpid(child, 0)[1])
            """
        )
        assert succeeded(done).decode().splitlines() == ["it belongs to the parent process", "5 0"]


class TestInAsyncio:
    def test_is_awaited(self, file: int, pair: tuple[int, int]) -> None:
        reader, writer = pair

        async def main() -> int:
            reading = ReaderThread(reader)
            relayed = await penstock.start_relay(file, writer)
            os.close(writer)
            assert await asyncio.to_thread(reading.result) == DATA
            return relayed.bytes

        assert asyncio.run(main()) == len(DATA)

    def test_many_at_once(self) -> None:
        async def main() -> list[int]:
            with Path("/dev/null").open("wb") as null:
                tickets = [penstock.start_relay(feed(DATA[: 1000 * i]), null) for i in range(20)]
                return [(await ticket).bytes for ticket in tickets]

        assert asyncio.run(main()) == [1000 * i for i in range(20)]

    def test_fails_as_anywhere(self, file: int, pair: tuple[int, int]) -> None:
        os.close(pair[0])

        async def main() -> None:
            await penstock.start_relay(file, pair[1])

        with pytest.raises(BrokenStreamError):
            asyncio.run(main())

    def test_ends_with_the_task_that_awaits(self, pair: tuple[int, int]) -> None:
        quiet, producer = os.pipe()
        tickets = []

        async def main() -> None:
            ticket = penstock.start_relay(quiet, pair[1])
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


KINDS = ["file", "pipe", "socket"]


@examples(300)
@given(
    kinds=st.tuples(st.sampled_from(KINDS), st.sampled_from([*KINDS, "appended file"])),
    size=st.integers(0, 300_000),
    count=st.none() | st.integers(0, 400_000),
    chunks=st.tuples(st.integers(500, 100_000), st.integers(500, 100_000)),
    wait=st.booleans(),
    seed=st.integers(0, 1 << 16),
)
def test_every_case_is_as_a_plain_loop_would_have_it(
    kinds: tuple[str, str],
    size: int,
    count: int | None,
    chunks: tuple[int, int],
    wait: bool,
    seed: int,
) -> None:
    data = random.Random(seed).randbytes(size)
    results = []
    for mover in (
        lambda src, dst: moved_by_penstock(src, dst, count, wait),
        lambda src, dst: by_hand(src, dst, count),
    ):
        with contextlib.ExitStack() as stack:
            source = open_source(stack, kinds[0], data, chunks[0])
            destination, arrived = open_destination(stack, kinds[1], chunks[1])
            moved = mover(source, destination)
            rest = read_exactly(source, len(data) + 1)
            os.close(destination)
            results.append((moved, arrived(), rest))
    assert results[0] == results[1]
    assert results[0][1] == data[:count]


def moved_by_penstock(source: int, destination: int, count: int | None, wait: bool) -> int:
    if wait:
        return penstock.relay(source, destination, count).bytes
    return penstock.start_relay(source, destination, count).wait(PATIENCE_S).bytes


def by_hand(source: int, destination: int, count: int | None) -> int:
    moved = 0
    while (count is None or moved < count) and (
        piece := os.read(source, 65536 if count is None else min(65536, count - moved))
    ):
        view = memoryview(piece)
        while view:
            view = view[os.write(destination, view) :]
        moved += len(piece)
    return moved


def open_source(stack: contextlib.ExitStack, kind: str, data: bytes, chunk_bytes: int) -> int:
    if kind == "file":
        fd = os.memfd_create("source")
        os.pwrite(fd, data, 0)
        stack.callback(os.close, fd)
        return fd
    if kind == "pipe":
        fd = feed(data, chunk_bytes=chunk_bytes)
    else:
        ours, theirs = socket.socketpair()
        fd = ours.detach()

        def send() -> None:
            with theirs, contextlib.suppress(OSError):
                theirs.sendall(data)

        threading.Thread(target=send).start()
    stack.callback(os.close, fd)
    return fd


def open_destination(
    stack: contextlib.ExitStack, kind: str, chunk_bytes: int
) -> tuple[int, Callable[[], bytes]]:
    if kind in ("file", "appended file"):
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "copy"
        appends = os.O_APPEND if kind == "appended file" else 0
        return os.open(path, os.O_WRONLY | os.O_CREAT | appends), path.read_bytes
    if kind == "pipe":
        reader, writer = os.pipe()
    else:
        ours, theirs = socket.socketpair()
        reader, writer = theirs.detach(), ours.detach()
    reading = ReaderThread(reader, chunk_bytes=chunk_bytes)
    return writer, reading.result


def test_unread_bytes_of_a_broken_pipe_are_not_delivered(file: int, pair: tuple[int, int]) -> None:
    """What was in the pipe when its reader went is lost, and said to be."""
    reader, writer = pair
    penstock.relay(file, writer, 50_000)
    held = unread_bytes(reader)
    os.close(reader)
    with pytest.raises(BrokenStreamError) as caught:
        penstock.relay(file, writer)
    assert held == 50_000
    assert caught.value.bytes_delivered == 0
