"""What a record shows: a chart for each of its groups, and the comparison of Penstock with the best rival.

Places and lengths are in per cent of a chart's width.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks import capture, decode, encode, fan_out, machines, pipe, pipeline, relay, render, sound
from benchmarks.harness.tables import COLUMNS, short

#: In the order of the report.
MODULES = (encode, decode, pipe, pipeline, relay, render, fan_out, capture, sound, machines)
BENCHMARKS = {one.BENCHMARK.name: one.BENCHMARK for one in MODULES}
#: What Penstock does by default. Of several methods of ours, the first of these is compared.
DEFAULTS = ("auto", "penstock", "penstock.relay", "penstock.Tee", "penstock.Reader", "penstock.Pipeline")


@dataclass(frozen=True)
class Measure:
    """The figure that a chart shows."""

    figure: str
    title: str
    factor: float = 1.0
    is_less_better: bool = False


FPS = Measure("fps", "Frames per second")
#: Of what is better if it is less.
cost = partial(Measure, is_less_better=True)
BLOCKED = "ms that a frame blocks the caller"


def measures(benchmark: str, group: dict[str, Any]) -> list[Measure]:
    """The figures of a group that get a chart."""
    match benchmark, group["name"]:
        case "encode", _ if group["paced_fps"]:
            return [cost("blocked_p99_ms", f"{BLOCKED}, p99")]
        case "decode", _ if group.get("kind") == "first":
            return [cost("first_frame_s", "ms from opening a file to its first frame", 1e3)]
        case "fan_out", _:
            return [cost("blocked_p50_ms", f"{BLOCKED}, p50")]
        case "capture", _:
            return [cost("drawing_and_taking_p50_ms", "ms to draw and take a picture, p50")]
        case "sound", _:
            return [Measure("realtime", "seconds of the file per second")]
        case "relay", _ if group["bytes"]:
            return [Measure("ops_per_s", "GB/s", group["bytes"] / 1e9)]
        case (("relay" | "machines"), _):
            return [cost("op_s", "µs for a call", 1e6)]
        case "pipeline", "latencies":
            parts = "p50", "p95"
            return [cost(f"end to end {part} µs", f"ms from end to end, {part}", 1e-3) for part in parts]
        case "render", "chunk-lengths":
            return [FPS, cost("output_bytes", "MB of the video", 1e-6)]
        case ("pipeline", _) | ("render", "join"):
            return [Measure("mb_per_s", "MB/s")]
    return [FPS]


@dataclass
class Bar:
    """A method's row of a chart."""

    name: str
    kind: str
    #: Of the rounds; none if it was skipped or failed.
    values: Sequence[float]
    #: Why it has no values.
    remark: str = ""
    summary: str = ""
    #: Why it is no rival, though its values are shown.
    not_comparable: str | None = None
    #: The table's other columns, by heading.
    others: dict[str, str] = field(default_factory=dict)
    #: The value at the right end of the axis.
    top: float = 1.0

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def middle(self) -> tuple[float, float]:
        """The limits of the middle half of the rounds."""
        low, _, high = statistics.quantiles([*self.values] * (1 + (len(self.values) < 2)), method="inclusive")
        return low, high

    @property
    def places(self) -> list[float]:
        """Where the values are on the axis."""
        return [self.place(value) for value in self.values]

    def place(self, value: float) -> float:
        """Where a value is on the axis."""
        return round(100 * value / self.top, 2)


@dataclass
class Comparison:
    """One of ours and the best rival. A ratio above 1 is in our favor."""

    ours: Bar
    rival: Bar
    ratio: float

    @property
    def outcome(self) -> str:
        """``even`` if the middle halves of the rounds overlap."""
        (low, high), (rival_low, rival_high) = self.ours.middle, self.rival.middle
        if low <= rival_high and rival_low <= high:
            return "even"
        return "faster" if self.ratio > 1 else "slower"


