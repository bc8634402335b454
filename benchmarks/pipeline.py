"""The effect of priorities and pinning on a stream of assets under load, and the throughput against a thread pool.

Compressed assets go through reader, decompressor and processor, while other work burns the CPUs. Three configurations
take turns: all threads at normal priority; reader and processor above normal, with the decompressor at the highest; the
same with each pinned to a CPU. Then, with nothing in the background, a pipeline and a pool of Python threads race
through many assets.

Both sides of the race decompress on as many threads and keep the order. The caller takes one asset after another.
Before anything is timed, each side delivers everything once, and checksums are compared. Timed runs compare the number
of bytes.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from benchmarks.harness.command import Benchmark
from benchmarks.harness.methods import Method, PlainJob
from benchmarks.harness.options import by_name, counted, sized
from benchmarks.harness.results import Group, Measure, MisdeliveredError, Row, Run
from penstock import Pipeline, cpu
from penstock.cpu import ThreadPolicy
from penstock.pipeline import Chunk, Source, Stage

Kind = Literal["files", "simulated", "race"]
STREAMS: tuple[Kind, Kind] = "files", "simulated"
PIPELINE, POOL = "penstock.Pipeline", "ThreadPoolExecutor"


# --- the assets -------------------------------------------------------------------------------------------

# Compressed files in the page cache, or a simulated storage. The content is made of words, so that it compresses as
# text, meshes and levels do. A codec stores random bytes as they are, so that they would measure a copy.

Codec = Literal["zlib", "gzip", "zstd", "lz4"]
#: Python's module for each.
CODECS: dict[Codec, str] = {"zlib": "zlib", "gzip": "gzip", "zstd": "zstandard", "lz4": "lz4.frame"}

#: The reference example's storage takes so long for each asset, evenly distributed.
SIMULATED_DELAY_S = (0.001, 0.005)
WORDS = 4096


def _module(codec: Codec) -> Any:
    try:
        return import_module(CODECS[codec])
    except ImportError as error:
        package = CODECS[codec].partition(".")[0]
        raise click.ClickException(f"{codec} needs the package {package}: pip install {package}") from error


def compressor(codec: Codec) -> Callable[[bytes], bytes]:
    """A function that compresses an asset."""
    module = _module(codec)
    compress: Callable[[bytes], bytes] = (module.ZstdCompressor() if codec == "zstd" else module).compress
    return compress


def decompressor(codec: Codec) -> Callable[[bytes], bytes]:
    """A function that decompresses an asset by the codec's Python module."""
    module = _module(codec)
    if codec == "zstd":
        # One for each call, because threads must not share one.
        return lambda data: module.ZstdDecompressor().decompress(data)
    decompress: Callable[[bytes], bytes] = module.decompress
    return decompress


@dataclass
class Assets:
    """Compressed files. They are in the page cache because they were just written."""

    paths: list[str] = field(default_factory=list)
    #: The CRC-32 of each content.
    sums: list[int] = field(default_factory=list)
    content_bytes: int = 0
    compressed_bytes: int = 0


def contents(chunk_bytes: int) -> Iterator[bytes]:
    """An endless series of different contents, the same in each run."""
    chance = random.Random(1)
    words = [chance.randbytes(chance.randint(3, 24)) for _ in range(WORDS)]
    mean_bytes = sum(map(len, words)) / WORDS
    while True:
        text = b""
        while len(text) < chunk_bytes:
            text += b"".join(chance.choices(words, k=int(1.1 * chunk_bytes / mean_bytes)))
        yield text[:chunk_bytes]


def write_assets(folder: Path, codec: Codec, chunk_bytes: int, count: int) -> Assets:
    """Write ``count`` files with different contents."""
    compress = compressor(codec)
    assets = Assets()
    for number, content in zip(range(count), contents(chunk_bytes), strict=False):
        path = folder / f"{number:06}.{codec}"
        assets.compressed_bytes += path.write_bytes(compress(content))
        assets.content_bytes += chunk_bytes
        assets.paths.append(str(path))
        assets.sums.append(zlib.crc32(content))
    return assets


def simulated_assets(codec: Codec, chunk_bytes: int, count: int) -> Iterator[tuple[str, bytes]]:
    """As in the reference example: random bytes, compressed on the fly, and a sleep for each asset."""
    compress = compressor(codec)
    chance = random.Random(1)
    for number in range(count):
        time.sleep(chance.uniform(*SIMULATED_DELAY_S))
        yield f"{number:06}", compress(os.urandom(chunk_bytes))


