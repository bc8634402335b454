"""No relay waits inside a write, where no timeout and no cancellation would reach it: by every kind of destination."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import run_script, succeeded
from support.streams import noise, tcp_pair
from support.this_process import are_asleep, workers

import penstock
from penstock import BrokenStreamError, ClosedError, StalledError, Tee

TCP_NOTSENT_LOWAT = 25
"""include/uapi/linux/tcp.h: Python has no name for it."""


class Sink:
    """A destination whose reader does nothing; closing it closes both sides."""

    def __init__(self, writer: int, *others: int) -> None:
        self.writer = writer
        self._fds = (writer, *others)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


def raw_terminal() -> tuple[int, int]:
    controller, user = os.openpty()
    import tty  # which Windows' Python lacks

    tty.setraw(user)
    return controller, user


def terminal(_folder: Path) -> Sink:
    controller, user = raw_terminal()
    return Sink(user, controller)


def terminal_controller(_folder: Path) -> Sink:
    controller, user = raw_terminal()
    return Sink(controller, user)


def packet_pipe(_folder: Path) -> Sink:
    reader, writer = os.pipe2(os.O_DIRECT)
    return Sink(writer, reader)


def named_pipe(folder: Path) -> Sink:
    path = folder / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    return Sink(os.open(path, os.O_WRONLY), reader)


def unix_socket(_folder: Path, send_buffer: int = 1) -> Sink:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    return Sink(ours.detach(), theirs.detach())


def tcp_socket(_folder: Path) -> Sink:
    ours, theirs = tcp_pair()
    ours.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16 << 10)
    return Sink(ours.detach(), theirs.detach())


ON_LINUX = pytest.mark.linux("terminals, packet pipes and sockets as descriptors")
SINKS = [terminal, terminal_controller, packet_pipe, named_pipe, unix_socket, tcp_socket]


@pytest.fixture(params=SINKS, ids=lambda make: make.__name__)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    made: Sink = request.param(tmp_path)
    yield made.writer
    made.close()
    assert eventually(lambda: not workers()), "a thread is left"


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    """More than any of these destinations takes before it is read."""
    path = tmp_path / "zeros"
    path.touch()
    os.truncate(path, 64 << 20)
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


def ends(call: Callable[[], object]) -> BaseException | None:
    """What the call raised, in a thread: so that a hang is a failure, not the end of all tests."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    threading.Thread(target=run, daemon=True).start()
    assert eventually(lambda: raised), "it hangs"
    return raised[0]


@ON_LINUX
@pytest.mark.parametrize("method", ["auto", "read-write"])
def test_a_timeout_ends_a_relay(sink: int, file: int, method: str) -> None:
    assert isinstance(ends(lambda: penstock.relay(file, sink, timeout=0.1, method=method)), StalledError)


@ON_LINUX
@pytest.mark.parametrize("method", ["auto", "read-write"])
def test_a_cancellation_ends_a_relay(sink: int, file: int, method: str) -> None:
    ticket = penstock.pipes.start_relay(file, sink, method=method)
    assert eventually(lambda: ticket.report.bytes and are_asleep(workers))  # nothing more goes in
    ticket.cancel()
    assert isinstance(ends(ticket.wait), ClosedError)


@ON_LINUX
def test_eviction_ends_one_output_and_the_others_continue(sink: int, file: int) -> None:
    reader, writer = os.pipe()
    tee = Tee(file, sink, when_full="evict", stall_timeout=0.1, start=False)
    tee.add(writer)
    os.close(writer)
    tee.start()
    with os.fdopen(reader, "rb") as mine:
        taken = 0
        while piece := mine.read(1 << 20):
            taken += len(piece)
    assert taken == 64 << 20
    assert [output.ended for output in tee.wait(PATIENCE_S).outputs] == ["evicted", "source-ended"]


@pytest.mark.linux("sockets as descriptors")
def test_reader_that_drains_a_full_socket_does_not_count_as_stalled() -> None:
    ours, theirs = tcp_pair()
    size = 12 << 20
    # The reader empties a part of what the two sockets hold in each timeout, and far less than would make one ready.
    taken = 0

    def read_slowly() -> None:
        nonlocal taken
        while taken < size:
            taken += len(theirs.recv(192 << 10))
            if taken < 4 << 20:
                time.sleep(0.1)

    with ours, theirs, Path("/dev/zero").open("rb", buffering=0) as zeros:
        threading.Thread(target=read_slowly, daemon=True).start()
        assert penstock.relay(zeros, ours, size, timeout=0.5).bytes == size
        assert eventually(lambda: taken == size)


def test_bytes_go_to_the_terminal_that_was_opened() -> None:
    """/dev/tty leads elsewhere once a program has another controlling terminal."""
    done = run_script(
        """
        import fcntl, pty, termios, tty
        (first, first_user), (second, second_user) = pty.openpty(), pty.openpty()
        tty.setraw(first_user)
        tty.setraw(second_user)
        told, tell = os.pipe()
        if os.fork() == 0:
            os.setsid()
            fcntl.ioctl(first_user, termios.TIOCSCTTY, 0)
            opened = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
            if os.fork() == 0:
                os.setsid()
                fcntl.ioctl(second_user, termios.TIOCSCTTY, 0)
                source, fed = os.pipe()
                os.write(fed, b"relayed")
                os.close(fed)
                penstock.relay(source, opened)
                os.read(told, 1)  # a terminal whose session ends is hung up
                os._exit(0)
            os.wait()
            os._exit(0)
        print(os.read(first, 100))
        os.write(tell, b"!")
        os.wait()
        """
    )
    assert succeeded(done) == b"b'relayed'\n"


