"""Many assets as fast as it goes: a pipeline, and what people have today, a pool of threads around a codec's module.

Both sides decompress on as many threads, keep the order, and are asked for each asset in turn. Before anything is
timed, each delivers everything once, and checksums are compared. In timed runs the number of bytes is.
"""

from __future__ import annotations

import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness.results import Group, Method, Row, Run
from benchmarks.harness.rounds import Report, check_content, run_rounds
from benchmarks.pipeline.assets import (
    CODECS,
    Assets,
    MisdeliveredError,
    Settings,
    decompressor,
    write_assets,
)
from penstock.pipeline import Chunk, Pipeline, decompress, files

PIPELINE = "penstock.Pipeline"
POOL = "ThreadPoolExecutor"

#: Gives the content of each asset.
Start = Callable[[Assets, Settings], Iterator[Chunk | bytes]]


def by_pipeline(assets: Assets, settings: Settings) -> Iterator[Chunk | bytes]:
    """Ours."""
    stage = decompress(settings.codec, workers=settings.workers)
    with Pipeline(files(assets.paths), stage, depth=settings.depth) as pipeline:
        yield from pipeline


def by_pool(assets: Assets, settings: Settings) -> Iterator[Chunk | bytes]:
    """Python's threads around the codec's module."""
    expand = decompressor(settings.codec)

    def work(path: str) -> bytes:
        return expand(Path(path).read_bytes())

    with ThreadPoolExecutor(settings.workers) as pool:
        for future in _ahead(pool, work, assets.paths, settings.depth):
            yield future.result()


def _ahead(
    pool: ThreadPoolExecutor, work: Callable[[str], bytes], paths: Sequence[str], depth: int
) -> Iterator[Future[bytes]]:
    """In order, and never more than so many under way: a pool by itself would hold all at once."""
    waiting: deque[Future[bytes]] = deque()
    for path in paths:
        if len(waiting) >= depth:
            yield waiting.popleft()
        waiting.append(pool.submit(work, path))
    yield from waiting


def run_race(
    settings: Settings, report: Report = lambda _: None, ours: Start = by_pipeline, pool: Start = by_pool
) -> Group:
    """Both sides, in interleaved rounds."""
    module = CODECS[settings.codec].partition(".")[0]
    methods = (
        Method(PIPELINE, f"{settings.workers} native threads", "ours", ours),
        Method(POOL, f"{settings.workers} threads around {module}", "rival", pool),
    )
    with tempfile.TemporaryDirectory() as folder:
        report(f"writing {settings.assets} assets")
        assets = write_assets(Path(folder), settings.codec, settings.chunk_bytes, settings.assets)
        compressed_to = assets.compressed_bytes / assets.content_bytes
        title = (
            f"{settings.assets} {settings.codec} assets of {settings.chunk_bytes} bytes, compressed to "
            f"{compressed_to:.0%}, from the page cache"
        )
        about = {
            "codec": settings.codec,
            "workers": settings.workers,
            "compressed_to": round(compressed_to, 4),
        }
        group = Group(
            f"{settings.codec}, {settings.workers} threads each", title, [Row(one) for one in methods], about
        )
        check_content(group, lambda row: _check(row, assets, settings), report)
        run_rounds(group, lambda row: _time(row, assets, settings), settings.rounds, report)
    return group


def _check(row: Row, assets: Assets, settings: Settings) -> Run:
    assert row.method.start is not None
    if [zlib.crc32(content) for content in row.method.start(assets, settings)] != assets.sums:
        raise MisdeliveredError("what came out is not what went in")
    return Run()


def _time(row: Row, assets: Assets, settings: Settings) -> Run:
    assert row.method.start is not None
    started = time.perf_counter()
    nbytes = sum(len(content) for content in row.method.start(assets, settings))
    seconds = time.perf_counter() - started
    if nbytes != assets.content_bytes:
        raise MisdeliveredError(f"{assets.content_bytes} bytes went in, {nbytes} came out")
    return Run({"mb_per_s": assets.content_bytes / seconds / 1e6})
