"""What goes wrong while frames are read: whole ones first, then the reason; nothing hangs, nobody else is harmed."""

from __future__ import annotations

import errno
import os
import socket
import struct
import textwrap
import threading
from pathlib import Path

import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import interrupted, run_script, succeeded
from support.streams import tcp_pair
from support.this_process import workers

import penstock

WAITS = {
    "read": lambda reader: reader.read(),
    "next": next,
    "readinto": lambda reader: reader.readinto(bytearray(64)),
    "latest": lambda reader: reader.latest(),
}


@pytest.mark.linux("folders as descriptors")
def test_unreadable_descriptor_is_refused_at_the_call(pair: tuple[int, int], tmp_path: Path) -> None:
    reader, writer = pair
    folder = os.open(tmp_path, os.O_RDONLY)
    closed = os.dup(reader)
    os.close(closed)
    for fd, number in [(writer, errno.EBADF), (closed, errno.EBADF), (folder, errno.EISDIR)]:
        with pytest.raises(OSError) as refused:
            penstock.Reader(fd, frame_bytes=4)
        assert refused.value.errno == number
    os.close(folder)
    with pytest.raises(OSError) as refused:
        penstock.Reader(reader, frame_bytes=1 << 60)
    assert refused.value.errno == errno.ENOMEM
    assert eventually(lambda: not workers()), "who is refused leaves no thread"


@pytest.mark.linux("sockets as descriptors")
def test_reset_raises_after_the_whole_frames() -> None:
    ours, theirs = tcp_pair()
    with ours, penstock.Reader(ours, frame_bytes=10) as stream:
        theirs.sendall(bytes(25))
        assert eventually(lambda: stream.stats.bytes_read == 25)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        assert [stream.read(PATIENCE_S).index for _ in range(2)] == [0, 1]
        for wait in WAITS.values():
            with pytest.raises(ConnectionResetError) as reset:
                wait(stream)
            assert reset.value.errno == errno.ECONNRESET


def test_torn_frame_raises_at_every_call(pair: tuple[int, int]) -> None:
    reader, writer = pair
    os.write(writer, b"wholehal")
    os.write(writer, b"f")
    os.close(writer)
    with penstock.Reader(reader, frame_bytes=4) as stream:
        assert [bytes(stream.read()), bytes(stream.read())] == [b"whol", b"ehal"]
        for wait in WAITS.values():
            with pytest.raises(penstock.TruncatedStreamError) as torn:
                wait(stream)
            assert isinstance(torn.value, EOFError)
            assert isinstance(torn.value, penstock.PenstockError)
            assert (torn.value.frames, torn.value.bytes_over, torn.value.frame_bytes) == (2, 1, 4)
        rest = stream.take_rest()
        assert rest is not None
        assert (bytes(rest), rest.index) == (b"f", 2)
        assert stream.take_rest() is None


