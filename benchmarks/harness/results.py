"""Methods, and what their runs found.

A *group* is a table: its *rows* are compared with each other, and only those. A row is one method, which runs once
per round. A *run* yields named figures, such as ``fps``.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: Names of packages on PyPI where they differ from the module's.
PACKAGES = {"cv2": "opencv-python-headless", "imageio_ffmpeg": "imageio-ffmpeg"}


def serves_all(_job: Any) -> bool:
    """Of a method that can run every job."""
    return True


@dataclass(frozen=True)
class Method:
    """One way to do a job."""

    name: str
    summary: str
    #: A ``rival`` is compared with ours. ``other`` cannot do the same and is only shown. A ``bound`` is FFmpeg alone.
    kind: Literal["ours", "rival", "other", "bound"] = "rival"
    #: Does the job; its arguments are the benchmark's affair. None for a bound.
    start: Callable[..., Any] | None = None
    #: Modules it needs. They are imported before the clock starts.
    needs: tuple[str, ...] = ()
    #: Whether it can run a job.
    serves: Callable[[Any], bool] = serves_all
    #: Of the frames that it takes or gives.
    pixel_format: str = "rgb24"
    #: Uses FFmpeg libraries of its own, whatever ``--ffmpeg`` says.
    own_ffmpeg: bool = False

    def missing(self) -> str | None:
        """Why it cannot be run here; None if it can."""
        names = dict.fromkeys(module.partition(".")[0] for module in self.needs)
        absent = [PACKAGES.get(name, name) for name in names if importlib.util.find_spec(name) is None]
        return f"not installed (pip install {' '.join(absent)})" if absent else None


@dataclass
class Run:
    """What one run of a method found. With an ``error``, its figures say nothing about the method's speed."""

    #: None where a figure is unknown or does not apply.
    figures: dict[str, float | None] = field(default_factory=dict)
    #: What the method says of itself.
    notes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    #: Single measurements, for pictures. They are not recorded.
    raw: Any = None


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def min(self) -> float:
        return min(self.rounds)

    @property
    def max(self) -> float:
        return max(self.rounds)

    @property
    def iqr(self) -> float:
        """The width of the middle half of the rounds."""
        if len(self.rounds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return high - low


@dataclass
class Row:
    """One method in a group."""

    method: Method
    runs: list[Run] = field(default_factory=list)
    #: Why it was not run: not installed, or no room.
    skipped: str | None = None
    #: What went wrong. A method that lost or changed a byte has no speed.
    error: str | None = None
    #: What the untimed content check found.
    checked: Run | None = None

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def is_measured(self) -> bool:
        """Whether it has valid figures."""
        return bool(self.runs) and not (self.skipped or self.error)

    @property
    def notes(self) -> dict[str, Any]:
        """What the method said of itself in the last run."""
        return self.runs[-1].notes if self.runs else {}

    def spread(self, figure: str) -> Spread | None:
        """A figure over the rounds; None for a row without valid figures or without this one."""
        values = [run.figures.get(figure) for run in self.runs] if self.is_measured else []
        known = tuple(value for value in values if value is not None)
        return Spread(known) if known else None

    def median(self, figure: str) -> float | None:
        """The median of `spread`."""
        spread = self.spread(figure)
        return spread.median if spread else None

    def max(self, figure: str) -> float | None:
        """The largest value of `spread`."""
        spread = self.spread(figure)
        return spread.max if spread else None


@dataclass
class Group:
    """Rows that are compared with each other."""

    #: What the goals and the record call it.
    name: str
    title: str
    rows: list[Row]
    #: What every row had to do, for the record.
    about: dict[str, Any] = field(default_factory=dict)
    #: The FFmpeg of all rows that take one, by its version.
    ffmpeg: str | None = None
    #: What follows from the figures, in sentences.
    findings: list[str] = field(default_factory=list)

    def medians(self, figure: str) -> dict[str, float]:
        """By the method's name, of the rows that have it."""
        medians = {row.name: row.median(figure) for row in self.rows}
        return {name: median for name, median in medians.items() if median is not None}


def rows_for(methods: Sequence[Method], job: Any) -> list[Row]:
    """A row for each method that can run the job."""
    return [Row(method, skipped=method.missing()) for method in methods if method.serves(job)]
