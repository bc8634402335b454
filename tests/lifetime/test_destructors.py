"""What ends without a `close`: what `del` and the garbage collector do, and what waits for a socket that lingers."""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import os
import signal
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.cases import eventually
from support.processes import run_script, succeeded
from support.streams import tcp_pair
from support.this_process import open_fds, workers

import penstock
from penstock import Pipeline, _native
from penstock.pipeline import Chunk, Sink, Source, Stage

LINGER_S = 600
"""Longer than a test may take: one that waits for it fails."""


@pytest.fixture
def lingering() -> Iterator[socket.socket]:
    """A socket whose last close waits for a peer that reads nothing."""
    before = workers(), open_fds()
    theirs, ours = tcp_pair()
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
    pipeline = Pipeline(Source.fd(source), sink=Sink.fd(sink))
    os.close(source)
    return pipeline


MAKERS: dict[str, Callable[[socket.socket], Any]] = {
    "reader": lambda ours: penstock.Reader(ours, frame_bytes=4),
    "writer": lambda ours: penstock.Writer(ours),
    "source": lambda ours: Pipeline(Source.fd(ours)),
    "sink": lambda ours: Pipeline(endless(), sink=Sink.fd(ours)),
    "idle sink": idle_into,
}


def use_others() -> None:
    """What takes the locks of the tables that descriptors are in."""
    reader, writer = os.pipe()
    with (
        penstock.Reader(reader, frame_bytes=4) as frames,
        Pipeline([b"four"], sink=Sink.fd(writer)) as pipeline,
    ):
        pipeline.wait()
        assert bytes(next(frames)) == b"four"
    _native._pipe(b"more", writer).wait()
    _native._close()
    os.close(reader)
    os.close(writer)


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize("kind", MAKERS)
def test_a_destructor_waits_for_no_socket_that_lingers(lingering: socket.socket, kind: str) -> None:
    made = MAKERS[kind](lingering)
    lingering.close()
    del made
    use_others()


@pytest.mark.linux("sockets as descriptors")
def test_finished_write_does_not_delay_other_writes(lingering: socket.socket) -> None:
    """Its worker has the last descriptor."""
    writer = penstock.Writer(lingering)
    ticket = writer.submit(b"more")
    lingering.close()
    writer.abort()
    with pytest.raises(penstock.ClosedError):
        ticket.wait()
    assert eventually(lambda: writer.stats.items_pending == 0)
    use_others()


class Owner:
    """Has a pipeline, which has one of its methods, and in `blame` the frame of a failure as well."""

    def __init__(self, make: Callable[[Owner], Pipeline]) -> None:
        self.pipeline = make(self)

    def stage(self, chunk: Chunk) -> None: ...

    def touchy(self, chunk: Chunk) -> None:
        if chunk.index == 0:
            raise ValueError("touched")

    def feed(self) -> Iterator[bytes]:
        while True:
            yield b"some"

    def buffers(self) -> Iterator[bytearray]:
        while True:
            yield bytearray(10)


def endless() -> Iterator[bytes]:
    return itertools.repeat(b"more")


CYCLES: dict[str, Callable[[Owner], Pipeline]] = {
    "stage": lambda owner: Pipeline(endless(), owner.stage),
    "stage of several threads": lambda owner: Pipeline(endless(), Stage.call(owner.stage, workers=3)),
    "source": lambda owner: Pipeline(owner.feed()),
    "sink": lambda owner: Pipeline(endless(), sink=Sink.into(owner.buffers())),
    "failure that was skipped": lambda owner: Pipeline(endless(), owner.touchy, on_error="skip"),
    "failure before a descriptor": lambda owner: Pipeline([b"x"], owner.touchy, sink=Sink.fd(1)),
    "idle": lambda owner: Pipeline(iter([b"x"]), owner.stage),
}


def until_it_works(owner: Owner) -> Owner:
    def items() -> int:
        return sum(part.work.count + part.failed for part in owner.pipeline.stats.stages)

    assert eventually(lambda: items() > 1)
    return owner


@pytest.mark.parametrize("cycle", CYCLES)
def test_pipeline_referenced_only_by_its_own_parts_is_collected(cycle: str) -> None:
    before = workers(), open_fds()
    owner = until_it_works(Owner(CYCLES[cycle]))
    gone = weakref.ref(owner)
    del owner
    # A thread that is in one of the owner's methods has it, for that moment.
    assert eventually(lambda: gc.collect() >= 0 and gone() is None)
    assert eventually(
        lambda: gc.collect() >= 0 and workers() <= before[0] and open_fds().keys() <= before[1].keys()
    )


def test_pipeline_in_a_cycle_that_is_still_referenced_continues() -> None:
    owner = Owner(CYCLES["stage"])
    for _ in range(20):
        gc.collect()
        assert bytes(next(owner.pipeline)) == b"more"
    owner.pipeline.close()


def test_pipeline_releases_its_callables_at_its_end() -> None:
    owner = Owner(lambda owner: Pipeline([b"x"], owner.stage))
    gone = weakref.ref(owner)
    pipeline = owner.pipeline
    del owner
    assert gone() is not None
    assert [bytes(chunk) for chunk in pipeline] == [b"x"]
    assert gone() is None


@pytest.mark.linux("FIFOs")
def test_fifo_ticket_in_a_cycle_with_its_path_is_collected(tmp_path: Path) -> None:
    class Place:
        def __init__(self) -> None:
            self.ticket = penstock._native._fifo_open_async(self, "w")

        def __fspath__(self) -> str:
            return str(tmp_path / "fifo")

    os.mkfifo(tmp_path / "fifo")
    before = workers()
    gone = weakref.ref(Place())
    gc.collect()
    assert gone() is None
    assert eventually(lambda: workers() <= before)


def test_source_in_a_cycle_with_its_stream_is_collected() -> None:
    class Stream(io.BufferedReader):
        source: object

    end, writer = os.pipe()
    os.write(writer, b"ahead")
    os.close(writer)
    stream = Stream(io.FileIO(end))  # type: ignore[arg-type]
    assert stream.peek() == b"ahead"
    stream.source = penstock._native._Source.fd(stream, 10, None)
    gone = weakref.ref(stream)
    del stream
    gc.collect()
    assert gone() is None


def test_a_program_ends_well_while_a_dropped_pipeline_is_in_a_call() -> None:
    body = """
    import itertools
    from penstock import Pipeline
    def busy(chunk):
        end_s = time.monotonic() + 0.2
        while time.monotonic() < end_s:
            sum(range(1000))
    for chunk in Pipeline(itertools.repeat(b"x"), busy):
        break
    """
    assert succeeded(run_script(body)) == b""


@pytest.mark.linux("sockets as descriptors")
@pytest.mark.parametrize("kind", ["reader", "source"])
def test_a_close_waits_for_no_socket_that_lingers(lingering: socket.socket, kind: str) -> None:
    made = MAKERS[kind](lingering)
    lingering.close()
    made.close()
    assert made.closed


class Interrupted(Exception):
    pass


@pytest.mark.linux("signals to programs")
def test_a_close_that_waits_for_a_call_is_awake_to_signals() -> None:
    """The call has no end of its own before the test has one."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    called, leave = threading.Event(), threading.Event()

    def stuck(chunk: Chunk) -> None:
        called.set()
        leave.wait(60)

    pipeline = Pipeline([b"one"], stuck)
    assert called.wait(20)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            pipeline.close()
    finally:
        signal.signal(signal.SIGALRM, before)
        leave.set()
    pipeline.close()
    assert pipeline.closed
