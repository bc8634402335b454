"""Pipelines in Python: real files, pipes and sockets through native stages; what fails, what is left, what stays."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import gzip
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import PATIENCE_S, eventually
from support.processes import interrupted, run_script, succeeded
from support.streams import ReaderThread, noise
from support.this_process import are_asleep, open_fds, rss_bytes, workers

import penstock
from penstock import Pipeline, PipelineError
from penstock._native import _LoopWaker
from penstock.pipeline import Chunk, ChunkDataError, ChunkReadError, Sink, Source, Stage


def asset(size: int, seed: int = 0) -> bytes:
    """Half noise, half zeros, so that it can be compressed and no piece looks like another."""
    data = bytearray(size)
    data[::2] = noise((size + 1) // 2, seed)
    return bytes(data)


def through(*command: str) -> Callable[[bytes], bytes]:
    def pack(data: bytes) -> bytes:
        return subprocess.run([*command, "-c"], input=data, capture_output=True, check=True).stdout

    return pack


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "zstd": through("zstd", "-q"),
    "lz4": through("lz4", "-q"),
}


@pytest.fixture(params=sorted(PACKERS))
def codec(request: pytest.FixtureRequest) -> str:
    try:
        PACKERS[request.param](b"")
    except FileNotFoundError as missing:
        pytest.skip(f"{missing.filename} is not installed")
    return str(request.param)


def stored(folder: Path, assets: list[bytes], pack: Callable[[bytes], bytes] = zlib.compress) -> list[Path]:
    paths = [folder / f"asset-{number:03}" for number in range(len(assets))]
    for path, data in zip(paths, assets, strict=True):
        path.write_bytes(pack(data))
    return paths


@pytest.fixture
def plain() -> list[bytes]:
    return [asset(20_000 + 778 * number, number) for number in range(12)]


@pytest.fixture(autouse=True)
def every_thread_ends() -> Iterator[None]:
    before = workers()
    yield
    gc.collect()
    assert eventually(lambda: workers() <= before)


def test_pipeline_accepts_a_reader_as_source() -> None:
    reader, writer = os.pipe()
    frames = [noise(50_000, number) for number in range(12)]
    with os.fdopen(writer, "wb") as stream, penstock.Reader(reader, frame_bytes=50_000) as source:
        os.close(reader)
        thread = threading.Thread(target=lambda: (stream.write(b"".join(frames)), stream.close()))
        thread.start()
        with Pipeline(source, Stage.checksum("crc32")) as pipeline:
            got = [(bytes(chunk), chunk.checksum) for chunk in pipeline]
        thread.join()
    assert got == [(frame, zlib.crc32(frame)) for frame in frames]


def test_assets_come_out_whole_and_in_order(tmp_path: Path, plain: list[bytes], codec: str) -> None:
    paths = stored(tmp_path, plain, PACKERS[codec])
    for name in (codec, "auto"):
        with Pipeline(Source.files(paths, workers=2), Stage.decompress(name, workers=3)) as pipeline:
            chunks = list(pipeline)
        assert [bytes(chunk) for chunk in chunks] == plain
        assert [chunk.name for chunk in chunks] == list(map(str, paths))
        assert [chunk.index for chunk in chunks] == list(range(12))
        assert {chunk.offset for chunk in chunks} == {0}


def test_a_pattern_finds_files_sorted(tmp_path: Path, plain: list[bytes]) -> None:
    paths = stored(tmp_path, plain)
    with Pipeline(Source.files(f"{tmp_path}/asset-0*"), Stage.decompress()) as pipeline:
        assert [chunk.name for chunk in pipeline] == list(map(str, paths))
    with Pipeline(Source.files(paths[3])) as pipeline:
        assert [bytes(chunk) for chunk in pipeline] == [paths[3].read_bytes()]
    with pytest.raises(FileNotFoundError):
        Source.files(f"{tmp_path}/nothing-*")
    (tmp_path / "x[1].bin").write_bytes(b"this")
    (tmp_path / "x1.bin").write_bytes(b"not this")
    with Pipeline(Source.files(tmp_path / "x[1].bin")) as pipeline:
        assert [bytes(chunk) for chunk in pipeline] == [b"this"]


@pytest.mark.linux("names of files that are no text")
def test_file_names_that_are_no_text_are_kept(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    Path(path).write_bytes(b"odd")
    with Pipeline(Source.files([path])) as pipeline:
        assert [(chunk.name, bytes(chunk)) for chunk in pipeline] == [(path, b"odd")]


def test_a_compressed_stream_comes_through_a_pipe(codec: str) -> None:
    data = asset(3_000_000)
    packed = PACKERS[codec](data)
    reader, writer = os.pipe()

    def feed() -> None:
        with os.fdopen(writer, "wb") as file:
            file.write(packed)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with Pipeline(Source.fd(reader, 100_000), Stage.decompress()) as pipeline:
        os.close(reader)
        chunks = list(pipeline)
    feeder.join()
    assert b"".join(chunks) == data
    offsets = itertools.accumulate((chunk.nbytes for chunk in chunks), initial=0)
    assert [chunk.offset for chunk in chunks] == list(offsets)[:-1]


def test_iterable_can_be_decompressed_as_a_stream() -> None:
    data = asset(500_000)
    packed = gzip.compress(data)
    pieces = (packed[start : start + 777] for start in range(0, len(packed), 777))
    with Pipeline(pieces, Stage.decompress("gzip", streamed=True), max_chunk_bytes=100_000) as pipeline:
        chunks = list(pipeline)
    assert b"".join(chunks) == data
    assert max(chunk.nbytes for chunk in chunks) <= 100_000


@pytest.mark.linux("sockets as descriptors")
def test_socket_data_is_passed_on_as_it_arrives() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, Pipeline(Source.fd(theirs)) as pipeline:
        for word in (b"one", b"two"):
            ours.sendall(word)
            chunk = pipeline.read(PATIENCE_S)
            assert chunk is not None
            assert bytes(chunk) == word
        with pytest.raises(penstock.StalledError):
            pipeline.read(timeout=0.01)
        ours.shutdown(socket.SHUT_WR)
        assert pipeline.read(PATIENCE_S) is None


@pytest.mark.linux("sockets as descriptors")
def test_reset_raises_after_the_data_before_it() -> None:
    ours, theirs = socket.socketpair()
    ours.send(b"nobody reads this, so that the close below is a reset")
    theirs.send(b"d" * 4000)
    theirs.close()
    got = []
    with ours, Pipeline(Source.fd(ours)) as pipeline, pytest.raises(ChunkReadError) as reset:
        got.extend(bytes(chunk) for chunk in pipeline)
    assert (b"".join(got), reset.value.errno, reset.value.offset) == (b"d" * 4000, errno.ECONNRESET, 4000)


def test_an_iterable_may_use_its_buffer_again() -> None:
    def numbers() -> Iterator[bytearray]:
        buffer = bytearray(8)
        for number in range(1000):
            buffer[:] = number.to_bytes(8, "little")
            yield buffer

    with Pipeline(numbers(), queue_items=3) as pipeline:
        got = [int.from_bytes(chunk, "little") for chunk in pipeline]
    assert got == list(range(1000))


def test_an_iterable_may_name_its_buffers() -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.zeros(0)}
    with Pipeline(arrays.items()) as pipeline:
        got = {chunk.name: np.frombuffer(chunk, np.int64) for chunk in pipeline}
    assert list(got) == ["a", "b"]
    assert got["a"].tolist() == [0, 1, 2, 3, 4, 5]


# --- chunks -----------------------------------------------------------------------------------------------------------


def test_chunk_exposes_its_memory_without_a_copy() -> None:
    with Pipeline([b"frame" * 1000]) as pipeline:
        chunk = next(pipeline)
    array = np.asarray(chunk)
    assert (array.dtype, array.shape) == (np.uint8, (5000,))
    assert array.ctypes.data % 4096 == 0
    array[0] = 0
    assert memoryview(chunk)[0] == 0, "it is the same memory, and can be written to"
    assert len(chunk) == chunk.nbytes == 5000
    assert repr(chunk) == '<Chunk 0 of "0": 5000 bytes at 0>'


def test_memory_is_reused_after_the_last_view_is_gone() -> None:
    pipeline = Pipeline([bytes(10_000)])
    chunk = next(pipeline)
    view = np.asarray(chunk)[10:20]
    del chunk
    assert pipeline.stats.pool_free_bytes == 0
    view[:] = 7
    del view
    assert pipeline.stats.pool_free_bytes >= 10_000
    pipeline.close()


# --- callables --------------------------------------------------------------------------------------------------------


def test_a_callable_passes_on_or_replaces() -> None:
    seen = []

    def look(chunk: Chunk) -> None:
        seen.append((chunk.index, bytes(chunk)))
        with pytest.raises(ValueError):
            np.asarray(chunk)[0] = 1

    stages = (
        look,
        lambda chunk: bytes(chunk)[::-1],
        lambda chunk: chunk,
        Stage.call(lambda chunk: np.array([7, 8], np.uint8)),
    )
    with Pipeline([b"ab", b"cd"], *stages[:3]) as pipeline:
        assert [bytes(chunk) for chunk in pipeline] == [b"ba", b"dc"]
    assert seen == [(0, b"ab"), (1, b"cd")]
    with Pipeline([b"ab"], stages[3]) as pipeline:
        assert bytes(next(pipeline)) == b"\7\10"


def test_callables_keep_their_threads_variables() -> None:
    local = threading.local()

    def count(chunk: Chunk) -> bytes:
        local.count = getattr(local, "count", 0) + 1
        return bytes([local.count])

    with Pipeline([b""] * 5, count) as pipeline:
        assert [bytes(chunk)[0] for chunk in pipeline] == [1, 2, 3, 4, 5]


def test_workers_call_concurrently() -> None:
    barrier = threading.Barrier(3, timeout=PATIENCE_S)
    with Pipeline([b"x"] * 6, Stage.call(lambda chunk: (barrier.wait(), None)[1], workers=3)) as pipeline:
        assert len(list(pipeline)) == 6


def test_a_writable_chunk_that_a_callable_returns_is_copied() -> None:
    [own] = Pipeline([b"before"])
    [chunk] = Pipeline([b"x"], lambda chunk: own)
    memoryview(own)[:] = b"after!"
    assert bytes(chunk) == b"before"


def test_exception_of_a_callable_becomes_the_failure_of_its_chunk() -> None:
    def touchy(chunk: Chunk) -> None:
        if chunk.index == 2:
            raise KeyError("two")

    pipeline = Pipeline([b"a", b"bc", b"d", b"e"], touchy)
    assert [bytes(next(pipeline)), bytes(next(pipeline))] == [b"a", b"bc"]
    with pytest.raises(PipelineError) as raised:
        next(pipeline)
    error = raised.value
    assert (error.name, error.offset, error.index, error.stage) == ("2", 3, 2, "touchy")
    assert isinstance(error.__cause__, KeyError)
    with pytest.raises(PipelineError) as again:
        next(pipeline)
    assert (again.value.index, again.value.__cause__) == (2, error.__cause__)
    pipeline.close()


def test_an_iterable_that_raises_ends_the_pipeline_there() -> None:
    class Raising:
        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            if next(numbers) == 0:
                return b"a"
            raise KeyError("for ever")

    numbers = itertools.count()
    with Pipeline(Raising(), on_error="skip") as pipeline:
        assert [bytes(chunk) for chunk in pipeline] == [b"a"]
        (skipped,) = pipeline.skipped
    assert isinstance(skipped.__cause__, KeyError)


def test_an_item_that_is_no_buffer_is_skipped() -> None:
    items = [b"a", 5, ("name", "no buffer"), b"c"]
    with Pipeline(items, on_error="skip") as pipeline:
        assert [(bytes(chunk), chunk.index) for chunk in pipeline] == [(b"a", 0), (b"c", 3)]
        assert [type(error.__cause__) for error in pipeline.skipped] == [TypeError, TypeError]


# --- faults -----------------------------------------------------------------------------------------------------------


def broken(folder: Path, codec: str) -> list[Path]:
    good = PACKERS[codec](asset(50_000))
    contents = {
        "good": good,
        "truncated": good[:-30],
        "bomb": PACKERS[codec](bytes(3_000_000)),
        "none": b"this is not compressed",
        "empty": b"",
        "last": good,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents] + [folder / "missing"]


def test_skipped_faults_are_listed(tmp_path: Path, codec: str) -> None:
    paths = broken(tmp_path, codec)
    with Pipeline(
        Source.files(paths), Stage.decompress(codec, workers=2), max_chunk_bytes=2_000_000, on_error="skip"
    ) as pipeline:
        assert [Path(chunk.name).name for chunk in pipeline] == ["good", "last"]
        skipped = pipeline.skipped
    assert [Path(error.name).name for error in skipped] == ["truncated", "bomb", "none", "empty", "missing"]
    assert "truncated" in skipped[0].reason and "2000000 bytes" in skipped[1].reason
    assert 0 < skipped[0].offset <= (tmp_path / "truncated").stat().st_size
    missing = skipped[-1]
    assert isinstance(missing, OSError)
    assert (missing.errno, missing.filename) == (2, str(tmp_path / "missing"))
    for error in skipped:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error)), "they can go between processes"
    assert all(isinstance(error, ValueError) for error in skipped[:-1])


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    cases: list[tuple[type[Exception], Callable[[], object]]] = [
        (ValueError, lambda: Pipeline([], Stage.decompress("bzip2"))),  # type: ignore[arg-type]
        (ValueError, lambda: Pipeline([], Stage.checksum("md5"))),  # type: ignore[arg-type]
        (ValueError, lambda: Pipeline([], on_error="ignore")),  # type: ignore[arg-type]
        (ValueError, lambda: Pipeline([], queue_items=0)),
        (ValueError, lambda: Pipeline([], max_chunk_bytes=0)),
        (ValueError, lambda: Pipeline([], Stage.checksum(workers=0))),
        (ValueError, lambda: Pipeline(Source.file(tmp_path, 0))),
        (ValueError, lambda: Pipeline(Source.fd(reader), Stage.decompress(workers=2))),
        (ValueError, lambda: Pipeline([], policies={"decompress": penstock.cpu.ThreadPolicy()})),
        (ValueError, lambda: Pipeline([], policies={"writer": penstock.cpu.ThreadPolicy()})),
        (TypeError, lambda: Pipeline([], policies="below-normal")),  # type: ignore[arg-type]
        (TypeError, lambda: Pipeline(b"bytes")),
        (TypeError, lambda: Pipeline(7)),  # type: ignore[arg-type]
        (TypeError, lambda: Pipeline([], sink=writer)),  # type: ignore[arg-type]
        (TypeError, lambda: Pipeline([], sink=Sink.into(7))),  # type: ignore[arg-type]
        (OSError, lambda: Pipeline(Source.fd(writer))),
        (OSError, lambda: Pipeline([], sink=Sink.fd(reader))),
    ]
    for error, make in cases:
        with pytest.raises(error):
            make()
    os.close(reader)
    os.close(writer)


# --- leaving ----------------------------------------------------------------------------------------------------------


def endless() -> Iterator[bytes]:
    return itertools.repeat(bytes(1000))


def test_pipeline_can_be_closed_at_any_stage() -> None:
    fds = open_fds()
    reader, writer = os.pipe()
    out_reader, out_writer = os.pipe()
    lines: list[Callable[[], Pipeline]] = [
        lambda: Pipeline(Source.fd(reader)),
        lambda: Pipeline(Source.fd(reader), Stage.decompress("gzip")),
        lambda: Pipeline(endless(), Stage.checksum(workers=3), queue_items=2),
        lambda: Pipeline(endless(), lambda chunk: time.sleep(0.05), queue_items=2),
        lambda: Pipeline(endless(), sink=Sink.fd(out_writer)),
        lambda: Pipeline(endless(), sink=Sink.into(bytearray(1000) for _ in itertools.count())),
    ]
    for make in lines:
        for leave in (Pipeline.close, Pipeline.__del__):
            before = workers()
            pipeline = make()
            assert eventually(lambda: are_asleep(workers))
            leave(pipeline)
            del pipeline
            assert eventually(lambda before=before: workers() <= before)  # type: ignore[misc]
    for number in (reader, writer, out_reader, out_writer):
        os.close(number)
    gc.collect()
    # A thread drops what it had after its end is told.
    assert eventually(lambda: open_fds() == fds)


def test_block_that_raises_closes_the_pipeline() -> None:
    with pytest.raises(RuntimeError), Pipeline(endless(), Stage.checksum()) as pipeline:
        next(pipeline)
        raise RuntimeError("enough")
    assert pipeline.closed
    with pytest.raises(penstock.ClosedError):
        next(pipeline)


def test_close_wakes_a_waiting_reader() -> None:
    reader, writer = os.pipe()
    pipeline = Pipeline(Source.fd(reader))
    raised = []

    def wait() -> None:
        try:
            next(pipeline)
        except penstock.ClosedError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    if sys.platform != "win32":  # where nothing tells whether a thread sleeps
        assert eventually(lambda: are_asleep(lambda: {thread.native_id}))
    pipeline.close()
    thread.join(PATIENCE_S)
    assert len(raised) == 1
    os.close(reader)
    os.close(writer)


def test_a_callable_may_close_its_pipeline() -> None:
    pipelines: list[Pipeline] = []
    ready = threading.Event()

    def give_up(chunk: Chunk) -> None:
        ready.wait(PATIENCE_S)
        pipelines[0].close()

    pipelines.append(Pipeline(endless(), give_up))
    ready.set()
    with pytest.raises(penstock.ClosedError):
        next(pipelines[0])
    pipelines[0].close()


def test_closed_pipeline_releases_callables_and_iterables() -> None:
    class Feed:
        def __iter__(self) -> Iterator[bytes]:
            return endless()

    def look(chunk: Chunk) -> None: ...

    feed = Feed()
    gone = weakref.ref(look), weakref.ref(feed)
    pipeline = Pipeline(feed, look)
    next(pipeline)
    pipeline.close()
    del feed, look
    # A thread that is in a call has what it calls until it comes back.
    assert eventually(lambda: [reference() for reference in gone] == [None, None])


@pytest.mark.slow
def test_program_can_end_while_pipelines_run() -> None:
    body = """
    import itertools
    from penstock import Pipeline, _pipeline
    from penstock.pipeline import Sink, Source
    _pipeline.STALL_S = 0.5
    reader, writer = os.pipe()
    lines = [
        Pipeline(itertools.repeat(bytes(100_000)), lambda chunk: time.sleep(0.001)),
        Pipeline(Source.fd(reader)),
        Pipeline(itertools.repeat(bytes(100_000)), sink=Sink.fd(writer)),
    ]
    next(lines[0])
    """
    done = run_script(body)
    assert done.returncode == 0
    assert done.stderr.decode().startswith(
        "penstock: a pipeline was cut off: the program ended, and nothing moved"
    )


def test_program_that_ends_delivers_the_chunks_of_a_pipeline() -> None:
    body = """
    from penstock import Pipeline
    from penstock.pipeline import Sink
    def chunks():
        for number in range(200):
            time.sleep(0.002)
            yield bytes([number]) * 10_000
    line = Pipeline(chunks(), lambda chunk: None, sink=Sink.fd(1))
    """
    assert succeeded(run_script(body)) == b"".join(bytes([number]) * 10_000 for number in range(200))


@pytest.mark.linux("forks")
def test_forked_child_gets_closed_pipelines() -> None:
    body = """
    from penstock import Pipeline
    from penstock.pipeline import Stage
    import itertools, zlib
    pipeline = Pipeline(itertools.repeat(zlib.compress(bytes(100_000))), Stage.decompress(workers=2), queue_items=2)
    chunk = next(pipeline)
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            assert bytes(chunk) == bytes(100_000)
            for wait in (lambda: next(pipeline), lambda: pipeline.stats):
                try:
                    wait()
                except penstock.ClosedError:
                    pass
                else:
                    os._exit(1)
            assert pipeline.skipped == []
            pipeline.close()
            with Pipeline([b"own"]) as own:
                assert bytes(next(own)) == b"own"
            del chunk, pipeline
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert bytes(next(pipeline)) == bytes(100_000)
    pipeline.close()
    """
    succeeded(run_script(body))


# --- sinks ------------------------------------------------------------------------------------------------------------


def test_descriptor_sink_receives_every_byte(
    tmp_path: Path, plain: list[bytes], pair: tuple[int, int]
) -> None:
    reader, writer = pair
    got = ReaderThread(reader, chunk_bytes=10_000)
    with Pipeline(
        Source.files(stored(tmp_path, plain)), Stage.decompress(workers=2), sink=Sink.fd(writer)
    ) as pipeline:
        os.close(writer)
    assert got.result() == b"".join(plain)
    assert pipeline.stats.end_to_end.count == 12
    with pytest.raises(ValueError):
        Pipeline([], sink=Sink.fd(sys.__stdout__.fileno() if sys.__stdout__ else 1)).read()


def test_descriptor_sink_without_a_reader_raises(pair: tuple[int, int]) -> None:
    reader, writer = pair
    os.close(reader)
    with pytest.raises(penstock.BrokenStreamError):
        Pipeline(endless(), sink=Sink.fd(writer)).wait(PATIENCE_S)


def test_buffers_of_the_caller_are_filled(tmp_path: Path, plain: list[bytes]) -> None:
    arrays = [np.zeros(30_000, np.uint8) for _ in plain]
    with Pipeline(
        Source.files(stored(tmp_path, plain)), Stage.decompress(workers=2), sink=Sink.into(arrays)
    ) as pipeline:
        chunks = list(pipeline)
    assert [chunk.nbytes for chunk in chunks] == list(map(len, plain))
    for chunk, array, data in zip(chunks, arrays, plain, strict=True):
        assert array[: len(data)].tobytes() == data
        assert np.shares_memory(np.asarray(chunk), array)


def test_pipeline_ends_with_the_buffers_of_the_caller_and_releases_them() -> None:
    buffers = [bytearray(1000) for _ in range(3)]
    with Pipeline(endless(), sink=Sink.into(buffers)) as pipeline:
        assert len(list(pipeline)) == 3
    for buffer in buffers:
        buffer.append(0)  # BufferError while it is exported
    with Pipeline([b"too long"], sink=Sink.into([bytearray(3)])) as pipeline, pytest.raises(ChunkDataError):
        next(pipeline)
    with Pipeline([b"x"], sink=Sink.into([b"read-only"])) as pipeline, pytest.raises(PipelineError):
        next(pipeline)


def test_empty_buffer_without_an_address_is_accepted() -> None:
    view_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    writable = 0x200  # PyBUF_WRITE
    empty = view_of(("PyMemoryView_FromMemory", ctypes.pythonapi))(None, 0, writable)
    with Pipeline([b""], sink=Sink.into([empty])) as pipeline:
        assert [chunk.nbytes for chunk in pipeline] == [0]


# --- asyncio ----------------------------------------------------------------------------------------------------------


def test_event_loop_runs_while_a_task_waits(pair: tuple[int, int]) -> None:
    reader, writer = pair

    async def run() -> bytes:
        async with Pipeline(Source.fd(reader)) as pipeline:
            waiting = asyncio.ensure_future(anext(pipeline))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            os.write(writer, b"late")
            chunk = await asyncio.wait_for(waiting, PATIENCE_S)
            cancelled = asyncio.ensure_future(anext(pipeline))
            await asyncio.sleep(0)
            cancelled.cancel()
            os.write(writer, b"kept")
            again = await asyncio.wait_for(anext(pipeline), PATIENCE_S)
            return bytes(chunk) + bytes(again)

    assert asyncio.run(run()) == b"latekept"


def test_cancelled_awaits_leak_nothing(pair: tuple[int, int]) -> None:
    async def give_up(pipeline: Pipeline) -> None:
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(pipeline), 0.0001)

    with Pipeline(Source.fd(pair[0])) as pipeline:
        before_fds = len(open_fds())
        asyncio.run(give_up(pipeline))
        waker = _LoopWaker()
        before = rss_bytes()
        for _ in range(30_000):  # as each of those awaits does
            assert not pipeline._native.done()
            pipeline._native._notify(waker, 0).stop()
        del waker
        assert rss_bytes() - before < 16 << 20
        assert len(open_fds()) <= before_fds


def test_event_loop_runs_while_a_block_ends() -> None:
    """The stage is in a call that only the loop ends."""
    begun, may_end = threading.Event(), threading.Event()

    def stage(chunk: Chunk) -> None:
        begun.set()
        may_end.wait(PATIENCE_S)

    async def main() -> None:
        async with Pipeline(endless(), stage):
            assert await asyncio.to_thread(begun.wait, PATIENCE_S)
            asyncio.get_running_loop().call_later(0.05, may_end.set)
        assert may_end.is_set()

    asyncio.run(main())


def test_await_waits_until_a_descriptor_sink_has_everything(pair: tuple[int, int]) -> None:
    reader, writer = pair
    got = ReaderThread(reader)

    async def run() -> None:
        await Pipeline([bytes(100_000)] * 20, sink=Sink.fd(writer))

    asyncio.run(run())
    os.close(writer)
    assert got.result() == bytes(2_000_000)


# --- backpressure, statistics, policies -------------------------------------------------------------------------------


def test_stats_count_chunks_and_name_the_bottleneck() -> None:
    with Pipeline(
        [bytes(1000)] * 20, Stage.checksum(), Stage.call(lambda chunk: time.sleep(0.02), name="slow")
    ) as pipeline:
        assert pipeline.stats.stages[0].name == "iterable"
        chunks = list(pipeline)
    assert [timing[0] for timing in chunks[19].timings] == ["iterable", "checksum", "slow"]
    times = [time for timing in chunks[19].timings for time in timing[1:]]
    assert len(chunks) == 20 and times == sorted(times)
    stats = pipeline.stats
    assert [stage.name for stage in stats.stages] == ["iterable", "checksum", "slow", "consumer"]
    assert all(stage.work.count == 20 for stage in stats.stages)
    slow = stats.stages[2]
    assert slow.work.min_s > 0.019
    assert (slow.gil.count, stats.stages[1].gil.count) == (20, 0)
    assert slow.work.min_s <= slow.work.p50_s <= slow.work.p95_s <= slow.work.p99_s <= slow.work.max_s
    assert (slow.bytes_in, slow.bytes_out) == (20_000, 20_000)
    assert stats.end_to_end.count == 20
    assert pipeline.bottleneck == "slow"


def test_policies_are_applied_by_name() -> None:
    policy = penstock.cpu.ThreadPolicy(priority="lowest")
    policies = {"checksum": policy, "iterable": policy}
    with Pipeline([b"x"], Stage.checksum(workers=2), Stage.checksum(), policies=policies) as pipeline:
        next(pipeline)
        assert eventually(lambda: len(pipeline.stats.stages[1].policies) == 2)
        nices = [[applied.nice for applied in stage.policies] for stage in pipeline.stats.stages]
    assert nices == [[10], [10, 10], [], []]


def test_a_signal_handler_may_raise_in_a_wait() -> None:
    code = """
    from penstock import Pipeline
    from penstock.pipeline import Source
    reader, writer = os.pipe()
    pipeline = Pipeline(Source.fd(reader))
    print("waiting", flush=True)
    try:
        next(pipeline)
    except KeyboardInterrupt:
        os.write(writer, b"still here")
        print(bytes(next(pipeline)).decode(), flush=True)
    """
    assert interrupted(code) == b"still here\n"
