"""What a round is made of: each does one thing at random, and asserts that no byte was lost, doubled or torn."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import gzip
import itertools
import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdings import Holdings

import penstock
from penstock import Decoder, DecoderError, Encoder, EncoderError, PenstockError, Pipeline, _native, fifo
from penstock.pipeline import Sink, Source, Stage
from penstock.video import DecoderSettings, find_ffmpeg

ACTIONS: dict[str, Callable[[random.Random], None]] = {}
ALONE: set[str] = set()
PATIENCE_S = 40.0
"""How long anything may wait that has to come. Guessed: it only ends waits that would last for ever."""
MODES = ("auto", "write", "staged", "zero-copy")


def action(function: Callable[[random.Random], None]) -> Callable[[random.Random], None]:
    ACTIONS[function.__name__] = function
    return function


def alone(function: Callable[[random.Random], None]) -> Callable[[random.Random], None]:
    """An action for a process of its own."""
    ALONE.add(function.__name__)
    return action(function)


# --- what the actions are made of -------------------------------------------------------------------------


def noise(choose: random.Random, most: int = 2 << 20) -> bytes:
    """Bytes that differ everywhere, of a size that may be at an edge."""
    return choose.randbytes(
        min(most, choose.choice([0, 1, 4095, 4096, 65535, 65536, 65537, choose.randrange(most)]))
    )


def frames_of(choose: random.Random, most: int = 8) -> list[bytes]:
    return [noise(choose) for _ in range(choose.randrange(1, most))]


class Drain(threading.Thread):
    """Reads a descriptor of its own to the end, or leaves after `leave_after` bytes; with pauses."""

    def __init__(self, reader: int, choose: random.Random, leave_after: int | None = None) -> None:
        super().__init__(daemon=True)
        self.reader, self.got, self.leave_after = reader, bytearray(), leave_after
        self.choose = random.Random(choose.random())
        self.start()

    def run(self) -> None:
        try:
            while self.leave_after is None or len(self.got) < self.leave_after:
                chunk = os.read(self.reader, self.choose.choice([1000, 65536, 300_000, 1 << 20]))
                if not chunk:
                    break
                self.got += chunk
                if self.choose.random() < 0.05:
                    time.sleep(0.002)
        except ConnectionResetError:
            pass
        finally:
            os.close(self.reader)

    def result(self) -> bytes:
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"no end of file came; there are {len(self.got)} bytes"
        return bytes(self.got)


class Feed(threading.Thread):
    """Writes bytes to a descriptor of its own in pieces, as a plain loop does, and closes it."""

    def __init__(self, writer: int, data: bytes, choose: random.Random) -> None:
        super().__init__(daemon=True)
        self.writer, self.data, self.taken = writer, data, 0
        self.choose = random.Random(choose.random())
        self.start()

    def run(self) -> None:
        try:
            while self.taken < len(self.data):
                size = self.choose.choice([1, 100, 5000, 65536, 1 << 20])
                self.taken += os.write(self.writer, self.data[self.taken : self.taken + size])
                if self.choose.random() < 0.02:
                    time.sleep(0.002)
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            os.close(self.writer)


def joined(thread: threading.Thread) -> None:
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), f"{thread} hangs"


def channel(choose: random.Random, kinds: tuple[str, ...] = ("pipe", "socket")) -> tuple[int, int]:
    """A reading and a writing end."""
    if choose.choice(kinds) == "pipe":
        return os.pipe()
    ours, theirs = socket.socketpair()
    theirs.shutdown(socket.SHUT_RD)
    return ours.detach(), theirs.detach()


def broken(call: Callable[[], object]) -> Exception | None:
    """The failure of a stream that may fail; None if the call went well."""
    try:
        call()
    except (PenstockError, OSError) as error:
        assert not isinstance(error, penstock.StalledError), f"it stalled: {error}"
        return error
    return None


@functools.cache
def video() -> tuple[Path, list[bytes]]:
    """A small video, and its frames by FFmpeg alone."""
    path = Path(tempfile.mkdtemp(prefix="penstock-soak-")) / "clip.mkv"
    made = ["-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-t", "2", "-c:v", "ffv1", "-pix_fmt", "bgr0"]
    subprocess.run(
        [find_ffmpeg(), "-v", "error", "-y", *made, str(path)], check=True, stdin=subprocess.DEVNULL
    )
    raw = frames_by_ffmpeg(path)
    return path, [raw[at : at + 64 * 48 * 3] for at in range(0, len(raw), 64 * 48 * 3)]


def frames_by_ffmpeg(path: Path) -> bytes:
    command = [find_ffmpeg(), "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True).stdout


# --- memory to descriptors --------------------------------------------------------------------------------


@action
def writer(choose: random.Random) -> None:
    """Buffers that are overwritten as soon as they are free arrive whole and in order."""
    frames = frames_of(choose)
    reader, end = channel(choose)
    drain = Drain(reader, choose)
    owns = [
        penstock.Writer(end, mode=choose.choice(MODES), capacity_bytes=choose.choice([None, 4096, 1 << 20]))
        for _ in range(choose.choice([1, 1, 2]))
    ]
    in_flight: list[tuple[bytearray, Any]] = []
    for frame in frames:
        area = bytearray(frame)
        if choose.random() < 0.3:
            choose.choice(owns).write(area)
            overwrite(area)
            continue
        push = choose.choice([*(own.submit for own in owns), lambda data: _native._pipe(data, end)])
        in_flight.append((area, push(area)))
        if len(in_flight) > 2:
            overwrite(*in_flight.pop(0))
    for area, ticket in in_flight:
        overwrite(area, ticket)
    for own in owns:
        own.close(PATIENCE_S)
    os.close(end)
    assert drain.result() == b"".join(frames)


def overwrite(area: bytearray, ticket: Any = None) -> None:
    if ticket is not None:
        ticket.wait(PATIENCE_S)
    area[:] = b"\xee" * len(area)
    area.clear()


@action
def writer_whose_reader_leaves(choose: random.Random) -> None:
    """What is not delivered is reported; what was read is how the stream begins."""
    data = [choose.randbytes(300_000) for _ in range(8)]
    reader, end = channel(choose)
    is_pipe = stat.S_ISFIFO(os.fstat(end).st_mode)
    drain = Drain(reader, choose, leave_after=choose.randrange(1, 1_500_000))
    own = penstock.Writer(end, mode=choose.choice(MODES))
    send = choose.choice((own.write, own.submit))
    os.close(end)
    failure = broken(lambda: [send(frame, timeout=PATIENCE_S) for frame in data])
    failure = broken(lambda: own.close(PATIENCE_S)) or failure
    got = drain.result()
    assert b"".join(data).startswith(got)
    # A reader may leave after the close: then the kernel has the rest, at most as much as a channel holds.
    unread = 2_400_000 - len(got)
    assert failure is not None or unread <= 1 << 20, f"{unread} bytes were not read, and nothing was said"
    if isinstance(failure, penstock.BrokenStreamError) and is_pipe:  # a socket does not tell what was read
        assert failure.bytes_delivered <= len(got), f"{failure.bytes_delivered} delivered, {len(got)} read"


@action
def many_destinations(choose: random.Random) -> None:
    """`sync` waits for all of them, and tells of each that fails."""
    leaves = choose.random() < 0.3
    # More than a pipe holds, for whom readers leave.
    data = choose.randbytes(2 << 20 if leaves else choose.choice([10, 100_000]))
    ends = [os.pipe() for _ in range(choose.choice([3, 20] if leaves else [3, 40, 300]))]
    tickets = []
    for _, end in ends:
        tickets.append(_native._pipe(data, end))
        os.close(end)
    gone = {choose.randrange(len(ends)) for _ in range(3)} if leaves else set()
    drains = []
    for number, (reader, _) in enumerate(ends):
        if number in gone:
            os.close(reader)
        else:
            drains.append(Drain(reader, choose))
    failures = [
        error for ticket in tickets if (error := broken(lambda ticket=ticket: ticket.wait(PATIENCE_S)))
    ]
    assert len(failures) == len(gone), f"{len(failures)} failures of {len(gone)} readers that left"
    assert all(drain.result() == data for drain in drains)
    for _ in range(len(gone) + 1):  # each is told once, here or to another action's sync
        broken(lambda: _native._sync(timeout=PATIENCE_S))


@action
def reused_descriptor(choose: random.Random) -> None:
    """A number that is closed and used again at once misdirects nothing."""
    for _ in range(5):
        data, other = noise(choose), noise(choose)
        reader, end = os.pipe()
        drain = Drain(reader, choose)
        first = _native._pipe(data, end)
        second_reader, second_end = os.pipe()
        second = Drain(second_reader, choose)
        os.dup2(second_end, end, inheritable=False)
        os.close(second_end)
        last = _native._pipe(other, end)
        os.close(end)
        first.wait(PATIENCE_S)
        last.wait(PATIENCE_S)
        assert (drain.result(), second.result()) == (data, other)


# --- descriptors to memory --------------------------------------------------------------------------------


@action
def reader(choose: random.Random) -> None:
    """Frames are whole, in order, each once; a rest is an error."""
    size = choose.choice([1, 100, 4096, 70_000])
    data = choose.randbytes(
        size * choose.randrange(1, 30) + (choose.randrange(size) if choose.random() < 0.3 else 0)
    )
    start, end = channel(choose)
    feed = Feed(end, data, choose)
    own = penstock.Reader(start, frame_bytes=size, queue_items=choose.choice([1, 4]))
    os.close(start)
    got = []
    into_area = bytearray(size)
    try:
        while True:
            if choose.random() < 0.5:
                if not own.readinto(into_area, timeout=PATIENCE_S):
                    break
                got.append(bytes(into_area))
            else:
                frame = own.read(timeout=PATIENCE_S)
                if frame is None:
                    break
                got.append(bytes(frame))
            if choose.random() < 0.01:
                own.close()
                joined(feed)
                return
        assert len(data) % size == 0, "it ended inside a frame, and nothing was said"
    except penstock.TruncatedStreamError:
        assert len(data) % size != 0
    own.close()
    joined(feed)
    assert b"".join(got) == data[: len(data) // size * size]


@action
def reader_behind_readline(choose: random.Random) -> None:
    """What Python has read ahead belongs to the frames."""
    frames = [choose.randbytes(50).replace(b"\n", b"x") for _ in range(100)]
    start, end = os.pipe()
    feed = Feed(end, b"header\n" + b"".join(frames), choose)
    with os.fdopen(start, "rb") as stream:
        assert stream.readline() == b"header\n"
        with penstock.Reader(stream, frame_bytes=50) as own:
            got = [bytes(frame) for frame in own]
    joined(feed)
    assert got == frames


@action
def cancelled_reads(choose: random.Random) -> None:
    """Tasks that are cancelled while they wait lose no frame."""
    data = choose.randbytes(50 * 200)

    async def all_frames() -> list[bytes]:
        start, end = os.pipe()
        feed = Feed(end, data, choose)
        own = penstock.Reader(start, frame_bytes=200)
        os.close(start)
        got = []
        while True:
            try:
                frame = await asyncio.wait_for(anext(own), choose.choice([0.0001, 0.01, PATIENCE_S]))
                got.append(bytes(frame))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        own.close()
        joined(feed)
        return got

    # A task that was cancelled after its frame had come has taken it: what came is in order, and none comes twice.
    expected = [data[at : at + 200] for at in range(0, len(data), 200)]
    got = iter(asyncio.run(all_frames()))
    assert all(frame in expected for frame in got)


# --- descriptor to descriptor -----------------------------------------------------------------------------


@contextlib.contextmanager
def relay_source(choose: random.Random, data: bytes) -> Iterator[tuple[Any, threading.Thread | None]]:
    kind = choose.choice(["file", "buffered file", "pipe", "socket"])
    if "file" in kind:
        with tempfile.TemporaryFile(buffering=-1 if kind == "buffered file" else 0) as source:
            source.write(data)
            source.seek(0)
            yield source, None
    else:
        start, end = channel(choose, (kind,))
        feed = Feed(end, data, choose)
        with os.fdopen(start, "rb", buffering=0) as source:
            yield source, feed
        joined(feed)


@action
def relay(choose: random.Random) -> None:
    """All of it, or as much as was asked for; what is behind that is still in the source."""
    data = noise(choose)
    count = None if choose.random() < 0.6 else choose.randrange(len(data) + 1)
    with relay_source(choose, data) as (source, _):
        start, end = channel(choose)
        drain = Drain(start, choose)
        options = {"method": choose.choice(["auto", "read-write"]), "timeout": PATIENCE_S}
        relayed = penstock.relay(source, end, count, **options)
        os.close(end)
        expected = data if count is None else data[:count]
        assert (drain.result(), relayed.bytes) == (expected, len(expected))
        rest = source.read() if count is not None else b""
        while count is not None and len(rest) < len(data) - count and (more := source.read()):
            rest += more
        assert count is None or rest == data[count:]


@action
def interrupted_relay(choose: random.Random) -> None:
    """A relay that is late, or cancelled, has lost nothing that it does not tell of."""
    data = choose.randbytes(choose.randrange(100_000, 1_500_000))
    start, end = os.pipe()
    with tempfile.TemporaryFile(buffering=0) as source:
        source.write(data)
        source.seek(0)
        is_pipe = choose.random() < 0.5
        feed = None
        taken: Any = source
        if is_pipe:
            taken, filled = os.pipe()
            feed = Feed(filled, data, choose)
        method = choose.choice(["auto", "read-write"])
        lost = 0
        try:
            if choose.random() < 0.5:
                penstock.relay(taken, end, method=method, timeout=0.02)
            else:
                ticket = penstock.pipes.start_relay(taken, end, method=method)
                time.sleep(choose.random() * 0.02)
                ticket.cancel()
                ticket.wait(PATIENCE_S)
        except (PenstockError, OSError) as error:
            lost = getattr(error, "bytes_lost", 0)
        drain = Drain(start, choose)
        if is_pipe:
            rest = bytearray()
            while chunk := os.read(taken, 1 << 20):
                rest += chunk
            os.close(taken)
            joined(feed)
        else:
            rest = bytearray(source.read())
        os.close(end)
        got = drain.result()
    assert len(got) + lost + len(rest) == len(data), (
        f"{len(got)} came, {lost} told lost, {len(rest)} left of {len(data)}"
    )
    assert data.startswith(got)
    assert data.endswith(bytes(rest))


@action
def tee(choose: random.Random) -> None:
    """Who leaves harms no other: each gets the stream from where it came to where it left."""
    data = noise(choose)
    start, filled = os.pipe()
    count = choose.randrange(1, 5)
    channels = [channel(choose) for _ in range(count)]
    leaves = [choose.choice([None, None, choose.randrange(1, len(data) + 2)]) for _ in channels]
    drains = [Drain(reader, choose, leave) for (reader, _), leave in zip(channels, leaves, strict=True)]
    own = penstock.Tee(start, *(end for _, end in channels), start=False)
    for end in (start, *(end for _, end in channels)):
        os.close(end)
    if choose.random() < 0.5:
        own.start()
    feed = Feed(filled, data, choose)
    report = own.wait(PATIENCE_S)
    joined(feed)
    del own
    for drain, leave, output in zip(drains, leaves, report.outputs, strict=True):
        got = drain.result()
        assert data.startswith(got)
        assert leave is not None or got == data, f"{len(got)} of {len(data)} bytes, {output}"


@action
def fifos(choose: random.Random) -> None:
    """Openings wait for the other side, and can be cancelled."""
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        path, data = f"{folder}/fifo", noise(choose, 60_000)
        fifo.create(path)
        opening = fifo.open_async(path, "w")
        if choose.random() < 0.3:
            opening.cancel()
            assert broken(lambda: opening.wait(PATIENCE_S)) is not None
            return
        with fifo.open(path, "r") as own, opening.wait(PATIENCE_S) as theirs:
            theirs.write(data)
            theirs.close()
            got = b""
            while chunk := own.read(1 << 20):
                got += chunk
        assert got == data


# --- pipelines --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def assets(choose: random.Random) -> Iterator[tuple[list[str], list[bytes], str]]:
    plain = [noise(choose, 300_000) for _ in range(choose.randrange(1, 20))]
    codec, pack = choose.choice([("zlib", zlib.compress), ("gzip", gzip.compress)])
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        paths = [f"{folder}/{number:03}" for number in range(len(plain))]
        for path, data in zip(paths, plain, strict=True):
            Path(path).write_bytes(pack(data))
        yield paths, plain, codec


@action
def pipeline(choose: random.Random) -> None:
    """What comes out is what was packed, in order; a chunk that is broken is told, and those before it come."""
    with assets(choose) as (paths, plain, codec):
        bad = choose.randrange(len(paths)) if choose.random() < 0.3 else None
        if bad is not None:
            Path(paths[bad]).write_bytes(b"\x00broken")
        stages: list[Any] = [Stage.decompress(codec, workers=choose.choice([1, 3]))]
        stages += choose.choice([[], [Stage.checksum()], [lambda chunk: None], [lambda chunk: bytes(chunk)]])
        skips = choose.random() < 0.5
        source = Source.files(paths, workers=choose.choice([1, 2]))
        depth, on_error = choose.choice([1, 16]), "skip" if skips else "raise"
        with Pipeline(source, *stages, queue_items=depth, on_error=on_error) as line:
            got: list[bytes] = []
            failure = broken(lambda: got.extend(bytes(chunk) for chunk in line))
            skipped = [error.name for error in line.skipped]
        if bad is None:
            assert failure is None
            assert got == plain
        elif skips:
            assert (got, skipped) == ([*plain[:bad], *plain[bad + 1 :]], [paths[bad]])
        else:
            assert isinstance(failure, penstock.PipelineError)
            assert got == plain[:bad]


@action
def pipeline_to_descriptor(choose: random.Random) -> None:
    """Into a pipe, from a file, a pipe or an iterable; its reader may leave."""
    data = choose.randbytes(choose.randrange(1, 1_000_000))
    leave = choose.choice([None, None, choose.randrange(1, len(data) + 1)])
    start, end = channel(choose)
    drain = Drain(start, choose, leave)
    with tempfile.NamedTemporaryFile() as packed:
        packed.write(zlib.compress(data))
        packed.flush()
        feed = None
        if choose.random() < 0.5:
            source: Any = Source.file(packed.name, piece_bytes=choose.choice([1000, 1 << 20]))
            line = Pipeline(source, Stage.decompress("zlib"), sink=Sink.fd(end))
        else:
            taken, filled = os.pipe()
            feed = Feed(filled, data, choose)
            line = Pipeline(Source.fd(taken, piece_bytes=choose.choice([1000, 1 << 20])), sink=Sink.fd(end))
            os.close(taken)
        os.close(end)
        failure = broken(lambda: line.wait(PATIENCE_S))
        line.close()
        if feed is not None:
            joined(feed)
    got = drain.result()
    assert data.startswith(got)
    assert failure is not None or leave is not None or got == data


@action
def pipeline_into_buffers(choose: random.Random) -> None:
    """Into the caller's memory, and out of it."""
    data = [noise(choose, 100_000) for _ in range(choose.randrange(1, 20))]
    areas = [bytearray(100_000) for _ in data]
    with Pipeline(iter(data), sink=Sink.into(areas), queue_items=2) as line:
        assert [bytes(chunk) for chunk in line] == data