# --- latencies --------------------------------------------------------------------------------------------

#: The parts that are timed, in order, by their names in tables. A pipeline names its first stage after the source.
PARTS = ("reader", "decompressor", "processor")
END_TO_END = "end to end"
METRICS = ("min", "p50", "p95", "max", "mean")

Priority = Literal["normal", "above-normal", "highest"]


@dataclass(frozen=True)
class Configuration:
    """The priorities and CPUs of the parts' threads."""

    name: str
    #: For reader, decompressor and processor.
    priorities: tuple[Priority, Priority, Priority]
    pins: bool = False

    def policies(self) -> dict[str, ThreadPolicy | None]:
        """The policy of each part; None where nothing is asked for."""
        if {*self.priorities} == {"normal"}:
            return dict.fromkeys(PARTS)
        cpus = [[number] for number in pinned_cpus()] if self.pins else [None] * len(PARTS)
        return {
            part: ThreadPolicy(priority=priority, cpus=numbers)
            for part, priority, numbers in zip(PARTS, self.priorities, cpus, strict=True)
        }


def pinned_cpus() -> tuple[int, int, int]:
    """A CPU for each part, on different cores if there are three. The decompressor gets the fastest."""
    usable = [one for one in cpu.topology().logical_processors if one.allowed and one.online]
    usable.sort(key=lambda one: (one.kind != "performance", one.id))
    # One CPU of each core before the second of any.
    turns: defaultdict[int | None, Iterator[int]] = defaultdict(itertools.count)
    numbers = [one.id for one in sorted(usable, key=lambda one: next(turns[one.core]))]
    decompressor, reader, processor = (numbers[n % len(numbers)] for n in range(3))
    # With two CPUs the decompressor has one for itself, because it works the most.
    return reader, decompressor, reader if len(numbers) == 2 else processor


NORMAL = Configuration("all normal", ("normal", "normal", "normal"))
PRIORITIES = Configuration("priorities", ("above-normal", "highest", "above-normal"))
PINNED = Configuration("priorities, pinned", ("above-normal", "highest", "above-normal"), pins=True)
#: As in the reference example, the streaming pipeline of ``gdt-cpus``.
CONFIGURATIONS = (NORMAL, PRIORITIES, PINNED)
#: That example itself, in each configuration.
EXAMPLE_ROWS = tuple(f"gdt-cpus, {one.name}" for one in CONFIGURATIONS)


def figure_name(part: str, metric: str) -> str:
    """The name of a figure in microseconds."""
    return f"{part} {metric} µs"


@contextmanager
def prepare_latencies(stream: Settings, group: Group) -> Iterator[tuple[None, Measure]]:
    """Write the assets, and find the reference example."""
    program = shutil.which(EXAMPLE)
    for row in group.rows:
        if row.method.kind == "other" and not program:
            row.skipped = f"{EXAMPLE} of gdt-cpus 25.12 is not on the PATH"
    example = Example(program or "")
    with tempfile.TemporaryDirectory() as folder:
        assets = Assets()
        if not stream.simulated:
            assets = write_assets(Path(folder), stream.codec, stream.chunk_bytes, stream.chunks)

        def measure(row: Row) -> Run:
            if row.method.kind == "other":
                return example.next_run(row.name)
            with background(stream.background):
                return run_once(stream, by_name(CONFIGURATIONS, row.name), assets)

        yield None, measure
    group.findings = findings(group)


#: Figures that findings compare, by their names in sentences.
COMPARED = {
    "p50": figure_name(END_TO_END, "p50"),
    "p95": figure_name(END_TO_END, "p95"),
    "throughput": "mb_per_s",
}


def findings(group: Group) -> list[str]:
    """Sentences that compare the configurations.

    Each round has a run of every configuration, so that two of them are compared round by round, whatever else the
    machine did meanwhile. A difference is clear if three quarters of the rounds agree on its direction.
    """
    rows = {row.name: row for row in group.rows if row.is_measured}
    sentences = []
    for what, first, second in (
        ("Priorities, against none", NORMAL, PRIORITIES),
        ("Pinning, on top of priorities", PRIORITIES, PINNED),
    ):
        if {first.name, second.name} <= rows.keys():
            changes = [_change(rows[first.name], rows[second.name], *one) for one in COMPARED.items()]
            sentences.append(f"{what}: end-to-end {', '.join(changes)}.")
    for row in group.rows:
        refused = {note for run in row.runs for note in run.notes.get("refused", [])}
        sentences += [f"Refused in {row.name!r}: {note}" for note in sorted(refused)]
    return sentences


