"""``penstock.Tee``: one stream to many, each with a life of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import interrupted, run_script, succeeded
from support.streams import ReaderThread, noise
from support.this_process import workers

from penstock import BrokenStreamError, ClosedError, Tee

pytestmark = pytest.mark.linux("Tee")

DATA = noise(3_000_001)


class Source:
    """A pipe that is fed from a thread, or by hand."""

    def __init__(self, data: bytes | None = None) -> None:
        self.fd, self.writer = os.pipe()
        if data is not None:
            threading.Thread(target=self.feed, args=(data,), daemon=True).start()

    def feed(self, data: bytes) -> None:
        with os.fdopen(self.writer, "wb", buffering=0) as file, contextlib.suppress(BrokenPipeError):
            file.write(data)

    def write(self, data: bytes) -> None:
        os.write(self.writer, data)

    def close(self) -> None:
        os.close(self.writer)


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    yield
    assert eventually(lambda: not workers()), "a thread is left"


class Readers:
    """So many pipes with a reader each; the writing ends are closed when the tee has them."""

    def __init__(self, number: int) -> None:
        pairs = [os.pipe() for _ in range(number)]
        self.readers = [ReaderThread(reader, chunk_bytes=70_000 + i) for i, (reader, _) in enumerate(pairs)]
        self.writers = [writer for _, writer in pairs]

    def close(self) -> None:
        for writer in self.writers:
            os.close(writer)

    def results(self) -> list[bytes]:
        return [reader.result() for reader in self.readers]


@pytest.mark.parametrize("number", [1, 4])
def test_every_output_gets_everything(number: int) -> None:
    readers = Readers(number)
    tee = Tee(Source(DATA).fd, *readers.writers)
    readers.close()
    report = tee.wait(PATIENCE_S)
    assert readers.results() == [DATA] * number
    assert (report.bytes, report.source_ended, len(report.outputs)) == (len(DATA), True, number)
    for output, fd in zip(report.outputs, readers.writers, strict=True):
        assert (output.fd, output.ended, output.error) == (fd, "source-ended", None)
        assert (output.bytes_delivered, output.bytes_lost, output.start_bytes) == (len(DATA), 0, 0)
        assert (output.method, output.reason, output.when_full) == (
            "tee",
            "the output is a pipe",
            "block",
        )
    report.check()
    assert tee.done()
    assert "source-ended" in repr(report)


def test_tee_accepts_any_kind_of_source_and_output(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    (tmp_path / "appended").write_bytes(b"before ")
    ours, theirs = socket.socketpair()
    readers = Readers(1)
    received = ReaderThread(theirs.detach())
    with (
        (tmp_path / "source").open("rb", buffering=0) as source,
        (tmp_path / "copy").open("wb") as copy,
        (tmp_path / "appended").open("ab") as appended,
        Path("/dev/null").open("wb") as null,
        ours,
    ):
        report = Tee(source, copy, appended, ours, null, *readers.writers).wait(PATIENCE_S)
    readers.close()
    assert (tmp_path / "copy").read_bytes() == DATA
    assert (tmp_path / "appended").read_bytes() == b"before " + DATA
    assert received.result() == DATA
    assert readers.results() == [DATA]
    methods = [output.method for output in report.outputs]
    assert methods == ["tee, splice", "tee, read-write", "tee, splice", "tee, splice", "tee"]
    assert "append mode" in report.outputs[1].reason


class TestPolicies:
    def test_invalid_options_are_refused(self) -> None:
        source = Source()
        for wrong in (
            {"when_full": "hope"},
            {"stall_timeout": -1},
            {"when_full": "evict", "stall_timeout": 0},
        ):
            with pytest.raises(ValueError):
                Tee(source.fd, 1, **wrong)  # type: ignore[arg-type]
        source.close()
        os.close(source.fd)


class TestComingAndGoing:
    def test_outputs_that_ended_long_ago_are_forgotten_but_counted(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        source, readers = Source(), Readers(1)
        tee = Tee(source.fd, *readers.writers)
        first = None
        for batch in range(11):
            pipes = [os.pipe() for _ in range(100)]
            outputs = [tee.add(writer) for _, writer in pipes]
            first = first or outputs[0]
            failing = pipes[:3] if batch == 0 else []
            for reader, _ in failing:
                os.close(reader)
            for output in outputs[len(failing) :]:
                tee.remove(output)
            assert eventually(lambda outputs=outputs: all(output.ended for output in outputs))
            for reader, writer in pipes:
                os.close(writer)
                if (reader, writer) not in failing:
                    os.close(reader)
            if batch == 0:
                reader, writer = os.pipe()
                import fcntl

                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)  # so that the tee does not grow it
                os.write(writer, bytes(1 << 20))
                evicted = tee.add(writer, when_full="evict", stall_timeout=0.05)
                source.write(b"some ")
                assert eventually(lambda output=evicted: output.ended == "evicted")
                os.close(reader)
                os.close(writer)
        tee.add(null := os.open(os.devnull, os.O_WRONLY))
        os.close(null)
        report = tee.report
        assert len(report.outputs) == 1002
        assert report.outputs[0].fd == readers.writers[0]
        assert (report.forgotten, report.forgotten_failures, report.forgotten_bytes_lost) == (101, 4, 0)
        assert first is not None
        tee.remove(first)  # it has ended, and nothing is done
        source.write(b"data")
        source.close()
        readers.close()
        with pytest.raises(BrokenStreamError) as broken:
            tee.wait(PATIENCE_S).check()
        assert [note[:21] for note in broken.value.__notes__] == ["3 more outputs failed"]
        assert readers.results() == [b"some data"]
        assert caplog.messages == ["a tee evicted outputs that its report doesn't list: 1"]

    def test_remove_refuses_an_unknown_output(self) -> None:
        source, readers = Source(), Readers(1)
        tee = Tee(source.fd, *readers.writers)
        other = Tee(source.fd, start=False)
        stranger = other.add(1)
        for unknown in (stranger, 1):
            with pytest.raises(ValueError):
                tee.remove(unknown)
        source.close()
        readers.close()
        tee.wait(PATIENCE_S)
        assert readers.results() == [b""]


class TestEnds:
    def test_block_waits_for_the_tee(self) -> None:
        readers = Readers(1)
        with Tee(Source(DATA).fd, *readers.writers) as tee:
            readers.close()
        assert tee.done()
        assert readers.results() == [DATA]

    def test_block_raises_the_failure_of_an_output(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with pytest.raises(BrokenStreamError), Tee(Source(DATA).fd, writer):
            pass
        os.close(writer)

    def test_wrong_end_of_a_pipe_is_named(self) -> None:
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        for ends, word in (((writer, null), "src"), ((reader, null, reader), "output")):
            with pytest.raises(OSError, match=word) as caught:
                Tee(*ends)
            assert caught.value.errno == errno.EBADF
        with pytest.raises(TypeError):
            Tee(reader, io.BytesIO())

    def test_block_that_raises_cancels_the_tee(self) -> None:
        source, readers = Source(), Readers(1)
        with pytest.raises(KeyError), Tee(source.fd, *readers.writers) as tee:
            raise KeyError
        with pytest.raises(ClosedError):
            tee.wait(PATIENCE_S)
        readers.close()
        assert tee.report.outputs[0].ended == "cancelled"
        source.close()

    def test_failing_source_fails_every_output(self, tmp_path: Path) -> None:
        """A failure of the source is everybody's."""
        memory = os.open("/proc/self/mem", os.O_RDONLY)  # at address 0 there is nothing to read: EIO
        readers = Readers(1)
        tee = Tee(memory, *readers.writers)
        readers.close()
        with pytest.raises(OSError) as caught:
            tee.wait(PATIENCE_S)
        assert caught.value.errno == errno.EIO
        assert tee.report.outputs[0].ended == "source-failed"
        assert readers.results() == [b""]
        os.close(memory)

    def test_ctrl_c_ends_the_wait_and_not_the_tee(self) -> None:
        out = interrupted(
            """
            source, producer = os.pipe()
            reader, writer = os.pipe()
            tee = penstock.Tee(source, writer)
            try:
                print("waiting", flush=True)
                tee.wait()
            except KeyboardInterrupt:
                print("interrupted", tee.done(), flush=True)
                tee.cancel()
            """
        )
        assert out == b"interrupted False\n"

    def test_tee_is_finished_before_the_program_ends(self) -> None:
        done = run_script(
            """
            source, producer = os.pipe()
            os.write(producer, b"frame" * 1000); os.close(producer)
            penstock.Tee(source, 1)
            """
        )
        assert succeeded(done) == b"frame" * 1000

    @pytest.mark.linux("forks")
    def test_forked_children_do_not_hang_while_threads_wait_for_a_tee(self) -> None:
        """A child must not need a lock that one of those threads held."""
        done = run_script(
            """
            source, producer = os.pipe()
            tee = penstock.Tee(source, os.pipe()[1])

            def wait():
                while not tee.done():
                    try:
                        tee.wait(0)
                    except penstock.StalledError:
                        pass

            threads = [threading.Thread(target=wait, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    signal.alarm(10)
                    tee.done(); tee.policy; tee.report; tee.cancel()
                    for call in (tee.start, tee.wait, lambda: tee.add(2)):
                        try:
                            call()
                        except penstock.ClosedError:
                            continue
                        os._exit(1)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            os.close(producer)
            for thread in threads:
                thread.join()
            """
        )
        succeeded(done)