@action
def dropped_pipeline(choose: random.Random) -> None:
    """Dropped, closed or in a cycle in the middle of its work: its threads leave."""

    class Owner:
        def __init__(self) -> None:
            self.seen = 0
            source = iter([bytes(1000)] * choose.choice([1, 100]))
            stage = self.stage if choose.random() < 0.5 else (lambda chunk: None)
            self.line = Pipeline(source, stage)

        def stage(self, chunk: Any) -> None:
            self.seen += 1

    owner = Owner()
    if choose.random() < 0.5:
        next(iter(owner.line))
    if choose.random() < 0.3:
        owner.line.close()
    del owner
    gc.collect()


@action
def cancelled_chunks(choose: random.Random) -> None:
    """asyncio: chunks that are late are waited for again."""
    data = [noise(choose, 10_000) for _ in range(30)]

    def source() -> Iterator[bytes]:
        for one in data:
            time.sleep(0.001)
            yield one

    async def all_chunks() -> list[bytes]:
        got = []
        with Pipeline(source()) as line:
            while True:
                try:
                    got.append(
                        bytes(await asyncio.wait_for(anext(line), choose.choice([0.0001, 0.01, PATIENCE_S])))
                    )
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    return got

    assert all(chunk in data for chunk in asyncio.run(all_chunks()))


