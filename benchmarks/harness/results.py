"""Jobs, methods, and the results of their runs.

A *group* is one table: its *rows* are compared with each other and with nothing else. A row is one method, which runs
once per round. A *run* yields named figures, such as ``fps``.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

#: Names of packages on PyPI that differ from the module's name.
PACKAGES = {"cv2": "opencv-python-headless", "imageio_ffmpeg": "imageio-ffmpeg"}

Kind = Literal["ours", "rival", "other", "bound"]
Start = TypeVar("Start", bound=Callable[..., Any])


@dataclass(frozen=True)
class FrameJob:
    """A job that moves frames of ``height × width × 3`` bytes."""

    name: str
    width: int
    height: int
    frames: int

    @property
    def slowest_bytes_per_s(self) -> float:
        """A slower case has hung. Guessed low, for slow machines."""
        return 10e6

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height

    @property
    def frame_bytes(self) -> int:
        return self.width * self.height * 3

    @property
    def timeout_s(self) -> float:
        """A case that takes longer has hung. A minute is for a machine that is busy with something else."""
        return 60 + self.frames * self.frame_bytes / self.slowest_bytes_per_s

    @property
    def about(self) -> dict[str, Any]:
        """The job in the record."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


def serves_all(_job: Any) -> bool:
    """For a method that can run every job. (A lambda could not be pickled.)"""
    return True


@dataclass(frozen=True)
class Method:
    """One way to do a job."""

    name: str
    summary: str
    #: A ``rival`` is compared with ours. An ``other`` does something else, and is only shown. A ``bound`` is FFmpeg
    #: alone.
    kind: Kind = "rival"
    #: Does the job. Each benchmark defines the arguments. None for a bound.
    start: Callable[..., Any] | None = None
    #: Modules that are imported before the clock starts.
    needs: tuple[str, ...] = ()
    #: Whether the method can run a job.
    serves: Callable[[Any], bool] = serves_all
    #: Of the frames that the method takes or gives.
    pixel_format: str = "rgb24"
    #: Whether it uses FFmpeg libraries of its own instead of the program that ``--ffmpeg`` names.
    own_ffmpeg: bool = False

    @property
    def packages(self) -> dict[str, str]:
        """The packages on PyPI that have the needed modules, by the module's top-level name."""
        names = (module.partition(".")[0] for module in self.needs)
        return {name: PACKAGES.get(name, name) for name in names}

    def missing(self) -> str | None:
        """Why the method cannot run here, or None if it can."""
        absent = [one for name, one in self.packages.items() if importlib.util.find_spec(name) is None]
        return f"not installed (pip install {' '.join(absent)})" if absent else None


class Methods(list[Method]):
    """The methods of a benchmark, in the order of its tables."""

    def add(self, name: str, kind: Kind = "rival", **more: Any) -> Callable[[Start], Start]:
        """A decorator that makes a method of a function. The docstring's first line is the summary."""

        def register(start: Start) -> Start:
            summary = (start.__doc__ or "").partition("\n")[0].rstrip(".")
            self.append(Method(name, summary, kind, start, **more))
            return start

        return register


class MisdeliveredError(Exception):
    """Other bytes have arrived than were sent, or fewer or more."""


@dataclass
class Run:
    """The result of one run of a method. If ``error`` is set, the figures do not count."""

    #: None where a figure is unknown or does not apply.
    figures: dict[str, float | None] = field(default_factory=dict)
    #: What the method reports about itself.
    notes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    #: Single measurements, for the picture. The record leaves them out.
    raw: Any = None

    def count_frames(self, sent: int, received: int) -> None:
        """Set ``fps`` from ``seconds``. A lost or added frame is an error."""
        self.figures = {"fps": received / (self.figures["seconds"] or math.inf), **self.figures}
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

    def max(self, figure: str) -> float | None:
        spread = self.spread(figure)
        return spread.max if spread else None


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

    def medians(self, figure: str) -> dict[str, float]:
        """The medians by method, of the rows that have the figure."""
        medians = {row.name: row.median(figure) for row in self.rows}
        return {name: median for name, median in medians.items() if median is not None}


def rows_for(methods: Iterable[Method], job: Any) -> list[Row]:
    """A row for each method that can run the job."""
    return [Row(method, skipped=method.missing()) for method in methods if method.serves(job)]