def test_tee_can_be_awaited() -> None:
    readers = Readers(2)

    async def main() -> int:
        tee = Tee(Source(DATA).fd, *readers.writers, start=False)
        report = await tee
        return report.bytes

    assert asyncio.run(main()) == len(DATA)
    readers.close()
    assert readers.results() == [DATA, DATA]


def test_tee_ends_with_the_task_that_awaits_it() -> None:
    source, readers = Source(), Readers(1)
    tee = Tee(source.fd, *readers.writers)

    async def main() -> None:
        await asyncio.wait_for(tee, 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    with pytest.raises(ClosedError):
        tee.wait(PATIENCE_S)
    source.close()
    readers.close()


class TestReadAhead:
    """Of a source that is no pipe, bytes are on their way before anybody can be sure to get them."""

    def test_file_position_is_set_back_to_the_delivered_bytes(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_bytes(DATA)
        reader, writer = os.pipe()
        with (tmp_path / "data").open("rb", buffering=0) as file:
            tee = Tee(file, writer)
            os.close(writer)
            assert eventually(lambda: tee.report.bytes > 0)
            os.close(reader)
            report = tee.wait(PATIENCE_S)
            assert file.tell() == report.bytes < len(DATA)
            assert report.bytes_lost == 0

    def test_socket_bytes_read_for_no_output_are_counted(self) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = os.pipe()
        with ours, theirs:
            threading.Thread(target=_send, args=(theirs, DATA), daemon=True).start()
            tee = Tee(ours, writer)
            os.close(writer)
            assert eventually(lambda: tee.report.bytes > 0)
            os.close(reader)
            report = tee.wait(PATIENCE_S)
            rest = b""
            while piece := ours.recv(1 << 20):
                rest += piece
        first = report.bytes + report.bytes_lost
        assert rest == DATA[first:]

    def test_tee_starts_at_the_position_of_the_program(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_bytes(DATA[:100_000])
        reader, writer = os.pipe()
        mine = ReaderThread(reader)
        with (tmp_path / "data").open("rb") as file:
            assert file.read(10) == DATA[:10]
            tee = Tee(file, writer)
            os.close(writer)
            assert tee.wait(PATIENCE_S).bytes == 99_990
        assert mine.result() == DATA[10:100_000]

    def test_a_pipe_that_python_has_read_ahead_of_is_refused(self) -> None:
        reader, writer = os.pipe()
        os.write(writer, b"head\nbody")
        with os.fdopen(reader, "rb") as source:
            assert source.readline() == b"head\n"
            with pytest.raises(ValueError):
                Tee(source, writer)
        os.close(writer)


def _send(to: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_an_output_that_was_removed_can_be_added_again(kind: str) -> None:
    source = Source()
    if kind == "pipe":
        reader, writer = os.pipe()
    else:
        reader, writer = (end.detach() for end in socket.socketpair())
    tee = Tee(source.fd, start=False)
    keeper_reader, keeper = os.pipe()
    tee.add(keeper)
    os.close(keeper)
    tee.start()
    outputs = []
    whole, mine = ReaderThread(keeper_reader), ReaderThread(reader)
    for number in range(200):
        outputs.append(tee.add(writer))
        source.write(number.to_bytes(4, "big") * 100)
        tee.remove(outputs[-1])
    source.close()
    os.close(writer)
    assert tee.wait(PATIENCE_S).source_ended
    os.close(source.fd)
    assert [output.ended for output in outputs] == ["removed"] * 200
    # Each part is the one that its report names.
    data = whole.result()
    parts = [(output.start_bytes, output.start_bytes + output.bytes_delivered) for output in outputs]
    assert mine.result() == b"".join(data[start:end] for start, end in parts)


def slow_socket() -> tuple[socket.socket, socket.socket]:
    """A pair of which the first takes half of `FIRST` at most before the second reads."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 12_000)  # the system doubles it
    return ours, theirs


FIRST, SECOND = DATA[:60_000], DATA[60_000:100_000]
"""Each fits into a pipe of the system's default size, also if none can be had that is larger."""


def test_second_removal_does_not_change_the_order() -> None:
    source, (ours, theirs) = Source(), slow_socket()
    tee = Tee(source.fd, start=False)
    first = tee.add(ours)
    tee.start()
    source.write(FIRST)
    assert eventually(lambda: tee.report.bytes == len(FIRST))
    tee.remove(first)  # with most of it still to be delivered
    second = tee.add(ours)
    tee.remove(first)
    source.write(SECOND)
    source.close()
    mine = ReaderThread(theirs.detach())
    tee.wait(PATIENCE_S)
    ours.close()
    assert mine.result() == FIRST + SECOND
    assert (first.bytes_delivered, second.bytes_delivered) == (len(FIRST), len(SECOND))
    os.close(source.fd)


def test_output_that_waits_for_a_predecessor_is_not_evicted() -> None:
    source, (ours, theirs) = Source(), slow_socket()
    tee = Tee(source.fd, ours)
    source.write(FIRST)
    assert eventually(lambda: tee.report.bytes == len(FIRST))
    tee.remove(ours)
    added = tee.add(ours, when_full="evict", stall_timeout=0.2)
    source.write(SECOND)
    time.sleep(1)  # five times as long as it may stand still itself
    assert added.ended is None
    source.close()
    mine = ReaderThread(theirs.detach())
    tee.wait(PATIENCE_S)
    ours.close()
    assert (mine.result(), added.ended) == (FIRST + SECOND, "source-ended")
    os.close(source.fd)
