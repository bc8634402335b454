"""What `del` and `close` do about threads and descriptors that cannot be had to end at once: sockets that linger."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from conftest import eventually, open_fds, workers

import penstock
from penstock.pipeline import Pipeline, fd

LINGER_S = 8
"""Much longer than what does not wait takes, and less than what a test may take."""


@pytest.fixture
def lingering() -> Iterator[socket.socket]:
    """A socket whose last close waits for a peer that reads nothing."""
    before = workers(), open_fds()
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
    ours.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            ours.send(bytes(1 << 20))
    yield ours
    ours.close()
    theirs.close()  # which ends the linger by a reset
    assert eventually(lambda: workers() <= before[0] and open_fds().keys() <= before[1].keys())


def idle_into(sink: socket.socket) -> Pipeline:
    source = os.eventfd(0)
    pipeline = Pipeline(fd(source), sink=sink)
    os.close(source)
    return pipeline


MAKERS: dict[str, Callable[[socket.socket], Any]] = {
    "reader": lambda ours: penstock.Reader(ours, frame_bytes=4),
    "writer": lambda ours: penstock.Writer(ours),
    "source": lambda ours: Pipeline(fd(ours)),
    "sink": lambda ours: Pipeline(itertools.repeat(b"more"), sink=ours),
    "idle sink": idle_into,
}


def use_others() -> None:
    """What takes the locks of the tables that descriptors are in."""
    reader, writer = os.pipe()
    with penstock.Reader(reader, frame_bytes=4) as frames, Pipeline([b"four"], sink=writer) as pipeline:
        pipeline.wait()
        assert bytes(next(frames)) == b"four"
    penstock.pipe(b"more", writer).wait()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_destructor_waits_for_no_socket_that_lingers(lingering: socket.socket, kind: str) -> None:
    made = MAKERS[kind](lingering)
    lingering.close()
    begin_s = time.monotonic()
    del made
    use_others()
    assert time.monotonic() - begin_s < LINGER_S / 2


def test_a_write_that_ends_holds_up_no_other(lingering: socket.socket) -> None:
    """Its worker has the last descriptor."""
    writer = penstock.Writer(lingering)
    ticket = writer.write(b"more")
    lingering.close()
    begin_s = time.monotonic()
    writer.abort()
    with pytest.raises(penstock.ClosedError):
        ticket.wait()
    assert writer.stats.items_pending == 0
    use_others()
    assert time.monotonic() - begin_s < LINGER_S / 2


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("kind", ["reader", "source"])
def test_a_close_that_waits_is_awake_to_signals(lingering: socket.socket, kind: str) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    made = MAKERS[kind](lingering)
    lingering.close()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        begin_s = time.monotonic()
        with pytest.raises(Interrupted):
            made.close()
        assert time.monotonic() - begin_s < LINGER_S / 2
    finally:
        signal.signal(signal.SIGALRM, before)
    assert made.closed
