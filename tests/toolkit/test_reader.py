"""Frames out of a descriptor: whole, in order, in memory that is theirs for as long as anybody looks at it."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.streams import noise
from support.this_process import open_fds, workers

import penstock
from penstock.results import Frame, ReaderStats


class WriterThread:
    """Writes pieces to a descriptor on a Python thread, and closes it."""

    def __init__(self, fd: int, pieces: list[bytes], *, gate: threading.Event | None = None) -> None:
        self.fd, self.pieces, self.gate = fd, pieces, gate
        self.written = 0
        self.thread = threading.Thread(target=self._write, daemon=True)
        self.thread.start()

    def _write(self) -> None:
        if self.gate is not None:
            self.gate.wait()
        for piece in self.pieces:
            rest = memoryview(piece)
            while rest:
                written = os.write(self.fd, rest)
                rest = rest[written:]
                self.written += written
        os.close(self.fd)

    def join(self) -> None:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


def frames_of(reader: penstock.Reader) -> list[bytes]:
    return [bytes(frame) for frame in reader]


def cut(data: bytes, seed: int) -> list[bytes]:
    """The same bytes in pieces of odd sizes."""
    dice, pieces, start = random.Random(seed), [], 0
    while start < len(data):
        size = max(1, int(len(data) ** dice.random()))
        pieces.append(data[start : start + size])
        start += size
    return pieces


@pytest.fixture
def idle(pair: tuple[int, int]) -> Iterator[tuple[penstock.Reader, int]]:
    """A reader of frames of 4 bytes, and the end of its pipe to write to."""
    with penstock.Reader(pair[0], frame_bytes=4) as reader:
        yield reader, pair[1]


def test_smoke(pair: tuple[int, int]) -> None:
    reader, writer = pair
    with penstock.Reader(reader, frame_bytes=3) as frames:
        os.write(writer, b"onetwo")
        os.close(writer)
        assert frames_of(frames) == [b"one", b"two"]
        assert frames.read() is None, "the end again"
        assert not frames.closed
    assert frames.closed


def test_a_frame_is_a_writable_buffer_without_a_copy(idle: tuple[penstock.Reader, int]) -> None:
    reader, writer = idle
    os.write(writer, b"\0\1\2\3")
    frame = reader.read()
    assert frame is not None
    array = np.asarray(frame)
    assert (array.dtype, array.shape, array.flags.writeable) == (np.uint8, (4,), True)
    assert (frame.nbytes, len(frame), frame.index) == (4, 4, 0)
    assert repr(frame) == "<Frame 0: 4 bytes>"
    array[0] = 9
    assert bytes(frame) == b"\t\1\2\3"
    assert array.ctypes.data % 4096 == 0
    view = memoryview(frame)
    assert (view.format, view.ndim, view.c_contiguous) == ("B", 1, True)


def test_memory_is_not_reused_while_a_view_lives(pair: tuple[int, int]) -> None:
    reader, writer = pair
    size, count = 100_000, 40
    pieces = [bytes([value]) * size for value in range(count)]
    written = WriterThread(writer, pieces)
    views = []
    with penstock.Reader(reader, frame_bytes=size, queue_items=2) as stream:
        for frame in stream:
            views.append(np.asarray(frame).reshape(100, 1000)[5:, ::2])
            del frame
    written.join()
    gc.collect()
    assert [set(view.ravel().tolist()) for view in views] == [{value} for value in range(count)]
    assert len({view.__array_interface__["data"][0] for view in views}) == count


def test_memory_is_reused_when_the_last_view_is_gone(pair: tuple[int, int]) -> None:
    reader, writer = pair
    size = 1 << 20
    written = WriterThread(writer, [bytes(size)] * 50)
    with penstock.Reader(reader, frame_bytes=size, queue_items=2) as stream:
        places = {np.asarray(frame).ctypes.data for frame in stream}
    written.join()
    assert len(places) <= 2 + 2 + 2, (
        "those that wait, those that are kept, the one read and the one looked at"
    )


def test_readinto_copies_into_anything_with_room(pair: tuple[int, int]) -> None:
    reader, writer = pair
    data = noise(6 * 16)
    with penstock.Reader(reader, frame_bytes=16) as stream:
        os.write(writer, data)
        exact, larger = bytearray(16), np.full(20, 7, np.uint8)
        floats = np.zeros((2, 2), np.float32)
        assert [stream.readinto(exact), stream.readinto(larger), stream.readinto(floats)] == [16] * 3
        assert bytes(exact) == data[:16]
        assert larger.tobytes() == data[16:32] + b"\7" * 4
        assert floats.tobytes() == data[32:48]
        with pytest.raises(ValueError):
            stream.readinto(bytearray(15))
        with pytest.raises(BufferError):
            stream.readinto(bytes(16))
        with pytest.raises(ValueError):
            stream.readinto(np.zeros((8, 8), np.uint8)[:, ::2])
        with pytest.raises(TypeError):
            stream.readinto(16)
        exact.extend(b"not held any more")
        rest = bytearray(16)
        got = b"".join(bytes(rest) for _ in range(3) if stream.readinto(rest))
        assert got == data[48:], "what was refused took no frame"
        os.close(writer)
        assert stream.readinto(rest) == 0
        assert stream.readinto(rest, timeout=0) == 0


def test_latest_gives_whole_frames_of_a_source_that_does_not_wait(pair: tuple[int, int]) -> None:
    reader, writer = pair
    size, count = 300_000, 200
    pieces = [piece for value in range(count) for piece in cut(bytes([value]) * size, value)]
    written = WriterThread(writer, pieces)
    indices = []
    with penstock.Reader(reader, frame_bytes=size, queue_items=2) as stream:
        while (frame := stream.latest(PATIENCE_S)) is not None:
            assert set(np.asarray(frame).tolist()) == {frame.index}
            indices.append(frame.index)
        assert indices == sorted(set(indices))
        assert indices[-1] == count - 1
        assert stream.stats.frames_dropped == count - len(indices)
    written.join()


def test_asyncio_iterates_while_the_loop_goes_on(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def write() -> None:
        for value in range(20):
            os.write(writer, bytes([value]) * 2)
            await asyncio.sleep(0)
            os.write(writer, bytes([value]) * 2)
        os.close(writer)

    async def main() -> list[bytes]:
        writing = asyncio.create_task(write())
        got = [bytes(frame) async for frame in penstock.Reader(reader, frame_bytes=4)]
        await writing
        return got

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == [bytes([value]) * 4 for value in range(20)]


def test_asyncio_tasks_share_a_reader_and_cancel_without_loss(idle: tuple[penstock.Reader, int]) -> None:
    reader, writer = idle
    before = len(open_fds())

    async def collect() -> list[bytes]:
        return [bytes(frame) async for frame in reader]

    async def main() -> list[bytes]:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(reader), 0.01)
        tasks = [asyncio.create_task(collect()) for _ in range(3)]
        await asyncio.sleep(0)
        for value in range(30):
            os.write(writer, bytes([value]) * 4)
        os.write(writer, b"piece")
        os.close(writer)
        got = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [answer for answer in got if isinstance(answer, BaseException)]
        assert [type(fault) for fault in faults] == [penstock.TruncatedStreamError] * 3
        return got

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    stats = reader.stats
    assert (stats.frames_read, stats.frames_delivered) == (31, 31)
    assert len(open_fds()) <= before


def test_close_ends_an_asyncio_wait(idle: tuple[penstock.Reader, int]) -> None:
    reader, _ = idle

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, reader.close)
        with pytest.raises(penstock.ClosedError):
            await anext(reader)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def test_a_regular_file_is_read_from_its_position(tmp_path: Path) -> None:
    data = noise(1_000_000)
    path = tmp_path / "frames"
    path.write_bytes(b"head" + data)
    with path.open("rb", buffering=0) as file:
        assert file.read(4) == b"head"
        with penstock.Reader(file, frame_bytes=250_000) as stream:
            assert b"".join(frames_of(stream)) == data
            assert stream.stats.capacity_bytes is None


@pytest.mark.linux("FIFOs")
@pytest.mark.parametrize("is_blocking", [True, False])
def test_a_fifo_is_waited_for_until_its_first_writer_comes(tmp_path: Path, is_blocking: bool) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, is_blocking)
    with penstock.Reader(reader, frame_bytes=4) as stream:
        with pytest.raises(penstock.StalledError):
            stream.read(timeout=0.05)
        writer = os.open(path, os.O_WRONLY)
        os.write(writer, b"wholehal")
        os.close(writer)
        assert frames_of(stream) == [b"whol", b"ehal"]
        assert os.get_blocking(reader) is is_blocking, "the mode is the caller's"
    os.close(reader)


def test_descriptor_number_can_be_closed_and_reused_at_once(pair: tuple[int, int], tmp_path: Path) -> None:
    reader, writer = pair
    stream = penstock.Reader(reader, frame_bytes=4)
    with (tmp_path / "other").open("wb+") as other:
        other.write(b"bad!" * 10)
        other.seek(0)
        os.dup2(other.fileno(), reader)
        os.write(writer, b"goodgood")
        os.close(writer)
        assert frames_of(stream) == [b"good", b"good"]
        assert other.tell() == 0


def test_stats_are_a_snapshot(idle: tuple[penstock.Reader, int]) -> None:
    reader, writer = idle
    os.write(writer, b"wholehalf")
    assert eventually(lambda: reader.stats.bytes_read == 9)
    stats = reader.stats
    assert isinstance(stats, ReaderStats)
    assert (stats.frames_read, stats.frames_waiting, stats.frames_delivered) == (2, 2, 0)
    assert repr(stats) == "<ReaderStats 2 frames read, 0 delivered, 0 dropped, 2 waiting>"
    assert isinstance(reader.read(), Frame)
    with pytest.raises(penstock.StalledError):
        [reader.read(timeout=0.1) for _ in range(2)]
    reader.close()
    stats = reader.stats
    assert (stats.frames_read, stats.frames_waiting, stats.frames_delivered) == (2, 0, 2)
    assert stats.caller_wait_s > 0
    assert stats.input_wait_s > 0


def test_dropped_reader_leaves_no_thread_or_descriptor(pair: tuple[int, int]) -> None:
    reader, writer = pair
    before, threads = open_fds(), workers()
    streams = [penstock.Reader(reader, frame_bytes=4) for _ in range(5)]
    assert eventually(
        lambda: len(workers() - threads) == 5
    )  # a thread has its name a moment after it was born
    del streams
    gc.collect()
    assert eventually(lambda: workers() <= threads)
    # What an earlier test has left may go meanwhile.
    assert not open_fds().items() - before.items()
    os.write(writer, b"ours")
    assert os.read(reader, 4) == b"ours"
