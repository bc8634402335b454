"""Many assets as fast as it goes: a pipeline, and what people have today, a pool of threads around a codec's module.

Both sides decompress on as many threads, keep the order, and are asked for each asset in turn. Before anything is
timed, each delivers everything once, and checksums are compared; in the timed runs the number of bytes is.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from penstock.bench.pipeline.cases import Codec, Settings
from penstock.bench.pipeline.latency import MisdeliveredError, Report
from penstock.bench.pipeline.storage import Assets, MissingPackageError, write_assets
from penstock.bench.spread import iqr
from penstock.pipeline import Chunk, Pipeline, decompress, files

PIPELINE = "penstock.Pipeline"
POOL = "ThreadPoolExecutor"


#: The bytes of an asset.
Content = Chunk | bytes


@dataclass
class Contender:
    """One side, and its runs."""

    name: str
    #: What it runs, for people.
    what: str
    run: Callable[[Assets, Settings], Iterator[Content]] = field(repr=False)
    mb_per_s: list[float] = field(default_factory=list)

    def median(self) -> float:
        """Megabytes (1e6) of content a second."""
        return statistics.median(self.mb_per_s)

    def iqr(self) -> float:
        """How far apart the middle half of the rounds lies."""
        return iqr(self.mb_per_s)


@dataclass
class Race:
    """Both sides on the same assets."""

    codec: Codec
    contenders: list[Contender]
    ratio_of_sizes: float

    def gain(self) -> float:
        """The pipeline's rate over the pool's, of the medians."""
        pipeline, pool = self.contenders
        return pipeline.median() / pool.median()


def run_race(settings: Settings, report: Report = lambda _: None) -> Race:
    """Each side once a round, in turn.

    Raises:
        MissingPackageError: the pool has no module for the codec.
        MisdeliveredError: other bytes came out than were written.
    """
    decompressor(settings.codec)
    pipeline = Contender(PIPELINE, f"{settings.workers} native threads", _by_pipeline)
    pool = Contender(POOL, f"{settings.workers} threads around {_module(settings.codec)}", _by_pool)
    with tempfile.TemporaryDirectory() as folder:
        report(f"writing {settings.assets} assets")
        assets = write_assets(Path(folder), settings.codec, settings.chunk_bytes, settings.assets)
        for side in (pipeline, pool):
            report(f"throughput, content: {side.name}")
            _check(side, assets, settings)
        for number in range(settings.rounds):
            sides = [pipeline, pool] if number % 2 == 0 else [pool, pipeline]
            for side in sides:
                report(f"throughput, round {number + 1} of {settings.rounds}: {side.name}")
                side.mb_per_s.append(_time(side, assets, settings))
    return Race(settings.codec, [pipeline, pool], assets.compressed_bytes / assets.content_bytes)


def _time(side: Contender, assets: Assets, settings: Settings) -> float:
    started = time.perf_counter()
    nbytes = sum(len(content) for content in side.run(assets, settings))
    seconds = time.perf_counter() - started
    if nbytes != assets.content_bytes:
        raise MisdeliveredError(f"{assets.content_bytes} bytes went into {side.name}, {nbytes} came out")
    return assets.content_bytes / seconds / 1e6


def _check(side: Contender, assets: Assets, settings: Settings) -> None:
    if [zlib.crc32(content) for content in side.run(assets, settings)] != assets.sums:
        raise MisdeliveredError(f"what came out of {side.name} is not what went in")


def _by_pipeline(assets: Assets, settings: Settings) -> Iterator[Content]:
    stage = decompress(settings.codec, workers=settings.workers)
    with Pipeline(files(assets.paths), stage, depth=settings.depth) as pipeline:
        yield from pipeline


def _by_pool(assets: Assets, settings: Settings) -> Iterator[Content]:
    expand = decompressor(settings.codec)
    with ThreadPoolExecutor(settings.workers) as pool:
        for future in _ahead(
            pool, lambda path: expand(Path(path).read_bytes()), assets.paths, settings.depth
        ):
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


def decompressor(codec: Codec) -> Callable[[bytes], bytes]:
    """What Python has for the codec.

    Raises:
        MissingPackageError: it needs a package that is not installed.
    """
    if codec == "zlib":
        return zlib.decompress
    if codec == "gzip":
        import gzip

        return gzip.decompress
    try:
        if codec == "zstd":
            import zstandard

            # One for each call: they are not to be shared between threads.
            return lambda data: zstandard.ZstdDecompressor().decompress(data)
        import lz4.frame

        return lz4.frame.decompress  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingPackageError(
            f"{codec} needs the package {_module(codec)}: pip install {_module(codec)}"
        ) from error


def _module(codec: Codec) -> str:
    return {"zlib": "zlib", "gzip": "gzip", "zstd": "zstandard", "lz4": "lz4"}[codec]
