"""Every wait leaves the interpreter to other threads, wakes for signals and sleeps meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import threading
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.cases import MODES, eventually
from support.processes import run_script, succeeded, system_calls
from support.streams import ReaderThread, noise, read_exactly, tcp_pair, unread_bytes
from support.this_process import are_asleep, threads, workers

import penstock
from penstock import Pipeline, _native
from penstock.pipeline import Stage

FRAME = noise(3 << 20)

WAITS = {
    "pipe": lambda stream, fd, ticket: _native._pipe(FRAME, fd),
    "write": lambda stream, fd, ticket: stream.write(FRAME),
    "submit": lambda stream, fd, ticket: stream.submit(FRAME),
    "sync": lambda stream, fd, ticket: _native._sync(),
    "sync(data)": lambda stream, fd, ticket: _native._sync(FRAME),
    "close of all": lambda stream, fd, ticket: _native._close(),
    "wait": lambda stream, fd, ticket: ticket.wait(),
    "exception": lambda stream, fd, ticket: ticket.exception(),
    "flush": lambda stream, fd, ticket: stream.flush(),
    "close": lambda stream, fd, ticket: stream.close(),
    "with": lambda stream, fd, ticket: stream.__exit__(None, None, None),
}


def stalled(writer: int) -> tuple[penstock.Writer, penstock.results.Ticket]:
    """A stream with one frame in flight that came by `pipe`, and no room for more."""
    stream = penstock.Writer(writer, queue_items=1)
    return stream, _native._pipe(FRAME, writer)


@pytest.mark.parametrize("wait", WAITS)
def test_other_threads_run_during_a_wait(pair: tuple[int, int], wait: str) -> None:
    reader, writer = pair
    stream, ticket = stalled(writer)
    waiter = threading.Thread(target=WAITS[wait], args=(stream, writer, ticket))
    waiter.start()
    # Without the interpreter's lock, this would not end before the waiter does.
    assert eventually(lambda: are_asleep(lambda: {waiter.native_id}))
    assert read_exactly(reader, len(FRAME)) == FRAME
    if wait in ("pipe", "write", "submit"):
        assert read_exactly(reader, len(FRAME)) == FRAME
    waiter.join(30)
    assert not waiter.is_alive()


INTERRUPTED = """
import json
from penstock import Writer

reader, fd = os.pipe()
frame = bytes(3 << 20)
stream = Writer(fd, queue_items=1)
ticket = penstock._native._pipe(frame, fd)
waits = {
    "pipe": lambda: penstock._native._pipe(frame, fd),
    "write": lambda: stream.write(frame),
    "submit": lambda: stream.submit(frame),
    "sync": lambda: penstock._native._sync(),
    "sync(data)": lambda: penstock._native._sync(frame),
    "close of all": lambda: penstock._native._close(),
    "wait": lambda: ticket.wait(),
    "exception": lambda: ticket.exception(),
    "flush": lambda: stream.flush(),
    "close": lambda: stream.close(),
    "with": lambda: stream.__exit__(None, None, None),
}
interrupted = []
for name, wait in waits.items():
    for _ in range(2):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            wait()
        except KeyboardInterrupt:
            interrupted.append(name)
accepted = stream.stats.items_accepted
got = 0
while got < len(frame):  # all goes on afterwards
    got += len(os.read(reader, 1 << 20))
stream.close(10)
print(json.dumps([interrupted, accepted, got]))
"""


def test_ctrl_c_ends_each_wait() -> None:
    """Nobody reads before all are over, so that nothing else can end a wait."""
    interrupted, accepted, got = json.loads(succeeded(run_script(INTERRUPTED)))
    assert interrupted == [name for name in WAITS for _ in range(2)]
    assert accepted == 1, "a write that was interrupted has not been taken"
    assert got == 3 << 20, "what was taken before has arrived"


@pytest.mark.linux("signals to programs")
def test_a_signal_handler_may_use_the_same_stream(pair: tuple[int, int]) -> None:
    """No lock is held while we wait, so that a handler that pipes, syncs and asks cannot deadlock."""
    reader, writer = pair
    stream = penstock.Writer(writer, queue_items=2)
    ticket = stream.submit(FRAME)
    handled = []

    def handler(number: int, frame: object) -> None:
        _native._pipe(b"from the handler", writer)
        assert stream.stats.items_pending == 2
        with pytest.raises(penstock.StalledError):
            _native._sync(timeout=0.01)
        result = ReaderThread(os.dup(reader))
        handled.append(result)

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        ticket.wait(30)
        stream.close(30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    os.close(writer)
    (result,) = handled
    assert result.result() == FRAME + b"from the handler"


@pytest.mark.linux("signals to programs")
def test_a_storm_of_signals_disturbs_no_wait_and_no_byte(pair: tuple[int, int]) -> None:
    reader, writer = pair
    result = ReaderThread(reader, chunk_bytes=5000)
    count = 0

    def handler(number: int, frame: object) -> None:
        nonlocal count
        count += 1

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for number in range(8):
            _native._pipe(FRAME, writer, mode=MODES[number % 4])
            _native._sync()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    os.close(writer)
    assert result.result() == FRAME * 8
    assert count > 0


@pytest.mark.linux("/proc")
def test_workers_block_signals_except_those_of_their_own_faults(pair: tuple[int, int]) -> None:
    """Workers block every signal, so that none of the program's ends up on them, but those of their own faults."""
    stream = penstock.Writer(pair[1])
    before = workers()
    stream.submit(bytes(200_000)).wait(10)
    assert eventually(lambda: workers() - before)
    (worker,) = workers() - before
    status = Path(f"/proc/self/task/{worker}/status").read_text().splitlines()
    blocked = next(int(line.split()[1], 16) for line in status if line.startswith("SigBlk"))
    faults = {getattr(signal, f"SIG{name}") for name in ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS", "ABRT")}
    # No program can block SIGKILL and SIGSTOP, and glibc keeps 32 and 33 for itself.
    wanted = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}
    assert {number for number in wanted if not blocked >> (number - 1) & 1} == faults