# --- FFmpeg -----------------------------------------------------------------------------------------------


@action
def encoder(choose: random.Random) -> None:
    """A report means that the file has the frames; an FFmpeg that is killed is an error."""
    frames = [choose.randbytes(64 * 48 * 3) for _ in range(choose.randrange(1, 40))]
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        path = Path(folder) / "out.nut"
        own = Encoder(path, size=(64, 48), fps=25, codec="rawvideo", output_pixel_format="rgb24")
        fate = choose.choice(["closed", "closed", "closed", "killed", "aborted", "dropped"])
        failure = None
        for number, frame in enumerate(frames):
            if number == len(frames) // 2 and fate == "killed":
                os.kill(own.pid, signal.SIGKILL)
            push = choose.choice([own.write, lambda frame: own.submit(frame).wait(PATIENCE_S)])
            failure = broken(lambda push=push, frame=frame: push(frame))
            if failure is not None:
                break
        if fate == "aborted":
            own.abort()
            return
        if fate == "dropped":
            with contextlib.suppress(Exception):
                own.abort()
            return
        failure = broken(lambda: own.close(PATIENCE_S)) or failure
        if fate == "killed":
            assert isinstance(failure, EncoderError), failure
            return
        assert failure is None, failure
        assert own.report is not None
        assert own.report.frames_encoded == len(frames)
        assert frames_by_ffmpeg(path) == b"".join(frames)


