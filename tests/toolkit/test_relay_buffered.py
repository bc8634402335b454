"""``relay`` from and to Python's own streams: what was read ahead or held back is neither lost nor doubled."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import examples
from support.streams import CAT, ReaderThread, from_process, from_socket, noise, read_exactly, unread_bytes
from support.this_process import open_fds

import penstock
from penstock import BrokenStreamError, StalledError
from penstock._platform import descriptors

DATA = noise(3 << 20)
"""More than any pipe holds."""

SOME = DATA[:300_000]
"""More than any buffer of Python's and any new pipe holds."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the data."""
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


def relayed(src: Any, *arguments: Any, **options: Any) -> tuple[Any, bytes]:
    """What a relay into a pipe that is read says, and what came out of the pipe."""
    reader, writer = os.pipe()
    drain = ReaderThread(reader)
    try:
        said = penstock.relay(src, writer, *arguments, **options)
    finally:
        os.close(writer)
    return said, drain.result()


class TestFile:
    """Files have positions: the stream's own is where the relay begins, and follows it."""

    def test_smoke(self, path: Path) -> None:
        with path.open("rb") as src:
            assert src.read(10) == DATA[:10]
            said, got = relayed(src)
            assert (said.bytes, said.source_ended) == (len(DATA) - 10, True)
            assert got == DATA[10:]
            assert src.tell() == len(DATA)
            assert src.read() == b""

    def test_bytes_held_back_by_a_file_are_flushed_before_a_relay(self, path: Path) -> None:
        with path.open("r+b") as src:
            src.write(b"new")
            assert relayed(src, 4)[1] == DATA[3:7]
            src.seek(0)
            src.write(b"NEW")
            src.seek(0)
            assert relayed(src, 4)[1] == b"NEW" + DATA[3:4]

    @pytest.mark.parametrize(
        ("relay", "offset"),
        [(penstock.relay, 100), (penstock.pipes.start_relay, 100), (penstock.pipes.start_relay, None)],
    )
    def test_offset_or_background_relay_keeps_the_file_position(
        self, path: Path, relay: Callable[..., Any], offset: int | None
    ) -> None:
        with path.open("rb") as src, (path.parent / "out").open("wb") as dst:
            src.read(10)
            moved = relay(src, dst, 1000, offset=offset)
            assert (moved.wait() if relay is penstock.pipes.start_relay else moved).bytes == 1000
            begin = 10 if offset is None else offset
            assert (path.parent / "out").read_bytes() == DATA[begin : begin + 1000]
            assert src.tell() == 10
            assert src.read() == DATA[10:]

    @pytest.mark.parametrize("make", [tempfile.NamedTemporaryFile, tempfile.TemporaryFile])
    def test_temporary_files_are_relayed(self, make: Callable[[], Any]) -> None:
        with make() as src:
            src.write(DATA)
            src.seek(0)
            src.read(10)
            assert relayed(src)[1] == DATA[10:]
            assert src.tell() == len(DATA)
            src.seek(20)
            with make() as dst:
                dst.write(b"head")
                assert penstock.relay(src, dst, 5).bytes == 5
                dst.seek(0)
                assert dst.read() == b"head" + DATA[20:25]

    def test_appended_bytes_are_moved_by_the_next_relay(self, path: Path) -> None:
        with path.open("rb") as src:
            relayed(src)
            with path.open("ab") as appending:
                appending.write(b"more")
            assert relayed(src)[1] == b"more"

    @pytest.mark.linux("what a pipe holds that was not read")
    def test_file_continues_with_the_first_undelivered_byte_after_a_stall(
        self, path: Path, pair: tuple[int, int]
    ) -> None:
        reader, writer = pair
        with path.open("rb") as src:
            src.read(10)
            with pytest.raises(StalledError) as stalled:
                penstock.relay(src, writer, timeout=0.05)
            delivered = stalled.value.bytes_delivered
            assert delivered == unread_bytes(reader) > 0
            assert src.tell() == 10 + delivered
            assert read_exactly(reader, delivered) + src.read() == DATA[10:]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"count": -1},
            {"offset": -1},
            {"timeout": -1},
            {"method": "magic"},
        ],
    )
    def test_a_wrong_argument_moves_nothing(
        self, path: Path, pair: tuple[int, int], wrong: dict[str, Any]
    ) -> None:
        with path.open("rb") as src:
            src.read(10)
            with pytest.raises(ValueError, match=next(iter(wrong))):
                penstock.relay(src, pair[1], **wrong)
            assert src.tell() == 10
        assert unread_bytes(pair[0]) == 0


@contextlib.contextmanager
def from_pipe(data: bytes, buffering: int = -1) -> Iterator[io.BufferedReader]:
    """A pipe that is fed by a thread and ends with the data."""
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb", buffering=0) as fed, contextlib.suppress(BrokenPipeError):
            view = memoryview(data)
            while view:
                view = view[fed.write(view) :]

    feeder = threading.Thread(target=feed)
    feeder.start()
    with os.fdopen(reader, "rb", buffering=buffering) as src:
        yield src
    feeder.join()


