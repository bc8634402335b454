"""Times each asset on its way through reader, decompressor and processor, while other work burns the CPUs."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.harness.command import Measure
from benchmarks.harness.options import by_name
from benchmarks.harness.results import Group, MisdeliveredError, Row, Run
from benchmarks.pipeline.assets import Assets, Stream, simulated_assets, write_assets
from penstock import ThreadPolicy, cpu
from penstock.pipeline import Pipeline, Source, checksum, decompress, files

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
        cpus = pinned_cpus() if self.pins else (None, None, None)
        return {
            part: _policy(priority, number)
            for part, priority, number in zip(PARTS, self.priorities, cpus, strict=True)
        }


def _policy(priority: Priority, number: int | None) -> ThreadPolicy | None:
    if priority == "normal" and number is None:
        return None
    return ThreadPolicy(priority=priority, cpus=None if number is None else [number])


def pinned_cpus() -> tuple[int, int, int]:
    """A CPU for each part, on different cores if there are three. The decompressor gets the fastest."""
    usable = [one for one in cpu.topology().logical_processors if one.allowed and one.online]
    usable.sort(key=lambda one: (one.kind != "performance", one.id))
    # One CPU of each core before the second of any.
    seen: Counter[int | None] = Counter()
    ranked = []
    for one in usable:
        ranked.append((seen[one.core], one.id))
        seen[one.core] += 1
    numbers = [number for _, number in sorted(ranked, key=itemgetter(0))]
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
def prepare_latencies(stream: Stream, group: Group) -> Iterator[tuple[None, Measure]]:
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
        if first.name in rows and second.name in rows:
            pair = rows[first.name], rows[second.name]
            metrics = {metric: figure_name(END_TO_END, metric) for metric in ("p50", "p95")}
            changes = [_change(*pair, *names) for names in (*metrics.items(), ("throughput", "mb_per_s"))]
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
    low, middle, high = np.percentile(ratios, (25, 50, 75)).tolist()
    doubt = "" if high < 1 or low > 1 else "; no clear difference"
    spread = f"{_percent(low)} to {_percent(high)} in the middle half of the rounds"
    return f"{metric} {_percent(middle)} ({spread}{doubt})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def run_once(stream: Stream, configuration: Configuration, assets: Assets) -> Run:
    """Stream everything once, on new threads, so that no run inherits a policy from another."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run, stream, configuration, assets).result()


def _run(stream: Stream, configuration: Configuration, assets: Assets) -> Run:
    policies = configuration.policies()
    source: Any = files(assets.paths)
    if stream.simulated:
        source = simulated_assets(stream.codec, stream.chunk_bytes, stream.chunks)
    name = source.name if isinstance(source, Source) else "iterable"
    names = dict(zip(PARTS, (name, "decompress", "checksum"), strict=True))
    wanted = {names[part]: policy for part, policy in policies.items() if policy is not None}
    # The consumer is not measured, but must not delay the pipeline.
    refused = _apply(policies["processor"])
    timings, sums, nbytes = [], [], 0
    stages = (decompress(stream.codec), checksum("crc32"))
    with Pipeline(source, *stages, queue_items=stream.depth, policies=wanted) as pipeline:
        for chunk in pipeline:
            timings.append(chunk.timings)
            sums.append(chunk.checksum)
            nbytes += chunk.nbytes
        stats = pipeline.stats
    if nbytes != stream.chunks * stream.chunk_bytes or (assets.sums and sums != assets.sums):
        raise MisdeliveredError("the output is not the input")
    refused += [note for stage in stats.stages for policy in stage.policies for note in policy.notes]
    seconds = timings[-1][-1][3] - timings[0][0][2]
    latencies_us = _latencies_us(timings)
    figures: dict[str, float | None] = {"mb_per_s": nbytes / seconds / 1e6}
    for part, values in latencies_us.items():
        figures |= {figure_name(part, metric): value for metric, value in summarize(values).items()}
    return Run(figures, {"refused": sorted(set(refused))} if refused else {})


def _apply(policy: ThreadPolicy | None) -> list[str]:
    if policy is None:
        return []
    applied = [] if policy.priority is None else [cpu.set_priority(policy.priority)]
    applied += [] if policy.cpus is None else [cpu.pin(policy.cpus)]
    return [note for one in applied for note in one.notes]


Timings = Sequence[tuple[str, float, float, float]]


def _latencies_us(assets: Sequence[Timings]) -> dict[str, list[float]]:
    """The time in each part, and from end to end. A timing is ``(stage, queued, started, ended)`` in seconds."""
    latencies = {
        part: [(timings[number][3] - timings[number][2]) * 1e6 for timings in assets]
        for number, part in enumerate(PARTS)
    }
    latencies[END_TO_END] = [(timings[-1][3] - timings[0][2]) * 1e6 for timings in assets]
    return latencies


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
        for worker in burning:
            worker.communicate()