@action
def decoder(choose: random.Random) -> None:
    """All frames, each once; or an error, or none more after a close. By libav, or by a program that may be killed."""
    path, expected = video()
    by_program = DecoderSettings(ffmpeg=find_ffmpeg(), queue_items=choose.choice([1, 4]))
    settings = choose.choice([by_program, DecoderSettings()])
    own = Decoder(path, settings=settings)
    fate = choose.choice(["read", "read", "closed", *["killed"] * (settings is by_program)])
    got, at = [], choose.randrange(len(expected))
    try:
        for number, frame in enumerate(own):
            got.append(frame.tobytes())
            if number == at and fate == "killed":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(own.pid, signal.SIGKILL)
            if number == at and fate == "closed":
                break
        assert fate != "read" or got == expected
    except DecoderError:
        assert fate == "killed"
    own.close()
    assert got == expected[: len(got)]


# --- forks and signals ------------------------------------------------------------------------------------


@action
def fork(choose: random.Random) -> None:
    """A child makes streams of its own, and keeps nobody from the end of file; its parent goes on."""
    data = choose.randbytes(200_000)
    reader, end = os.pipe()
    drain = Drain(reader, choose)
    own = penstock.Writer(end, mode=choose.choice(MODES))
    own.submit(data, timeout=PATIENCE_S)
    os.close(end)
    lasts_s = choose.choice([0, 0, 0.5])
    pid = os.fork()
    if pid == 0:
        try:
            inner_reader, inner_end = os.pipe()
            ticket = _native._pipe(data[:50_000], inner_end)
            got = b""
            while len(got) < 50_000:
                got += os.read(inner_reader, 1 << 20)
            ticket.wait(PATIENCE_S)
            time.sleep(lasts_s)
            os._exit(0 if got == data[:50_000] else 1)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(2)
    own.close(PATIENCE_S)
    assert drain.result() == data
    assert_ends(pid)