def test_silent_source_times_out_while_the_reader_reads() -> None:
    source, fed = os.pipe()
    reader, writer = os.pipe()
    os.write(writer, bytes(1000))
    stop = threading.Event()

    def read_slowly() -> None:
        while not stop.wait(0.1):
            os.read(reader, 1)

    thread = threading.Thread(target=read_slowly)
    thread.start()
    raised = ends(lambda: penstock.relay(source, writer, timeout=0.3))
    assert thread.is_alive(), "the destination's reader still reads"
    stop.set()
    thread.join()
    assert isinstance(raised, StalledError)
    for fd in (source, fed, reader, writer):
        os.close(fd)


@pytest.mark.linux("sockets as descriptors")
def test_notices_in_a_sockets_error_queue_are_no_lost_reader() -> None:
    so_timestamping = 37  # include/uapi/asm-generic/socket.h, linux/net_tstamp.h: software, of what is sent
    ours, theirs = tcp_pair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, so_timestamping, 1 << 1 | 1 << 4 | 1 << 11)
        ours.send(b"hello")
        assert theirs.recv(5) == b"hello"
        source, fed = os.pipe()
        ticket = penstock.pipes.start_relay(source, ours)
        assert eventually(lambda: are_asleep(workers))
        os.write(fed, b"world")
        os.close(fed)
        os.close(source)
        assert ticket.wait(PATIENCE_S).bytes == 5
        assert theirs.recv(5) == b"world"


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize("way", ["relay", "tee"])
def test_source_reset_during_a_stall_is_raised(way: str) -> None:
    ours, theirs = socket.socketpair()
    theirs.send(b"never read, so that the end is a reset")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    ticket = penstock.pipes.start_relay(theirs, writer) if way == "relay" else Tee(theirs, writer)
    ours.close()
    os.close(writer)
    drain = threading.Timer(0.2, lambda: [None for _ in iter(lambda: os.read(reader, 1 << 20), b"")])
    drain.start()
    raised = ends(ticket.wait)
    drain.join()
    assert isinstance(raised, ConnectionResetError)
    theirs.close()
    os.close(reader)


@pytest.mark.linux("sockets as descriptors")
def test_source_reset_is_not_taken_for_a_gone_reader() -> None:
    for method in ("auto", "read-write"):
        for make_sink in (os.pipe, lambda: tuple(end.detach() for end in socket.socketpair())):
            ours, theirs = tcp_pair()
            reader, writer = make_sink()
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()  # by a reset
            with pytest.raises(ConnectionResetError) as caught:
                penstock.relay(ours, writer, method=method)
            assert not isinstance(caught.value, BrokenStreamError)
            ours.close()
            os.close(reader)
            os.close(writer)


@pytest.mark.linux("sockets as descriptors")
class TestMessages:
    """Datagrams, and what else keeps each write apart."""

    @pytest.fixture(params=[socket.SOCK_DGRAM, socket.SOCK_SEQPACKET], ids=["datagrams", "packets"])
    def pairs(self, request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, ...]]:
        source, feeder = socket.socketpair(socket.AF_UNIX, request.param)
        sink, reader = socket.socketpair(socket.AF_UNIX, request.param)
        reader.settimeout(PATIENCE_S)
        yield source, feeder, sink, reader
        for end in (source, feeder, sink, reader):
            end.close()

    def test_empty_message_is_relayed(self, pairs: tuple[socket.socket, ...]) -> None:
        source, feeder, sink, reader = pairs
        for message in (b"one", b"", b"three"):
            feeder.send(message)
        assert penstock.relay(source, sink, 8).bytes == 8
        assert [reader.recv(100) for _ in range(3)] == [b"one", b"", b"three"]

    def test_empty_message_does_not_end_a_relay(self) -> None:
        source, feeder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()
        for message in (b"one", b"", b"three"):
            feeder.send(message)
        feeder.close()
        relayed = penstock.relay(source, writer)
        assert (relayed.bytes, relayed.source_ended, os.read(reader, 100)) == (8, True, b"onethree")
        source.close()
        os.close(reader)
        os.close(writer)

    def test_message_is_not_cut_by_the_count(self, pairs: tuple[socket.socket, ...]) -> None:
        source, feeder, sink, reader = pairs
        feeder.send(b"one")
        feeder.send(b"three")
        with pytest.raises(OSError) as caught:
            penstock.relay(source, sink, 7)
        assert caught.value.bytes_delivered == 3  # type: ignore[attr-defined]
        assert (reader.recv(100), source.recv(100)) == (b"one", b"three")

    def test_large_message_is_relayed_whole(self) -> None:
        source, feeder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        message = noise(1_500_000)
        with source, feeder, contextlib.suppress(PermissionError):
            feeder.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE: for the privileged
            feeder.send(message)
            reader, writer = os.pipe()
            ticket = penstock.pipes.start_relay(source, writer, len(message))
            with os.fdopen(reader, "rb") as mine:
                assert mine.read(len(message)) == message
            assert ticket.wait(PATIENCE_S).bytes == len(message)
            os.close(writer)

    def test_pieces_of_a_stream_are_made_to_fit(self) -> None:
        sink, reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        sink.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        data = noise(100_000)
        source, fed = os.pipe()
        os.set_blocking(fed, False)
        sent = os.write(fed, data)
        os.close(fed)
        ticket = penstock.pipes.start_relay(source, sink)
        reader.settimeout(PATIENCE_S)
        with sink, reader:
            got = b""
            while len(got) < sent:
                got += reader.recv(1 << 20)
            assert got == data[:sent]
            assert ticket.wait(PATIENCE_S).bytes == sent
        os.close(source)
