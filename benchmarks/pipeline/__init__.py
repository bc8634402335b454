"""The effect of priorities and pinning on a stream of assets under load, and the throughput against a thread pool.

Compressed assets go through reader, decompressor and processor, while other work burns the CPUs. Three configurations
take turns: all threads at normal priority; reader and processor above normal, with the decompressor at the highest; the
same with each pinned to a CPU. Then, with nothing in the background, a pipeline and a pool of Python threads race
through many assets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import click

from benchmarks.harness.command import Benchmark, Measure
from benchmarks.harness.methods import Method, PlainJob
from benchmarks.harness.options import counted, parse_bytes
from benchmarks.harness.results import Group
from benchmarks.pipeline.assets import CODECS, Stream
from benchmarks.pipeline.latency import (
    CONFIGURATIONS,
    EXAMPLE_ROWS,
    prepare_latencies,
)
from benchmarks.pipeline.race import by_pipeline, by_pool, prepare_race
from penstock.cli.options import UNITS, parsed

Kind = Literal["files", "simulated", "race"]
LATENCIES = "latencies"
PIPELINE, POOL = "penstock.Pipeline", "ThreadPoolExecutor"


# --- what to run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job(PlainJob):
    """The latencies, or the race."""

    kind: Kind
    prepare: Callable[[Group], AbstractContextManager[tuple[Measure | None, Measure]]]


METHODS = (
    *(
        Method(one.name, ", ".join(one.priorities), "ours", serves=("files", "simulated"))
        for one in CONFIGURATIONS
    ),
    *(Method(name, "the reference example", "other", serves=("simulated",)) for name in EXAMPLE_ROWS),
    Method(PIPELINE, "native threads", "ours", by_pipeline, serves=("race",)),
    Method(POOL, "threads around the codec's Python module", "rival", by_pool, serves=("race",)),
)


@dataclass(frozen=True)
class Settings(Stream):
    """What to run."""

    rounds: int = 7
    methods: tuple[Method, ...] = METHODS

    @property
    def jobs(self) -> Iterator[Job]:
        storage = "a simulated storage" if self.simulated else "files in the page cache"
        title = (
            f"{self.chunks} assets of {self.chunk_bytes} bytes, {self.codec}, from {storage}, "
            f"{self.background} workers in the background"
        )
        about = {"codec": self.codec, "background": self.background, "simulated": self.simulated}
        kind: Kind = "simulated" if self.simulated else "files"
        yield Job(LATENCIES, title, about, kind, partial(prepare_latencies, self))
        if self.assets and not self.simulated:
            name = f"{self.codec}, {self.workers} threads each"
            title = f"{self.assets} {self.codec} assets of {self.chunk_bytes} bytes"
            about = {"codec": self.codec, "workers": self.workers}
            yield Job(name, title, about, "race", partial(prepare_race, self))


BENCHMARK = Benchmark(
    "pipeline",
    settings=Settings(),
    quick=Settings(rounds=3, assets=500),
    quick_help="3 rounds, and fewer assets.",
    prepare=lambda job, _ffmpeg, group: job.prepare(group),
    options=[
        click.Option(
            ["--codec"], type=click.Choice([*CODECS]), help="How the assets are compressed.  [default: zlib]"
        ),
        click.Option(
            ["--chunk", "chunk_bytes"],
            callback=parsed(parse_bytes),
            metavar="BYTES",
            help=f"Size of an asset when it is decompressed.  [default: 64KiB] {UNITS}",
        ),
        counted("--chunks", "chunks", "Assets that are timed one by one.  [default: 100]", at_least=2),
        counted("--background", "background", "Workers that burn CPU meanwhile.  [default: 4]", at_least=0),
        counted("--assets", "assets", "Assets of the race; 0 leaves it out.", at_least=0),
        counted("--workers", "workers", "Threads of the race, on each side.  [default: 2]"),
        counted("--depth", "depth", "Assets that may wait between two parts.  [default: 16]"),
        click.Option(
            ["--simulated"],
            is_flag=True,
            default=None,
            help="As in the reference example: random bytes, compressed on the fly, and 1 to 5 ms of sleep.",
        ),
    ],
    figures=["mb_per_s"],
    standards=[POOL],
    uses_ffmpeg=False,
)
main = BENCHMARK.command(__doc__)