def assert_ends(pid: int) -> None:
    begun_s = time.monotonic()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, (
                f"the child ended with {os.waitstatus_to_exitcode(status)}"
            )
            return
        if time.monotonic() - begun_s > PATIENCE_S:
            where = [
                f"{(task / 'comm').read_text().strip()} in {(task / 'wchan').read_text()}"
                for task in Path(f"/proc/{pid}/task").iterdir()
            ]
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child of a fork hangs: {where}")
        time.sleep(0.01)


@action
def fork_beside_python_threads(choose: random.Random) -> None:
    """The parent's native threads enter and leave Python while it forks."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with Pipeline(iter([b"x" * 1000] * 5), lambda chunk: None) as line:
                for _ in line:
                    pass

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(choose.randrange(5, 30)):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            assert_ends(pid)
    finally:
        is_over.set()
        for thread in threads:
            joined(thread)


class Interrupted(Exception):
    """What our signal handler raises."""


def alarmed(delay_s: float, call: Callable[[], object]) -> None:
    """Calls it. The exception of the alarm's handler may come at any moment of that, and at no other."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        pass


@alone
def signals(choose: random.Random) -> None:
    """An exception of a handler, at any point of a wait: nothing is lost, and the next try goes on."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    signal.signal(signal.SIGALRM, interrupt)
    data = [choose.randbytes(choose.choice([20, 200_000])) for _ in range(40)]
    reader, end = os.pipe()
    drain = Drain(reader, choose)
    own = penstock.Writer(end, queue_items=1)
    for frame in data:
        push = functools.partial(choose.choice([own.write, own.submit]), frame, timeout=PATIENCE_S)
        accepted = own.stats.bytes_accepted
        while own.stats.bytes_accepted == accepted:
            alarmed(choose.random() * 0.01 + 1e-5, push)
    own.close(PATIENCE_S)
    os.close(end)
    assert drain.result() == b"".join(data)


@alone
def interrupted_constructors(choose: random.Random) -> None:
    """An exception at any point of a constructor leaves no process and no descriptor."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    path, _ = video()
    signal.signal(signal.SIGALRM, interrupt)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        # What an interrupted call leaves is finished in the background: each has a file of its own.
        numbers = itertools.count()
        makers = [
            lambda: Encoder(f"{folder}/{next(numbers)}.nut", size=(64, 48), fps=25, codec="rawvideo").abort(),
            lambda: Decoder(path).close(),
        ]
        for make in makers:
            make()
        before = Holdings.now().settled()
        for _ in range(12):
            alarmed(choose.random() * 0.12 + 1e-4, choose.choice(makers))
        assert not (kept := before.kept()), kept