def _change(first: Row, second: Row, metric: str, figure: str) -> str:
    """How a figure differs between two configurations: the ratios of the second to the first in each round."""
    before, after = first.spread(figure), second.spread(figure)
    assert before is not None and after is not None
    ratios = [second / first for first, second in zip(before.rounds, after.rounds, strict=True)]
    percentiles = np.percentile(ratios, (25, 50, 75)).tolist()
    low, middle, high = (f"{100 * (ratio - 1):+.0f} %" for ratio in percentiles)
    doubt = "; no clear difference" if percentiles[0] <= 1 <= percentiles[2] else ""
    return f"{metric} {middle} ({low} to {high} in the middle half of the rounds{doubt})"


def run_once(stream: Settings, configuration: Configuration, assets: Assets) -> Run:
    """Stream everything once, on new threads, so that no run inherits a policy from another."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run, stream, configuration, assets).result()


def _run(stream: Settings, configuration: Configuration, assets: Assets) -> Run:
    policies = configuration.policies()
    source: Any = Source.files(assets.paths)
    if stream.simulated:
        source = simulated_assets(stream.codec, stream.chunk_bytes, stream.chunks)
    name = source.name if isinstance(source, Source) else "iterable"
    names = dict(zip(PARTS, (name, "decompress", "checksum"), strict=True))
    wanted = {names[part]: policy for part, policy in policies.items() if policy is not None}
    # The consumer is not measured, but must not delay the pipeline.
    refused = _apply(policies["processor"])
    timings, sums, nbytes = [], [], 0
    stages = (Stage.decompress(stream.codec), Stage.checksum("crc32"))
    with Pipeline(source, *stages, queue_items=stream.depth, policies=wanted) as pipeline:
        for chunk in pipeline:
            timings.append(chunk.timings)
            sums.append(chunk.checksum)
            nbytes += chunk.nbytes
        stats = pipeline.stats
    if nbytes != stream.chunks * stream.chunk_bytes or (assets.sums and sums != assets.sums):
        raise MisdeliveredError("the output is not the input")
    refused += [note for stage in stats.stages for policy in stage.policies for note in policy.notes]
    # A timing is ``(stage, queued, started, ended)`` in seconds.
    seconds = timings[-1][-1][3] - timings[0][0][2]
    figures: dict[str, float | None] = {"mb_per_s": nbytes / seconds / 1e6}
    for part, first, last in (*zip(PARTS, range(3), range(3), strict=True), (END_TO_END, 0, -1)):
        latencies_us = [1e6 * (one[last][3] - one[first][2]) for one in timings]
        figures |= {figure_name(part, metric): us for metric, us in summarize(latencies_us).items()}
    return Run(figures, {"refused": sorted(set(refused))} if refused else {})


def _apply(policy: ThreadPolicy | None) -> list[str]:
    if policy is None:
        return []
    applied = [] if policy.priority is None else [cpu.set_priority(policy.priority)]
    applied += [] if policy.cpus is None else [cpu.pin(policy.cpus)]
    return [note for one in applied for note in one.notes]


def summarize(values: Sequence[float]) -> dict[str, float]:
    """The metrics of one run. A percentile between two values is interpolated."""
    low, p50, p95, high = np.percentile(values, (0, 50, 95, 100)).tolist()
    return dict(zip(METRICS, (low, p50, p95, high, statistics.fmean(values)), strict=True))


EXAMPLE = "streaming_pipeline"
#: What the example prints for a part, or from end to end.
PRINTED = re.compile(r"\(µs\):\s*min=(\d+), p50=(\d+), p95=(\d+), max=(\d+), avg=([\d.]+)")


class Example:
    """The streaming pipeline of ``gdt-cpus``. A run has all its configurations, and takes a minute."""

    def __init__(self, program: str) -> None:
        self.program = program
        #: By the row's name: runs that no row has yet.
        self.ahead: defaultdict[str, list[Run]] = defaultdict(list)

    def next_run(self, name: str) -> Run:
        if not self.ahead[name]:
            done = subprocess.run([self.program], check=True, capture_output=True, text=True, timeout=180)
            printed = PRINTED.findall(done.stdout)
            for row_name in EXAMPLE_ROWS:
                figures: dict[str, float | None] = {
                    figure_name(part, metric): float(value)
                    for part in (*PARTS, END_TO_END)
                    for metric, value in zip(METRICS, printed.pop(0), strict=True)
                }
                self.ahead[row_name].append(Run(figures))
        return self.ahead[name].pop(0)


#: It prints a line when its priority is set, and ends with its parent, even with one that was killed.
BURN = """
import os, sys
from penstock import cpu
applied = cpu.set_priority(sys.argv[1])
print(applied.nice, flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def background(workers: int) -> Iterator[None]:
    """Processes that burn a CPU each: the odd ones at normal, the even ones at below-normal priority."""
    burning: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(workers):
            priority = "below-normal" if number % 2 else "normal"
            command = [sys.executable, "-c", BURN, priority]
            burning.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        for worker in burning:
            assert worker.stdout is not None
            if not worker.stdout.readline():
                raise RuntimeError("a background worker did not start")
        yield
    finally:
        for worker in burning:
            worker.kill()
            worker.communicate()


# --- the race ---------------------------------------------------------------------------------------------


def by_pipeline(assets: Assets, stream: Settings) -> Iterator[Chunk | bytes]:
    """`penstock.Pipeline`."""
    stage = Stage.decompress(stream.codec, workers=stream.workers)
    with Pipeline(Source.files(assets.paths), stage, queue_items=stream.depth) as pipeline:
        yield from pipeline


def by_pool(assets: Assets, stream: Settings) -> Iterator[Chunk | bytes]:
    """`ThreadPoolExecutor` around the codec's module."""
    expand = decompressor(stream.codec)

    def work(path: str) -> bytes:
        return expand(Path(path).read_bytes())

    with ThreadPoolExecutor(stream.workers) as pool:
        waiting: deque[Future[bytes]] = deque()
        for path in assets.paths:
            # The pool itself would hold all at once.
            if len(waiting) >= stream.depth:
                yield waiting.popleft().result()
            waiting.append(pool.submit(work, path))
        yield from (future.result() for future in waiting)


@contextmanager
def prepare_race(stream: Settings, group: Group) -> Iterator[tuple[Measure, Measure]]:
    """Write the assets."""
    with tempfile.TemporaryDirectory() as folder:
        assets = write_assets(Path(folder), stream.codec, stream.chunk_bytes, stream.assets)
        compressed_to = assets.compressed_bytes / assets.content_bytes
        group.about["compressed_to"] = round(compressed_to, 4)
        group.title += f", compressed to {compressed_to:.0%}, from the page cache"

        def check(row: Row) -> Run:
            if [zlib.crc32(content) for content in row.method.start(assets, stream)] != assets.sums:
                raise MisdeliveredError("the output is not the input")
            return Run()

        def measure(row: Row) -> Run:
            started = time.perf_counter()
            nbytes = sum(len(content) for content in row.method.start(assets, stream))
            seconds = time.perf_counter() - started
            if nbytes != assets.content_bytes:
                raise MisdeliveredError(f"{assets.content_bytes} bytes went in, {nbytes} came out")
            return Run({"mb_per_s": assets.content_bytes / seconds / 1e6})

        yield check, measure


@dataclass(frozen=True)
class Job(PlainJob):
    """The latencies, or the race."""

    kind: Kind
    prepare: Callable[[Group], AbstractContextManager[tuple[Measure | None, Measure]]]


METHODS = (
    *(Method(one.name, ", ".join(one.priorities), "ours", serves=STREAMS) for one in CONFIGURATIONS),
    *(Method(name, "the reference example", "other", serves=("simulated",)) for name in EXAMPLE_ROWS),
    Method(PIPELINE, "native threads", "ours", by_pipeline, serves=("race",)),
    Method(POOL, "threads around the codec's Python module", "rival", by_pool, serves=("race",)),
)


@dataclass(frozen=True)
class Settings:
    """What is streamed, and how. The defaults are those of the reference example, but with real files."""

    codec: Codec = "zlib"
    chunk_bytes: int = 64 * 2**10
    chunks: int = 100
    #: Processes that burn CPU, every second one at below-normal priority.
    background: int = 4
    simulated: bool = False
    #: Assets of one run of the race; 0 leaves it out.
    assets: int = 2000
    #: Threads that decompress in the race, on each side.
    workers: int = 2
    #: Assets that may wait between two parts.
    depth: int = 16
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
        yield Job("latencies", title, about, kind, partial(prepare_latencies, self))
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
        click.Option(["--codec"], type=click.Choice([*CODECS]), help="The assets' codec.  [default: zlib]"),
        sized("--chunk", "chunk_bytes", "Size of an asset when it is decompressed.  [default: 64KiB]"),
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
main = BENCHMARK.command(__name__, __doc__)