def test_an_idle_stream_sleeps(pair: tuple[int, int]) -> None:
    streams = [penstock.Writer(pair[1], mode=mode) for mode in MODES]
    tickets = [stream.submit(bytes(100_000)) for stream in streams]
    assert len(read_exactly(pair[0], 100_000 * len(MODES))) == 100_000 * len(MODES)
    for ticket in tickets:
        ticket.wait(10)
    assert eventually(lambda: are_asleep(workers))


def connected_datagrams() -> tuple[socket.socket, socket.socket]:
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.bind("")  # to a name of the kernel's choice (unix(7))
    writer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    writer.connect(reader.getsockname())
    return reader, writer


SOCKETS = {
    "unix": socket.socketpair,
    "tcp": tcp_pair,
    "seqpacket": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
    "datagram pair": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM),
    "datagrams": connected_datagrams,
}


def fill(stream: penstock.Writer, kind: str) -> None:
    """Queues more than a destination takes of which nobody reads, in messages that it would take."""
    if kind in ("unix", "tcp"):
        stream.submit(noise(16 << 20))
    else:
        for size in [1000] * 50 + [30_000] * 10:
            stream.submit(noise(size))


@pytest.mark.linux("sockets as descriptors")
def test_a_worker_sleeps_while_its_destination_is_full() -> None:
    """All kinds at once, blocking and not."""
    ends: list[int] = []
    streams: list[penstock.Writer] = []

    def add(reader: int, writer: int, blocking: bool, mode: str = "auto") -> penstock.Writer:
        os.set_blocking(writer, blocking)
        ends.extend((reader, writer))
        streams.append(penstock.Writer(writer, mode=mode))
        return streams[-1]

    for blocking in (True, False):
        for kind, make in SOCKETS.items():
            fill(add(*(end.detach() for end in make()), blocking), kind)
        for mode in ("write", "staged", "zero-copy"):
            add(*os.pipe(), blocking, mode).submit(FRAME)
    assert eventually(lambda: len(workers()) == len(streams) and are_asleep(workers))
    assert all(stream.stats.items_pending for stream in streams), "each of them is stalled"
    for stream in streams:
        stream.abort()
    for end in ends:
        os.close(end)


@pytest.mark.linux("modes that map or give away pages")
def test_a_worker_sleeps_between_looks_at_a_zero_copy_write_in_the_pipe(pair: tuple[int, int]) -> None:
    """The kernel does not report when a pipe runs empty, so that the worker asks, a thousand times a second."""
    stream = penstock.Writer(pair[1], mode="zero-copy")
    ticket = stream.submit(FRAME[:100_000])
    assert eventually(lambda: unread_bytes(pair[0]) == 100_000)
    assert eventually(lambda: are_asleep(workers))
    assert not ticket.done()
    assert read_exactly(pair[0], 100_000) == FRAME[:100_000]
    ticket.wait(10)


def test_readers_encoders_decoders_and_pipelines_sleep_while_nobody_needs_them(
    pair: tuple[int, int], tmp_path: Path
) -> None:
    others, path = threads(), tmp_path / "video.mkv"
    encoding: dict[str, Any] = {"size": (320, 180), "fps": 30, "preset": "ultrafast"}
    with penstock.Encoder(path, **encoding) as encoder:
        for _ in range(300):  # more than the pipe from FFmpeg holds
            encoder.write(bytes(320 * 180 * 3))
    with ExitStack() as stack:
        encoder = stack.enter_context(penstock.Encoder(tmp_path / "other.mkv", **encoding))
        encoder.write(bytes(320 * 180 * 3))
        next(iter(stack.enter_context(penstock.Decoder(path))))
        stack.enter_context(Pipeline(itertools.repeat(zlib.compress(FRAME)), Stage.decompress("zlib")))
        stack.enter_context(penstock.Reader(pair[0], frame_bytes=10_000))
        assert eventually(lambda: are_asleep(lambda: threads() - others))
        os.close(pair[1])


def test_write_to_a_busy_queue_makes_no_system_call() -> None:
    """The worker waits for the reader, and finds the write when it is due."""
    [calls] = system_calls(
        """
        reader, fd = os.pipe()
        writer = penstock.Writer(fd, queue_items=1000)
        for _ in range(300):  # more than the pipe holds
            writer.submit(bytes(4096))
        while not are_asleep(workers):  # one that has just filled the pipe may still hold the queue's lock
            pass
        os.getppid()
        for _ in range(600):
            writer.submit(bytes(4096))
        os.getppid()
        writer.abort()
        """
    )
    assert calls == []