# --- without --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def everything() -> Iterator[list[Callable[[], object]]]:
    """Calls that take descriptors and threads. What they need besides is there already."""
    clip = video()[0]
    # Without an end, so that no call waits for another's bytes or room.
    reader, own_end = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        Path(folder).chmod(0o777)
        yield [
            lambda: penstock.Writer(own_end).abort(),
            lambda: _native._pipe(b"x", own_end).wait(PATIENCE_S),
            lambda: penstock.Reader(reader, frame_bytes=10).close(),
            lambda: penstock.relay(reader, own_end, 10),
            lambda: penstock.pipes.start_relay(reader, own_end, 10).wait(PATIENCE_S),
            lambda: penstock.Tee(reader, own_end).cancel(),
            lambda: Pipeline([b"x"], lambda chunk: None).close(),
            lambda: Pipeline([b"x"], sink=Sink.fd(own_end)).wait(PATIENCE_S),
            lambda: [end.close() for end in penstock.pipes.make_pipe()],
            lambda: Encoder(f"{folder}/out.nut", size=(16, 16), fps=25, codec="rawvideo").abort(),
            lambda: Decoder(clip).close(),
        ]
    for one in (reader, own_end):
        os.close(one)


def refused_or_done(calls: list[Callable[[], object]]) -> None:
    """Each call goes well or says what was refused; more than that is a fault."""
    for call in calls:
        try:
            call()
        except (OSError, PenstockError, MemoryError):
            pass
        except RuntimeError as error:
            assert "thread" in str(error), repr(error)