@dataclass
class Chart:
    """A figure of a group of a record."""

    id: str
    #: The record's file.
    source: str
    record: dict[str, Any]
    group: dict[str, Any]
    measure: Measure
    #: The best first.
    bars: list[Bar]
    #: The numbers of the axis, and their places.
    ticks: list[tuple[str, float]]

    @property
    def benchmark(self) -> str:
        return str(self.record["benchmark"])

    @property
    def title(self) -> str:
        """What is measured, in words that no other chart of the benchmark has."""
        name = str(self.group["name"])
        if self.benchmark == "pipeline" and name == "latencies":
            storage = ", simulated storage" if self.record["settings"]["simulated"] else ""
            _, _, part = self.measure.title.partition(", ")
            return f"Latency of {self.group['codec']} assets{storage}, {part}"
        if self.benchmark == "render":
            return f"{name}: {self.measure.title}"
        if all(bar.kind == "ours" for bar in self.bars):
            return f"{name}: {' and '.join(sorted(bar.name for bar in self.bars))}"
        return name

    @property
    def headings(self) -> list[str]:
        """Of the table's other columns."""
        return [heading for heading, _ in COLUMNS.values() if any(heading in bar.others for bar in self.bars)]

    @property
    def pixels(self) -> int:
        """Of a frame; 0 if there are no frames."""
        size = self.group.get("size", self.group)
        return int(size.get("width", 0) * size.get("height", 0))

    def measured(self, kind: str) -> list[Bar]:
        """The bars of a kind that have values, the best first."""
        return [bar for bar in self.bars if bar.kind == kind and bar.values]

    @property
    def comparisons(self) -> list[Comparison]:
        """Penstock's default with each rival that was measured, the best first."""
        if not (ours := self.measured("ours")):
            return []
        default = next((bar for name in DEFAULTS for bar in ours if bar.name == name), ours[0])
        power = -1 if self.measure.is_less_better else 1
        return [
            Comparison(default, rival, (default.median / rival.median if rival.median else math.inf) ** power)
            for rival in self.measured("rival")
        ]

    @property
    def comparison(self) -> Comparison | None:
        """Penstock's default with the best rival, if both were measured."""
        return next(iter(self.comparisons), None)


def charts(source: str, record: dict[str, Any]) -> Iterator[Chart]:
    """The charts of a record. ``source`` is the name of its file."""
    for number, group in enumerate(record["groups"]):
        for measure in measures(record["benchmark"], group):
            bars = [*_bars(record["benchmark"], group, measure)]
            # The best first, and last what has no values.
            sign = 1 if measure.is_less_better else -1
            bars.sort(key=lambda bar: sign * bar.median if bar.values else math.inf)
            largest = max((value for bar in bars for value in bar.values), default=0) or 1.0
            for bar in bars:
                bar.top = largest * 1.01
            step = _step(largest)
            marks = [step * mark for mark in range(math.floor(largest / step) + 1)]
            ticks = [(f"{mark:,g}", round(100 * mark / largest / 1.01, 2)) for mark in marks]
            id = f"{source.removesuffix('.json')}-{number}-{measure.figure}".replace(" ", "-")
            yield Chart(id, source, record, group, measure, bars, ticks)


def _bars(benchmark: str, group: dict[str, Any], measure: Measure) -> Iterator[Bar]:
    summaries = {one.name: one.summary.replace("`", "") for one in BENCHMARKS[benchmark].settings.methods}
    for row in group["methods"]:
        name, figures = row["name"], row.get("figures", {})
        remarks = [f"{key}: {row[key]}" for key in ("error", "skipped") if key in row]
        rounds = [] if remarks else figures.get(measure.figure, {}).get("rounds", [])
        others = {
            heading: short(figures[figure]["median"] * factor)
            for figure, (heading, factor) in COLUMNS.items()
            if figure in figures and figure != measure.figure
        }
        values = [value * measure.factor for value in rounds]
        remark = "" if values else "; ".join(remarks) or "not measured"
        reason = row.get("notes", {}).get("not_comparable")
        yield Bar(name, row["kind"], values, remark, summaries.get(name, ""), reason, others)
        if measure.figure == "blocked_p99_ms" and "copy_p99_ms" in figures:
            yield Bar(f"plain copy ({name})", "other", figures["copy_p99_ms"]["rounds"])


def _step(largest: float) -> float:
    """Between the numbers of an axis from 0: 1, 2 or 5 times a power of ten, so that there are three to six."""
    power: float = 10.0 ** math.floor(math.log10(largest / 2))
    return power * max(one for one in (1, 2, 5) if one * power <= largest / 2)


class RatioAxis:
    """A logarithmic axis for ratios, with 1 at an inner place."""

    def __init__(self, ratios: Iterable[float]) -> None:
        powers = [math.log2(ratio) for ratio in ratios]
        self._low, self._high = math.floor(min([-1, *powers])), math.ceil(max([1, *powers]))

    @property
    def ticks(self) -> list[tuple[float, float]]:
        """Powers of two, 1 among them, and their places: five at most, whose numbers fit a narrow column."""
        step = math.ceil((self._high - self._low) / 4)
        powers = (power for power in range(self._low, self._high + 1) if power % step == 0)
        return [(2.0**power, self.place(2.0**power)) for power in powers]

    def place(self, ratio: float) -> float:
        """Where a ratio is on the axis, which leaves room at both ends for half a number."""
        return round(4 + 92 * (math.log2(ratio) - self._low) / (self._high - self._low), 2)
