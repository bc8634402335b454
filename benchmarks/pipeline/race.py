"""The throughput of a pipeline, against a pool of Python threads around a codec's module.

Both sides decompress on as many threads and keep the order. The caller takes one asset after another. Before anything
is timed, each side delivers everything once, and checksums are compared. Timed runs compare the number of bytes.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.command import Measure
from benchmarks.harness.results import Group, MisdeliveredError, Row, Run
from benchmarks.pipeline.assets import Assets, Stream, decompressor, write_assets
from penstock.pipeline import Chunk, Pipeline, decompress, files


def by_pipeline(assets: Assets, stream: Stream) -> Iterator[Chunk | bytes]:
    """`penstock.Pipeline`."""
    stage = decompress(stream.codec, workers=stream.workers)
    with Pipeline(files(assets.paths), stage, queue_items=stream.depth) as pipeline:
        yield from pipeline


def by_pool(assets: Assets, stream: Stream) -> Iterator[Chunk | bytes]:
    """`ThreadPoolExecutor` around the codec's module."""
    expand = decompressor(stream.codec)

    def work(path: str) -> bytes:
        return expand(Path(path).read_bytes())

    with ThreadPoolExecutor(stream.workers) as pool:
        for future in _ahead(pool, work, assets.paths, stream.depth):
            yield future.result()


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[str], bytes], paths: Sequence[str], depth: int
) -> Iterator[Future[bytes]]:
    """The results in order, with at most ``depth`` under way. The pool itself would hold all at once."""
    waiting: deque[Future[bytes]] = deque()
    for path in paths:
        if len(waiting) >= depth:
            yield waiting.popleft()
        waiting.append(pool.submit(work, path))
    yield from waiting


@contextmanager
def prepare_race(stream: Stream, group: Group) -> Iterator[tuple[Measure, Measure]]:
    """Write the assets."""
    with tempfile.TemporaryDirectory() as folder:
        assets = write_assets(Path(folder), stream.codec, stream.chunk_bytes, stream.assets)
        compressed_to = assets.compressed_bytes / assets.content_bytes
        group.about["compressed_to"] = round(compressed_to, 4)
        group.title += f", compressed to {compressed_to:.0%}, from the page cache"
        yield (lambda row: _check(row, assets, stream)), (lambda row: _time(row, assets, stream))


def _check(row: Row, assets: Assets, stream: Stream) -> Run:
    if [zlib.crc32(content) for content in row.method.start(assets, stream)] != assets.sums:
        raise MisdeliveredError("the output is not the input")
    return Run()


def _time(row: Row, assets: Assets, stream: Stream) -> Run:
    started = time.perf_counter()
    nbytes = sum(len(content) for content in row.method.start(assets, stream))
    seconds = time.perf_counter() - started
    if nbytes != assets.content_bytes:
        raise MisdeliveredError(f"{assets.content_bytes} bytes went in, {nbytes} came out")
    return Run({"mb_per_s": assets.content_bytes / seconds / 1e6})