def refused_with(limit: int, rooms: list[int], used: Callable[[], int]) -> None:
    """With so much room to each limit: an error each, nothing left behind, and everything works again afterwards."""
    with everything() as calls:
        refused_or_done(calls)
        before = Holdings.now().settled()
        soft, hard = resource.getrlimit(limit)
        for room in rooms:
            resource.setrlimit(limit, (used() + room, hard))
            try:
                refused_or_done(calls)
            finally:
                resource.setrlimit(limit, (soft, hard))
        assert not (kept := before.kept()), kept
    for check in (writer, reader, relay, pipeline):
        check(random.Random(1))


@alone
def no_descriptors(choose: random.Random) -> None:
    """With few left, and none."""
    rooms = [0, 1, 2, choose.randrange(3, 30)]
    refused_with(resource.RLIMIT_NOFILE, rooms, lambda: len(Holdings.now().fds))


@alone
def no_threads(choose: random.Random) -> None:
    """With few left, and none."""
    if os.getuid() == 0:  # whom the limit does not hold for
        video()[0].parent.chmod(0o755)
        with everything() as calls:  # imports all that is needed, while it may be read
            refused_or_done(calls)
        os.setuid(40_000 + os.getpid() % 20_000)
    rooms = [0, 1, choose.randrange(2, 8)]
    refused_with(resource.RLIMIT_NPROC, rooms, lambda: len([*Path("/proc/self/task").iterdir()]))