every_kind = pytest.mark.parametrize("open_stream", [from_pipe, from_process, from_socket])
Open = Callable[[bytes], contextlib.AbstractContextManager[Any]]


@pytest.fixture
def source() -> Iterator[tuple[io.BufferedReader, int]]:
    """A buffered pipe of 1 MiB, and its other end, which stays open."""
    reader, writer = os.pipe()
    descriptors.grow_pipe(writer, 1 << 20)
    with os.fdopen(reader, "rb", buffering=1 << 20) as src:
        yield src, writer
        os.close(writer)


class TestStream:
    """Pipes and sockets: the bytes that were read ahead go first."""

    @every_kind
    @pytest.mark.parametrize("count", [0, 1, 1000, 200_000, 10**6, 10**7])
    def test_stream_continues_after_the_last_relayed_byte(self, open_stream: Open, count: int) -> None:
        with open_stream(DATA) as src:
            src.read(10)
            said, got = relayed(src, count)
            assert got == DATA[10 : 10 + count]
            assert (said.bytes, said.source_ended) == (len(got), count > len(DATA))
            assert src.read() == DATA[10 + len(got) :]

    def test_bytes_read_ahead_are_sent_without_waiting_for_more(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        src, writer = source
        os.write(writer, b"line\nquestion")
        assert src.readline() == b"line\n"

        def answer() -> None:
            assert os.read(pair[0], 100) == b"question"
            os.write(writer, b"answer")

        partner = threading.Thread(target=answer)
        partner.start()
        assert penstock.relay(src, pair[1], len(b"questionanswer")).bytes == 14
        partner.join()
        assert os.read(pair[0], 100) == b"answer"

    def test_nonblocking_source_is_relayed(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        src, writer = source
        os.set_blocking(src.fileno(), False)
        os.write(writer, b"0123")
        src.read(1)
        threading.Timer(0.05, os.write, (writer, b"4567")).start()
        assert penstock.relay(src, pair[1], 7).bytes == 7
        assert os.read(pair[0], 100) == b"1234567"

    def test_source_that_stalls_after_the_bytes_read_ahead_raises(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        src, writer = source
        os.write(writer, b"0123456789")
        src.read(1)
        os.write(writer, b"next")
        with pytest.raises(StalledError) as stalled:
            penstock.relay(src, pair[1], timeout=0.05)
        assert stalled.value.bytes_delivered == 13
        assert os.read(pair[0], 100) == b"123456789next"
        os.write(writer, b"last")
        assert src.read(4) == b"last"

    @pytest.mark.linux("sockets as descriptors")
    def test_stalled_destination_leaves_the_rest_in_the_stream(
        self, source: tuple[io.BufferedReader, int], tmp_path: Path
    ) -> None:
        src, writer = source
        os.write(writer, SOME)
        src.read(1)
        # A socket cannot grow, as a pipe can: it takes less than what was read ahead.
        near, far = socket.socketpair()
        with near, far:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            with pytest.raises(StalledError) as stalled:
                penstock.relay(src, near, timeout=0.05)
            delivered = stalled.value.bytes_delivered
            assert 0 < delivered < len(SOME) - 1
            got = far.recv(delivered, socket.MSG_WAITALL)
            assert got + src.read(len(SOME) - 1 - delivered) == SOME[1:]

    def test_broken_destination_takes_nothing_from_the_stream(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        src, writer = source
        os.write(writer, b"0123456789")
        src.read(1)
        os.close(pair[0])
        with pytest.raises(BrokenStreamError) as broken:
            penstock.relay(src, pair[1])
        assert broken.value.bytes_delivered == 0
        assert src.read(9) == b"123456789"

    def test_background_relay_of_a_stream_that_read_ahead_is_refused(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        """So it is with an offset."""
        src, writer = source
        os.write(writer, b"0123")
        src.read(1)
        with pytest.raises(ValueError):
            penstock.pipes.start_relay(src, pair[1])
        with pytest.raises(ValueError):
            penstock.relay(src, pair[1], offset=0)
        assert penstock.relay(src, pair[1], 3).bytes == 3

    def test_relays_of_a_stream_leave_no_descriptor(
        self, source: tuple[io.BufferedReader, int], pair: tuple[int, int]
    ) -> None:
        src, writer = source
        penstock.relay(src, pair[1], 0)  # whatever is kept for the next relay
        before = open_fds()
        for _ in range(3):
            os.write(writer, b"0123")
            src.read(1)
            penstock.relay(src, pair[1], 3)
            with pytest.raises(StalledError):
                penstock.relay(src, pair[1], timeout=0.01)
        os.write(writer, b"0123")
        src.read(1)
        os.close(pair[0])
        with pytest.raises(BrokenStreamError):
            penstock.relay(src, pair[1])
        assert open_fds().items() <= before.items()
        assert "readinto" not in vars(src.raw)

    def test_custom_raw_stream_is_relayed(self, pair: tuple[int, int]) -> None:
        class Raw(io.RawIOBase):
            """Without a dictionary, as a class of an extension module."""

            __slots__ = ("fd",)

            def __init__(self, fd: int) -> None:
                self.fd = fd

            def readable(self) -> bool:
                return True

            def fileno(self) -> int:
                return self.fd

            def readinto(self, buffer: Any) -> int:
                data = os.read(self.fd, len(buffer))
                buffer[: len(data)] = data
                return len(data)

        reader, writer = os.pipe()
        os.write(writer, b"0123456789")
        src = io.BufferedReader(Raw(reader))
        src.read(1)
        os.write(writer, b"next")
        os.close(writer)
        assert penstock.relay(src, pair[1]).bytes == 13
        assert os.read(pair[0], 100) == b"123456789next"
        os.close(reader)


@examples(200)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["read", "peek", "relay", "read1"]),
            st.sampled_from([0, 1, 7, 8, 9, 16, 500, 5000, 70_000]),
        ),
        max_size=12,
    ),
    buffering=st.sampled_from([8, 16, 1000, 8192, 100_000]),
    kind=st.sampled_from(["file", "pipe"]),
)
def test_any_mixture_of_reads_and_relays_gives_every_byte_once(
    steps: list[tuple[str, int]], buffering: int, kind: str
) -> None:
    def open_file(data: bytes, buffering: int) -> Any:
        file = tempfile.TemporaryFile("r+b", buffering=buffering)  # noqa: SIM115 - the caller closes it
        file.write(data)
        file.seek(0)
        return file

    got = bytearray()
    with (open_file if kind == "file" else from_pipe)(SOME, buffering) as src:
        for action, nbytes in steps:
            if action == "relay":
                said, moved = relayed(src, nbytes)
                assert said.bytes == len(moved) == min(nbytes, len(SOME) - len(got))
                got += moved
            elif action == "peek":
                assert SOME.startswith(bytes(got) + src.peek(nbytes))
            else:
                got += getattr(src, action)(nbytes)
        rest = relayed(src)[1]
    assert bytes(got) + rest == SOME


class TestRefused:
    """Where a descriptor carries other bytes than its object, moving them would be silent corruption."""

    @pytest.mark.parametrize("dst", [io.BytesIO(), io.StringIO()])
    def test_memory_stream_is_refused_as_a_destination(self, path: Path, dst: Any) -> None:
        with path.open("rb") as src, pytest.raises(TypeError):
            penstock.relay(src, dst)

    def test_http_client_response_is_refused_as_a_source(self, pair: tuple[int, int]) -> None:
        near, far = socket.socketpair()
        with near, far:
            far.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nplain\r\n0\r\n\r\n")
            with http.client.HTTPResponse(near) as src:
                src.begin()
                with pytest.raises(TypeError):
                    penstock.relay(src, pair[1])
                assert src.read() == b"plain"


class TestDestination:
    """What a stream has held back goes first, and what it is given later goes after."""

    @pytest.mark.parametrize(("mode", "text"), [("wb", b"%d"), ("w", "%d"), ("w+b", b"%d")])
    def test_writes_and_relays_keep_the_order_of_the_program(
        self, path: Path, tmp_path: Path, mode: str, text: Any
    ) -> None:
        with path.open("rb") as src, (tmp_path / "out").open(mode) as dst:
            for number in range(3):
                dst.write(text % number)
                penstock.relay(src, dst, 2)
            dst.write(text % 3)
        expected = b"0" + DATA[:2] + b"1" + DATA[2:4] + b"2" + DATA[4:6] + b"3"
        assert (tmp_path / "out").read_bytes() == expected

    def test_destination_that_read_ahead_is_written_at_its_position(self, path: Path, tmp_path: Path) -> None:
        (tmp_path / "out").write_bytes(b"0123456789")
        with path.open("rb") as src, (tmp_path / "out").open("r+b") as dst:
            assert dst.read(3) == b"012"
            penstock.relay(src, dst, 4)
            assert dst.read(1) == b"7"
        assert (tmp_path / "out").read_bytes() == b"012" + DATA[:4] + b"789"

    def test_standard_input_of_a_process_receives_writes_and_relays_in_order(self, path: Path) -> None:
        with (
            path.open("rb") as src,
            subprocess.Popen(CAT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            output = ReaderThread(os.dup(process.stdout.fileno()))
            process.stdin.write(b"head")
            assert penstock.relay(src, process.stdin).bytes == len(DATA)
            process.stdin.close()
            assert output.result() == b"head" + DATA


class TestUnbuffered:
    """Descriptors and what leads straight to them."""

    def test_relay_moves_the_position_of_a_raw_file(self, path: Path) -> None:
        with path.open("rb", buffering=0) as src:
            src.seek(5)
            assert relayed(src, 10)[1] == DATA[5:15]
            assert src.tell() == 15

    @pytest.mark.linux("sockets as descriptors")
    def test_sockets_are_relayed(self) -> None:
        near, far = socket.socketpair()
        with near, far:
            far.sendall(b"data")
            assert relayed(near, 4)[1] == b"data"
            far.sendall(b"more")
            with near.makefile("rb", buffering=0) as src:
                assert relayed(src, 4)[1] == b"more"
