"""The assets through reader, decompressor and processor, each timed on its way.

The rounds are interleaved: each configuration runs once before any runs again, and another begins each round, so that a
machine that gets slower or busier meanwhile does so for all of them.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import ThreadPolicy, cpu
from penstock.bench.pipeline.cases import CONFIGURATIONS, END_TO_END, PARTS, Configuration, Settings
from penstock.bench.pipeline.load import background
from penstock.bench.pipeline.storage import Assets, simulated_assets, write_assets
from penstock.bench.spread import iqr
from penstock.pipeline import Pipeline, Source, checksum, decompress, files

Report = Callable[[str], None]

METRICS = ("min", "p50", "p95", "max", "mean")


class MisdeliveredError(Exception):
    """What came out is not what went in."""


@dataclass(frozen=True)
class Run:
    """One run of one configuration."""

    #: Of each part and end to end, a value for each asset, in microseconds.
    latencies_us: dict[str, list[float]]
    mb_per_s: float
    #: What the system refused.
    refused: tuple[str, ...]


@dataclass(frozen=True)
class Middle:
    """The median over the rounds, and how far apart the middle half of them lies."""

    median: float
    iqr: float


@dataclass
class Row:
    """A configuration and its runs, one a round."""

    configuration: Configuration
    runs: list[Run] = field(default_factory=list)

    def figure(self, part: str, metric: str) -> Middle:
        """Microseconds of that part."""
        return _middle(self.figures(part, metric))

    def figures(self, part: str, metric: str) -> list[float]:
        """The same of each round."""
        return [summarize(run.latencies_us[part])[metric] for run in self.runs]

    def throughput(self) -> Middle:
        """Megabytes (1e6) of content a second."""
        return _middle([run.mb_per_s for run in self.runs])

    @property
    def refused(self) -> list[str]:
        """What the system refused in any of the runs."""
        return sorted({note for run in self.runs for note in run.refused})


def _middle(values: Sequence[float]) -> Middle:
    return Middle(statistics.median(values), iqr(values))


def summarize(values: Sequence[float]) -> dict[str, float]:
    """The metrics of one run. Percentiles lie between two values where none is exactly there."""
    low_to_high = (
        statistics.quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    )
    return {
        "min": min(values),
        "p50": low_to_high[49],
        "p95": low_to_high[94],
        "max": max(values),
        "mean": statistics.fmean(values),
    }


def run_rows(settings: Settings, report: Report = lambda _: None) -> list[Row]:
    """All configurations, in turn."""
    rows = [Row(configuration) for configuration in CONFIGURATIONS]
    with tempfile.TemporaryDirectory() as folder:
        assets = Assets()
        if not settings.simulated:
            report("writing the assets")
            assets = write_assets(Path(folder), settings.codec, settings.chunk_bytes, settings.chunks)
        with background(settings.background):
            for number in range(settings.rounds):
                for row in _rotated(rows, number):
                    report(f"round {number + 1} of {settings.rounds}: {row.configuration.name}")
                    row.runs.append(run_once(settings, row.configuration, assets))
    return rows


def _rotated(rows: Sequence[Row], number: int) -> list[Row]:
    first = number % len(rows)
    return [*rows[first:], *rows[:first]]


def run_once(settings: Settings, configuration: Configuration, assets: Assets) -> Run:
    """The stream once, on threads that are new: what one run did to them is nothing to the next."""
    made: list[Run | BaseException] = []

    def run() -> None:
        try:
            made.append(_run(settings, configuration, assets))
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (result,) = made
    if isinstance(result, BaseException):
        raise result
    return result


def _run(settings: Settings, configuration: Configuration, assets: Assets) -> Run:
    policies = configuration.policies()
    source = _source(settings, assets)
    names = dict(zip(PARTS, (_name(source), "decompress", "checksum"), strict=True))
    wanted = {names[part]: policy for part, policy in policies.items() if policy is not None}
    # Who takes the chunks out is no part of what is measured, but must not hold it up.
    refused = _apply(policies["processor"])
    timings, sums, nbytes = [], [], 0
    stages = (decompress(settings.codec), checksum("crc32"))
    with Pipeline(source, *stages, depth=settings.depth, policies=wanted) as pipeline:
        for chunk in pipeline:
            timings.append(chunk.timings)
            sums.append(chunk.checksum)
            nbytes += chunk.nbytes
        stats = pipeline.stats
    if nbytes != settings.chunks * settings.chunk_bytes or (assets.sums and sums != assets.sums):
        raise MisdeliveredError(f"what came out in {configuration.name!r} is not what went in")
    refused += [note for stage in stats.stages for policy in stage.policies for note in policy.notes]
    seconds = (timings[-1][-1][3] - timings[0][0][2]) / 1e9
    return Run(_latencies(timings), nbytes / seconds / 1e6, tuple(refused))


def _source(settings: Settings, assets: Assets) -> Any:
    if settings.simulated:
        return simulated_assets(settings.codec, settings.chunk_bytes, settings.chunks)
    return files(assets.paths)


def _name(source: Any) -> str:
    return source.name if isinstance(source, Source) else "iterable"


def _apply(policy: ThreadPolicy | None) -> list[str]:
    if policy is None:
        return []
    applied = [] if policy.priority is None else [cpu.set_priority(policy.priority)]
    applied += [] if policy.cpus is None else [cpu.pin(policy.cpus)]
    return [note for one in applied for note in one.notes]


Timings = Sequence[tuple[str, int, int, int]]


def _latencies(assets: Sequence[Timings]) -> dict[str, list[float]]:
    """The work of each part, and all from its beginning: of ``(stage, queued, started, ended)`` in nanoseconds."""
    latencies = {
        part: [(timings[number][3] - timings[number][2]) / 1e3 for timings in assets]
        for number, part in enumerate(PARTS)
    }
    latencies[END_TO_END] = [(timings[-1][3] - timings[0][2]) / 1e3 for timings in assets]
    return latencies