# --- ends of programs -----------------------------------------------------------------------------------


@alone
def end_of_program(choose: random.Random) -> None:
    """What is queued at a normal end is delivered, or the end says that it was not."""
    size, leave = choose.choice([1000, 4 << 20]), choose.random() < 0.5
    program = (
        f"import os, sys, penstock; penstock._native._pipe(bytes({size}), 1, mode={choose.choice(MODES)!r})"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        got = 0
        while chunk := process.stdout.read(65536):
            got += len(chunk)
            if leave and got >= 65536:
                process.stdout.close()
                break
        said = process.stderr.read().decode()
        code = process.wait(PATIENCE_S)
    if got == size:
        assert (code, said) == (0, "")
    else:
        assert said, f"{got} of {size} bytes were read, the exit code is {code}, and nothing was said"


@alone
def reaped_by_others(choose: random.Random) -> None:
    """Where FFmpeg's exit status is lost, success is not claimed without it having ended well."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        own = Encoder(f"{folder}/out.nut", size=(64, 48), fps=25, codec="rawvideo")
        is_killed = choose.random() < 0.5
        failure = None
        for number in range(20):
            failure = failure or broken(lambda: own.write(bytes(64 * 48 * 3)))
            if number == 10 and is_killed:
                os.kill(own.pid, signal.SIGKILL)
        failure = broken(lambda: own.close(PATIENCE_S)) or failure
        assert not is_killed or isinstance(failure, EncoderError)
