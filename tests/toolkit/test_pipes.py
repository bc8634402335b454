"""A pipe's ends as raw streams of Python, and what of the standard library works on them."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import run_script, succeeded
from support.streams import ReaderThread, noise, read_exactly

import penstock
from penstock.pipes import PipeReader, PipeWriter, make_pipe

DATA = noise(3 << 20)
"""More than a pipe holds, so that both ends must work at once."""


@pytest.fixture
def ends() -> Iterator[tuple[PipeReader, PipeWriter]]:
    reader, writer = make_pipe()
    with reader, writer:
        yield reader, writer


class Sending:
    """Runs a function with the writer on a thread, and closes the writer afterwards."""

    def __init__(self, writer: PipeWriter, send: object) -> None:
        def run() -> None:
            with writer:
                send(writer)

        self.thread = threading.Thread(target=run, daemon=True)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_bytes_pass_through_a_pipe(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    assert writer.write(b"frame one") == 9
    assert writer.write(memoryview(DATA)[:1000]) == 1000
    assert writer.write(b"") == 0
    assert reader.read(9) == b"frame one"
    buffer = bytearray(600)
    assert reader.readinto(buffer) == 600
    assert (bytes(buffer), reader.read(1000)) == (DATA[:600], DATA[600:1000])
    writer.close()
    assert reader.read(1) == reader.read() == reader.readall() == b""


@pytest.mark.linux("signals that end system calls")
def test_interrupted_write_is_still_whole() -> None:
    """The system calls it short, and most callers never look at the answer."""
    code = """
    from penstock.pipes import make_pipe
    reader, writer = make_pipe()
    calls = []
    signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    got = bytearray()
    def read():
        while chunk := reader.read(1 << 14):
            got.extend(chunk)
            time.sleep(0.002)
    thread = threading.Thread(target=read)
    thread.start()
    data = os.urandom(1 << 20)
    print(writer.write(data) == len(data), end=" ")
    signal.setitimer(signal.ITIMER_REAL, 0)
    writer.close()
    thread.join()
    reader.close()
    print(bytes(got) == data, bool(calls), end="")
    """
    assert succeeded(run_script(code)) == b"True True True"


@pytest.mark.linux("pipes that don't wait")
def test_arrays_of_any_shape_are_written(ends: tuple[PipeReader, PipeWriter]) -> None:
    """Also when the first write(2) was short, as it is at the end that does not block."""
    reader, writer = ends
    frame = memoryview(DATA).cast("B", (3, 1024, 1024))
    os.set_blocking(writer.fileno(), False)
    written = writer.write(frame)
    assert written == writer.capacity_bytes
    assert read_exactly(reader.fileno(), written) == DATA[:written]
    os.set_blocking(writer.fileno(), True)
    with Sending(writer, lambda writer: writer.write(frame)):
        assert reader.read() == DATA


@pytest.mark.linux("pipes that don't wait")
def test_nonblocking_ends_return_none_or_partial_counts(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    os.set_blocking(reader.fileno(), False)
    os.set_blocking(writer.fileno(), False)
    assert reader.read(10) is reader.readinto(bytearray(10)) is reader.read() is None
    assert writer.write(DATA) == writer.unread_bytes == writer.capacity_bytes
    assert writer.write(b"x") is None
    assert reader.read() == DATA[: writer.capacity_bytes]
    assert writer.write(b"x") == 1


@pytest.mark.linux("the size of a pipe")
def test_ends_report_capacity_and_unread_bytes(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    assert reader.capacity_bytes == writer.capacity_bytes >= 4096
    assert reader.unread_bytes == writer.unread_bytes == 0
    writer.write(b"12345")
    assert reader.unread_bytes == writer.unread_bytes == 5
    reader.read(2)
    assert reader.unread_bytes == writer.unread_bytes == 3


@pytest.mark.linux("the size of a pipe")
@pytest.mark.parametrize(("asked", "granted"), [(1, 4096), (4096, 4096), (200_000, 1 << 18)])
def test_the_capacity_is_rounded_up(asked: int, granted: int) -> None:
    reader, writer = make_pipe(asked)
    with reader, writer:
        assert reader.capacity_bytes == writer.capacity_bytes == granted


@pytest.mark.linux("the size of a pipe")
@pytest.mark.parametrize("asked", [1 << 30, 1 << 100])
def test_a_capacity_past_the_limit_steps_down(asked: int) -> None:
    reader, writer = make_pipe(asked)
    with reader, writer:
        assert 65536 <= writer.capacity_bytes < asked
    for wrong, error in ((0, ValueError), (-1, ValueError), (4096.0, TypeError)):
        with pytest.raises(error):
            make_pipe(wrong)  # type: ignore[arg-type]


@pytest.mark.linux("the size of a pipe")
def test_many_large_pipes_leave_room_for_other_pipes() -> None:
    """Past the user's limit every new pipe, whoever makes it, would have two pages. Root has no limit."""
    code = """
    import os
    from penstock._common import log  # not later: another user may not read it
    from penstock.pipes import make_pipe
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 65534)
    pipes = [make_pipe(1 << 20) for _ in range(100)]
    reader, writer = make_pipe()
    assert writer.capacity_bytes == 65536
    assert sum(writer.capacity_bytes for _, writer in pipes) <= 64 << 20
    """
    succeeded(run_script(code))


