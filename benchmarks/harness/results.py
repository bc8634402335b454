"""Results of the runs of methods.

A *group* is one table: its *rows* are compared with each other and with nothing else. A row is one method, which runs
once per round. A *run* yields named figures, such as ``fps``.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.methods import Method

#: How much of a program's output goes into an error message.
OUTPUT_CHARACTERS = 2000
#: The figure that `accounts.watch` gives.
OTHERS = "others_cpus"
#: A run is disturbed if other processes use more than this share of the machine. An idle one is below 0.02, and methods
#: are told apart from differences of some 0.05 up.
DISTURBED_SHARE = 0.05


class MisdeliveredError(Exception):
    """Other bytes have arrived than were sent, or fewer or more."""


class CannotDoError(Exception):
    """The method says that it cannot do the job at all, which is no error of its own: its row is skipped."""


@dataclass
class Run:
    """The result of one run of a method. If ``error`` or ``skipped`` is set, the figures do not count."""

    #: None where a figure is unknown or does not apply.
    figures: dict[str, float | None] = field(default_factory=dict)
    #: What the method reports about itself.
    notes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    #: Why the method cannot do the job.
    skipped: str | None = None

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes used the CPUs meanwhile, so that the figures say little."""
        return not self.error and (self.figures.get(OTHERS) or 0.0) > DISTURBED_SHARE * (os.cpu_count() or 1)

    def per_second(self, amount: float) -> float:
        """An amount by the ``seconds`` of the run."""
        return amount / (self.figures["seconds"] or math.inf)

    def count_frames(self, sent: int, received: int) -> None:
        """Set ``fps``. A lost or added frame is an error."""
        self.figures = {"fps": self.per_second(received), **self.figures}
        if received != sent:
            self.error = self.error or f"{sent} frames were sent, {received} were received"


@dataclass(frozen=True)
class Spread:
    """One figure over all rounds."""

    median: float
    min: float
    max: float
    #: The interquartile range: the width of the middle half of the rounds.
    iqr: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, *rounds: float) -> Spread:
        low, _, high = statistics.quantiles(rounds, method="inclusive") if len(rounds) > 1 else rounds * 3
        return cls(statistics.median(rounds), min(rounds), max(rounds), high - low, rounds)


@dataclass
class Row:
    """A method and its runs."""

    method: Method
    runs: list[Run] = field(default_factory=list)
    #: How many runs were thrown away and repeated, because they were disturbed.
    repeats: int = 0
    #: The untimed content check.
    checked: Run | None = None
    #: Why it was not run.
    skipped: str | None = None
    #: Why its figures do not count.
    error: str | None = None

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def is_measured(self) -> bool:
        """Whether the row has valid figures."""
        return bool(self.runs) and not (self.skipped or self.error)

    @property
    def disturbed_rounds(self) -> list[int]:
        """The numbers of the rounds that were disturbed. The first is 1."""
        return [number for number, run in enumerate(self.runs, 1) if run.is_disturbed]

    @property
    def notes(self) -> dict[str, Any]:
        """The notes of the last run."""
        return self.runs[-1].notes if self.runs else {}

    def spread(self, figure: str) -> Spread | None:
        """A figure over all rounds; None if it is unknown or the row was not measured."""
        values = [run.figures.get(figure) for run in self.runs] if self.is_measured else []
        known = tuple(value for value in values if value is not None)
        return Spread.of(*known) if known else None

    def median(self, figure: str) -> float | None:
        spread = self.spread(figure)
        return spread.median if spread else None


@dataclass(frozen=True)
class Outcome:
    """What became of a goal of a group."""

    goal: str
    #: One of ours by the other method; None if one of them was not measured.
    ratio: float | None = None
    #: The share of the bound that is enough, by the other method too.
    enough: float | None = None
    is_met: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.is_met]


@dataclass
class Group:
    """Rows that are compared with each other."""

    name: str
    title: str
    rows: list[Row]
    #: What each row had to do, for the record.
    about: dict[str, Any] = field(default_factory=dict)
    #: The version of the FFmpeg that all rows use.
    ffmpeg: str | None = None
    #: Conclusions from the figures, in sentences.
    findings: list[str] = field(default_factory=list)
    #: What the figures had to reach.
    outcomes: list[Outcome] = field(default_factory=list)

    def medians(self, figure: str) -> dict[str, float]:
        """The medians by method, of the rows that have the figure."""
        medians = {row.name: row.median(figure) for row in self.rows}
        return {name: median for name, median in medians.items() if median is not None}


#: Measures or checks a row once.
Measure = Callable[[Row], Run]


def rows_for(methods: Iterable[Method], job: Any) -> list[Row]:
    """A row for each method that can run the job."""
    return [Row(method, skipped=method.missing()) for method in methods if method.can_do(job)]
