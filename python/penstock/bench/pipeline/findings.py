"""What the figures of this run say of priorities and pinning, and how sure that is.

Each round has a run of every configuration, so that two of them can be compared round by round, whatever else the
machine did meanwhile. A difference counts when three quarters of the rounds agree on its direction.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.bench.goals import Verdict
from penstock.bench.pipeline.cases import END_TO_END, NORMAL, PINNED, PRIORITIES, Settings
from penstock.bench.pipeline.latency import Row
from penstock.bench.pipeline.throughput import Race

SOURCE = "the goals of Penstock's pipelines, for a 2-core x86-64 virtual machine; medians of one run"

#: Of end-to-end p50 or p95 with priorities, against that without.
LOWER_BY = 0.2
#: Of the pipeline's throughput over that of a pool of Python threads.
GAINS = {"zlib": 2.0, "zstd": 1.5}


@dataclass(frozen=True)
class Change:
    """How a metric differs between two configurations: the ratios of the second to the first, round by round."""

    metric: str
    ratios: tuple[float, ...]

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The ratio below which a quarter, a half and three quarters of the rounds lie."""
        if len(self.ratios) < 2:
            return (self.ratios[0],) * 3
        low, middle, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, middle, high

    @property
    def is_clear(self) -> bool:
        """Whether three quarters of the rounds agree."""
        low, _, high = self.quartiles
        return high < 1 or low > 1

    def __str__(self) -> str:
        low, middle, high = self.quartiles
        spread = f"{_percent(low)} to {_percent(high)} in the middle half of the rounds"
        doubt = "" if self.is_clear else "; no clear difference"
        return f"{self.metric} {_percent(middle)} ({spread}{doubt})"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def compare(first: Row, second: Row, metric: str) -> Change:
    """End to end."""
    pairs = zip(first.figures(END_TO_END, metric), second.figures(END_TO_END, metric), strict=True)
    return Change(metric, tuple(after / before for before, after in pairs))


def _throughput(first: Row, second: Row) -> Change:
    pairs = zip(first.runs, second.runs, strict=True)
    return Change("throughput", tuple(after.mb_per_s / before.mb_per_s for before, after in pairs))


def findings(rows: Sequence[Row]) -> list[str]:
    """Sentences for people, made of nothing but this run's figures."""
    by_configuration = {row.configuration: row for row in rows}
    said = []
    for what, first, second in (
        ("Priorities, against none", NORMAL, PRIORITIES),
        ("Pinning, on top of priorities", PRIORITIES, PINNED),
    ):
        if first in by_configuration and second in by_configuration:
            pair = by_configuration[first], by_configuration[second]
            changes = [*(compare(*pair, metric) for metric in ("p50", "p95")), _throughput(*pair)]
            said.append(f"{what}: end-to-end {', '.join(map(str, changes))}.")
    return said + [f"Refused in {row.configuration.name!r}: {note}" for row in rows for note in row.refused]


def verdicts(settings: Settings, rows: Sequence[Row], races: Sequence[Race]) -> list[Verdict]:
    """The goals that these results can judge."""
    judged = []
    by_configuration = {row.configuration: row for row in rows}
    if NORMAL in by_configuration and PRIORITIES in by_configuration and settings.background:
        normal, priorities = by_configuration[NORMAL], by_configuration[PRIORITIES]
        metric, gain = max(
            (
                (
                    metric,
                    normal.figure(END_TO_END, metric).median / priorities.figure(END_TO_END, metric).median,
                )
                for metric in ("p50", "p95")
            ),
            key=lambda entry: entry[1],
        )
        what = f"end-to-end {metric}, all normal / priorities"
        judged.append(Verdict(what, gain, 1 / (1 - LOWER_BY)))
    for race in races:
        if race.codec in GAINS:
            pipeline, pool = race.contenders
            what = f"{pipeline.name} / {pool.name}, {race.codec}, {settings.workers} threads each"
            judged.append(Verdict(what, race.gain(), GAINS[race.codec]))
    return judged