@pytest.mark.linux("the size of a pipe")
def test_requested_capacity_is_kept_by_a_relay(tmp_path: Path) -> None:
    """A relay grows the pipes that nobody has named a size of, and leaves those alone of which somebody has."""
    (tmp_path / "file").write_bytes(DATA)
    reader, writer = make_pipe(8192)
    with reader, writer, (tmp_path / "file").open("rb") as file:
        writer.read_from(file, 4096)
        assert writer.capacity_bytes == 8192
        assert reader.read(4096) == DATA[:4096]


def test_write_without_a_reader_raises_broken_stream_error(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    reader.close()
    with pytest.raises(penstock.BrokenStreamError) as caught:
        writer.write(b"nobody")
    assert isinstance(caught.value, BrokenPipeError)
    assert (caught.value.errno, caught.value.bytes_delivered, caught.value.bytes_lost) == (errno.EPIPE, 0, 6)
    assert not writer.closed


@pytest.mark.linux("what a pipe holds that was not read")
def test_reader_that_leaves_during_a_write_raises(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends

    def read_some() -> None:
        with reader:
            read_exactly(reader.fileno(), 100_000)

    thread = threading.Thread(target=read_some)
    thread.start()
    with pytest.raises(penstock.BrokenStreamError) as caught:
        writer.write(DATA)
    thread.join(30)
    assert (caught.value.bytes_delivered, caught.value.bytes_lost) == (100_000, len(DATA) - 100_000)


def test_a_reader_that_left_during_a_write_is_seen(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    thread = threading.Thread(target=lambda: (read_exactly(reader.fileno(), 100_000), reader.close()))
    thread.start()
    with pytest.raises(penstock.BrokenStreamError) as caught:
        writer.write(DATA)
    thread.join(30)
    assert caught.value.bytes_delivered + caught.value.bytes_lost == len(DATA)


def test_closed_ends_refuse_every_call(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    uses = [
        lambda: reader.read(1),
        lambda: reader.readinto(bytearray(1)),
        lambda: reader.capacity_bytes,
        lambda: reader.unread_bytes,
        lambda: reader.write_to(1),
        lambda: writer.write(b"x"),
        lambda: writer.read_from(0),
        writer.fileno,
        lambda: writer.__enter__(),
    ]
    for end in ends:
        assert not end.closed
        end.close()
        end.close()
        assert end.closed
    for use in uses:
        with pytest.raises(ValueError):
            use()


def test_each_end_only_reads_or_only_writes(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    assert (reader.readable(), reader.writable(), reader.seekable()) == (True, False, False)
    assert (writer.readable(), writer.writable(), writer.seekable()) == (False, True, False)
    for use in (lambda: reader.write(b"x"), lambda: writer.read(1)):
        with pytest.raises(io.UnsupportedOperation):
            use()
    assert isinstance(reader, io.RawIOBase)
    assert isinstance(writer, io.RawIOBase)


def test_closefd_false_leaves_the_descriptor_open(pair: tuple[int, int]) -> None:
    with PipeReader(pair[0], closefd=False) as reader, PipeWriter(pair[1], closefd=False) as writer:
        writer.write(b"x")
        assert reader.read(1) == b"x"
    os.write(pair[1], b"y")
    assert os.read(pair[0], 1) == b"y"


def test_no_other_program_inherits_an_end(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    assert not os.get_inheritable(reader.fileno())
    assert not os.get_inheritable(writer.fileno())
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(30)"], close_fds=False
    ) as child:
        writer.close()
        try:
            assert reader.read() == b"", "the child would keep it from its end of file"
        finally:
            child.kill()


def test_closed_ends_leave_no_descriptor_and_do_not_warn() -> None:
    code = """
    import gc, warnings
    warnings.simplefilter("error")
    from penstock.pipes import make_pipe
    from support.this_process import open_fds
    before = set(open_fds())
    for _ in range(500):
        reader, writer = make_pipe(8192)
        with writer:
            writer.write(b"x")
        with reader:
            assert reader.read() == b"x"
    del reader, writer
    gc.collect()
    assert set(open_fds()) == before
    """
    assert succeeded(run_script(code)) == b""


@pytest.mark.linux("signals that end system calls")
def test_ctrl_c_ends_a_read_and_a_write() -> None:
    code = """
    from penstock.pipes import make_pipe
    reader, writer = make_pipe()
    for use in (lambda: reader.read(1), lambda: writer.write(bytes(1 << 20))):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            use()
        except KeyboardInterrupt:
            print("interrupted", flush=True, end=" ")
    reader.close(), writer.close()
    """
    assert succeeded(run_script(code)) == b"interrupted interrupted "


# What the standard library does with them


@pytest.mark.parametrize("size", [1, len(DATA)])
def test_copyfileobj_copies_through_a_pipe(ends: tuple[PipeReader, PipeWriter], size: int) -> None:
    reader, writer = ends
    got = io.BytesIO()
    with Sending(writer, lambda writer: shutil.copyfileobj(io.BytesIO(DATA[:size]), writer)):
        shutil.copyfileobj(reader, got)
    assert got.getvalue() == DATA[:size]


def test_buffered_streams_wrap_the_ends(ends: tuple[PipeReader, PipeWriter]) -> None:
    def send(writer: PipeWriter) -> None:
        with io.BufferedWriter(writer, 5000) as buffered:
            for start in range(0, len(DATA), 777):
                buffered.write(DATA[start : start + 777])

    reader, writer = ends
    with Sending(writer, send), io.BufferedReader(reader) as buffered:
        assert buffered.peek(1)[:1] == DATA[:1]
        assert buffered.read(100_000) == DATA[:100_000]
        assert buffered.read() == DATA[100_000:]


def test_text_streams_wrap_the_ends(ends: tuple[PipeReader, PipeWriter]) -> None:
    lines = [f"Zeile {number}: größer\n" for number in range(20_000)]

    def send(writer: PipeWriter) -> None:
        with io.TextIOWrapper(io.BufferedWriter(writer), encoding="utf-8") as text:
            text.writelines(lines)

    reader, writer = ends
    with Sending(writer, send), io.TextIOWrapper(io.BufferedReader(reader), encoding="utf-8") as text:
        assert list(text) == lines


def test_ends_serve_as_standard_streams_of_a_program(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    shout = [sys.executable, "-S", "-c", "import sys; print(sys.stdin.read().upper(), end='')"]
    with subprocess.Popen(shout, stdin=reader, stdout=subprocess.PIPE) as program:
        reader.close()
        writer.write(b"shout")
        writer.close()
        assert program.stdout.read() == b"SHOUT"


# Relays


@pytest.mark.linux("splice")
def test_file_passes_through_a_pipe_into_a_file(ends: tuple[PipeReader, PipeWriter], tmp_path: Path) -> None:
    reader, writer = ends
    (tmp_path / "source").write_bytes(DATA)
    moved = []
    with (
        (tmp_path / "source").open("rb") as source,
        (tmp_path / "copy").open("wb") as copy,
        Sending(writer, lambda writer: moved.append(writer.read_from(source))),
    ):
        relayed = reader.write_to(copy)
    assert [relayed.bytes, relayed.source_ended, relayed.method] == [len(DATA), True, "splice"]
    assert moved[0].bytes == len(DATA)
    assert (tmp_path / "copy").read_bytes() == DATA


@pytest.mark.linux("sockets as descriptors")
def test_read_from_and_write_to_accept_count_and_options(
    ends: tuple[PipeReader, PipeWriter], tmp_path: Path
) -> None:
    reader, writer = ends
    (tmp_path / "source").write_bytes(DATA)
    with (tmp_path / "source").open("rb") as source:
        relayed = writer.read_from(source, 1000, offset=500, method="read-write")
    assert (relayed.bytes, relayed.method) == (1000, "read-write")
    here, there = socket.socketpair()
    with here, there:
        assert reader.write_to(here, 600).bytes == 600
        assert there.recv(1000) == DATA[500:1100]
        with pytest.raises(penstock.StalledError):
            reader.write_to(here, timeout=0.05)
        assert there.recv(1000) == DATA[1100:1500]


def test_pipe_is_relayed_to_another_pipe(ends: tuple[PipeReader, PipeWriter]) -> None:
    reader, writer = ends
    far_reader, far_writer = make_pipe()
    result = ReaderThread(os.dup(far_reader.fileno()))
    with far_reader, Sending(writer, lambda writer: writer.write(DATA)), far_writer:
        assert far_writer.read_from(reader).bytes == len(DATA)
    assert result.result() == DATA