def test_take_rest_returns_none_before_the_end_or_after_whole_frames(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with penstock.Reader(reader, frame_bytes=4) as stream:
        os.write(writer, b"whole")
        assert bytes(stream.read()) == b"whol"
        assert stream.take_rest() is None
        os.write(writer, b"hal")
        os.close(writer)
        assert bytes(stream.read()) == b"ehal"
        assert (stream.read(), stream.take_rest()) == (None, None)


@pytest.mark.parametrize("wait", WAITS)
def test_closed_reader_raises(pair: tuple[int, int], wait: str) -> None:
    os.write(pair[1], b"whole")
    stream = penstock.Reader(pair[0], frame_bytes=4)
    stream.close()
    stream.close()
    with pytest.raises(penstock.ClosedError):
        WAITS[wait](stream)


@pytest.mark.parametrize("wait", WAITS)
def test_close_wakes_a_waiting_thread(pair: tuple[int, int], wait: str) -> None:
    reader, writer = pair
    stream = penstock.Reader(reader, frame_bytes=4)
    os.close(reader)
    os.write(writer, b"ha")
    raised = []

    def waits() -> None:
        try:
            WAITS[wait](stream)
        except penstock.ClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    assert eventually(lambda: stream.stats.bytes_read == 2)
    stream.close()
    thread.join(PATIENCE_S)
    assert len(raised) == 1
    assert eventually(lambda: not workers())
    with pytest.raises(OSError):  # on Windows, EINVAL
        os.write(writer, b"nobody")


def test_a_timeout_says_what_is_missing_and_loses_nothing(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with penstock.Reader(reader, frame_bytes=8) as stream:
        os.write(writer, b"piece")
        assert eventually(lambda: stream.stats.bytes_read == 5)
        with pytest.raises(penstock.StalledError) as stalled:
            stream.read(timeout=0.12)
        assert stalled.value.bytes_pending == 3
        assert stalled.value.seconds >= 0.12
        buffer = bytearray(8)
        with pytest.raises(penstock.StalledError):
            stream.readinto(buffer, timeout=0)
        os.write(writer, b"ful")
        assert stream.readinto(buffer) == 8
        assert buffer == b"pieceful"


@pytest.mark.parametrize("wait", WAITS)
def test_other_threads_run_during_a_wait(pair: tuple[int, int], wait: str) -> None:
    reader, writer = pair
    with penstock.Reader(reader, frame_bytes=4) as stream:
        waiter = threading.Thread(target=WAITS[wait], args=(stream,))
        waiter.start()
        counted = 0
        while counted < 100_000:  # for ever, or as long as nobody writes, if the waiter kept the interpreter
            counted += 1
        assert waiter.is_alive()
        # The first may be one that `latest` passes over.
        while waiter.is_alive():
            os.write(writer, b"done")
            waiter.join(0.05)


@pytest.mark.parametrize("call", ["next(stream)", "stream.latest()"])
def test_ctrl_c_ends_a_wait(call: str) -> None:
    code = f"""
    reader, writer = os.pipe()
    stream = penstock.Reader(reader, frame_bytes=4)
    print("waiting", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        os.write(writer, b"here")
        os.close(writer)
        print(bytes(stream.read()))
    """
    assert interrupted(code) == b"b'here'\n"


@pytest.mark.parametrize(
    "state",
    [
        "os.write(writer, b'ha')",
        "os.write(writer, bytes(400))",
        "os.write(writer, b'here'); kept = memoryview(stream.read())",
        "threading.Thread(target=stream.read, daemon=True).start()",
    ],
)
def test_program_can_end_with_an_open_reader(state: str) -> None:
    code = f"""
    reader, writer = os.pipe()
    stream = penstock.Reader(reader, frame_bytes=4)
    {state}
    while not are_asleep(lambda: threads() - {{threading.get_native_id()}}): pass
    print("ending")
    """
    assert succeeded(run_script(code)) == b"ending\n"


FORKED = """
reader, writer = os.pipe()
stream = penstock.Reader(reader, frame_bytes=4)
os.write(writer, b"before")
first = stream.read()

def child_is_well(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def says_closed(call):
    try:
        call()
    except penstock.ClosedError:
        return True
"""


@pytest.mark.linux("forks")
def test_a_fork_leaves_the_parent_its_reader() -> None:
    body = """
    pid = os.fork()
    if pid == 0:
        calls = [stream.read, stream.latest, lambda: next(stream), lambda: stream.readinto(bytearray(4))]
        well = all([says_closed(call) for call in calls])
        well &= bytes(first) == b"befo"
        stream.stats
        stream.close()
        own, other = os.pipe()
        os.write(other, b"mine")
        own = penstock.Reader(own, frame_bytes=4)
        well &= bytes(own.read()) == b"mine"
        del stream, first, own
        os._exit(0 if well else 1)
    assert child_is_well(pid)
    assert bytes(first) == b"befo"
    os.write(writer, b"afters")
    os.close(writer)
    assert [bytes(frame) for frame in stream] == [b"reaf", b"ters"]
    """
    assert succeeded(run_script(FORKED + textwrap.dedent(body))) == b""


@pytest.mark.linux("forks")
def test_fork_during_reading_loses_nothing() -> None:
    body = """
    def write():
        with open(writer, "wb") as file:  # the end of a child may cut a bare os.write short
            for value in range(200):
                file.write(bytes([value]) * 100_000)
    stream.close()
    reader, writer = os.pipe()
    stream = penstock.Reader(reader, frame_bytes=100_000)
    threading.Thread(target=write).start()
    for value, frame in enumerate(stream):
        assert set(bytes(frame)) == {value}
        if value % 20 == 0:
            pid = os.fork()
            if pid == 0:
                os._exit(0 if says_closed(stream.read) else 1)
            assert child_is_well(pid)
    assert value == 199
    """
    assert succeeded(run_script(FORKED + textwrap.dedent(body))) == b""
