"""Runs the cases in turn, and keeps all that they measured."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.bench import machine
from penstock.bench.decode.cases import CRF, PRESET, Job, Method, Settings
from penstock.bench.decode.goals import DEPTH, FRAMES_BEYOND_DEPTH, SOURCE, judge
from penstock.bench.decode.inputs import InputError, link_programs, make_input
from penstock.bench.decode.worker import Result, Task
from penstock.bench.goals import ROUNDS_NEEDED, Judgement, as_record
from penstock.bench.isolated import FailedError, run_module
from penstock.bench.record import header
from penstock.bench.rivals import unavailable
from penstock.bench.rounds import interleaved, over
from penstock.bench.spread import iqr

#: Of the record's layout; a change that a reader of records must know about counts it up.
SCHEMA = 1
#: Whose versions bear on the result.
PACKAGES = ("av", "decord", "ffmpegcv", "imageio-ffmpeg", "numpy", "opencv-python-headless")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """Medians and spread of a case over the rounds."""

    fps: float
    fps_min: float
    fps_max: float
    #: The middle half of the rounds lies this far apart.
    fps_iqr: float
    seconds: float
    start_s: float | None
    cpu_own_s: float
    cpu_child_s: float
    #: Of all rounds the largest, as are the following.
    peak_own_bytes: float | None
    peak_child_bytes: float | None
    difference: float | None


@dataclass
class Row:
    """One method in one group."""

    method: Method
    rounds: list[Result] = field(default_factory=list)
    #: Why there is nothing to measure: the rival is not installed, FFmpeg cannot make the file.
    skipped: str | None = None
    #: What went wrong. A case that lost a frame or shows another one has no speed.
    error: str | None = None

    def summary(self) -> Summary | None:
        """None for a row without a valid measurement."""
        if self.skipped or self.error or not self.rounds:
            return None
        rates = [result.frames_read / result.seconds for result in self.rounds]
        return Summary(
            fps=statistics.median(rates),
            fps_min=min(rates),
            fps_max=max(rates),
            fps_iqr=iqr(rates),
            seconds=statistics.median(result.seconds for result in self.rounds),
            start_s=over(self.rounds, "start_s", statistics.median),
            cpu_own_s=statistics.median(result.cpu_own_s for result in self.rounds),
            cpu_child_s=statistics.median(result.cpu_child_s for result in self.rounds),
            peak_own_bytes=over(self.rounds, "peak_own_bytes", max),
            peak_child_bytes=over(self.rounds, "peak_child_bytes", max),
            difference=over(self.rounds, "difference", max),
        )


@dataclass
class Group:
    """The rows of one job, which are compared with each other."""

    job: Job
    rows: list[Row]
    #: Of the file.
    input_bytes: int | None = None

    def summaries(self) -> dict[str, Summary]:
        """Of the methods that were measured."""
        summaries = ((row.method.name, row.summary()) for row in self.rows)
        return {name: summary for name, summary in summaries if summary is not None}

    def judgements(self) -> list[Judgement]:
        """The goals about this job that its rows can judge."""
        summaries = self.summaries()
        fps = {name: summary.fps for name, summary in summaries.items()}
        peaks = {name: summary.peak_own_bytes for name, summary in summaries.items()}
        return judge(self.job, fps, peaks)


def run_groups(settings: Settings, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group's result as soon as it is there. ``report`` is told what is about to run."""
    for job in settings.jobs:
        methods = [method for method in settings.methods if method.source == job.source]
        group = Group(job, [Row(method, skipped=unavailable(method.needs)) for method in methods])
        if methods:
            with tempfile.TemporaryDirectory() as folder:
                _run_group(settings, group, Path(folder), report)
            yield group


def _run_group(settings: Settings, group: Group, folder: Path, report: Report) -> None:
    report(f"{group.job.name}: making what is to be read")
    try:
        task_of = _make_tasks(settings, group, folder)
    except InputError as error:
        for row in group.rows:
            row.skipped = row.skipped or str(error)
        return
    for number, row in interleaved(group.rows, settings.rounds, settings.seed):
        report(f"{group.job.name}, round {number + 1} of {settings.rounds}: {row.method.name}")
        result = run_isolated(task_of(row.method), group.job.timeout_s)
        row.rounds.append(result)
        row.error = result.error


def _make_tasks(settings: Settings, group: Group, folder: Path) -> Callable[[Method], Task]:
    import numpy as np

    ffmpeg = link_programs(settings.ffmpeg, folder)
    path, reference = make_input(group.job, ffmpeg, folder, settings.seed)
    group.input_bytes = Path(path).stat().st_size
    reference_path = str(folder / "reference.npy")
    np.save(reference_path, reference)
    return lambda method: Task(method, group.job, ffmpeg, path, reference_path)


def run_isolated(task: Task, timeout_s: float) -> Result:
    """Run one task in a fresh interpreter."""
    try:
        return Result(**run_module("penstock.bench.decode.worker", task.to_json(), timeout_s))
    except FailedError as error:
        return Result(error=str(error))


def has_errors(groups: Sequence[Group]) -> bool:
    """Whether any case lost a frame, showed another one, or failed."""
    return any(row.error for group in groups for row in group.rows)


def make_record(settings: Settings, before: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    """Everything that was measured, ready for JSON. ``before`` describes the machine before the run."""
    software = machine.describe_software(
        ffmpeg=machine.ffmpeg_version(settings.ffmpeg),
        **{name: machine.package_version(name) for name in PACKAGES},
    )
    return header("decode", SCHEMA, before, software) | {
        "settings": {
            "jobs": [job.name for job in settings.jobs],
            "methods": [method.name for method in settings.methods],
            "preset": PRESET,
            "crf": CRF,
            "rounds": settings.rounds,
            "seed": settings.seed,
        },
        "groups": [_group_record(group) for group in groups],
        "goals": {
            "source": SOURCE,
            "rounds_needed": ROUNDS_NEEDED,
            "depth": DEPTH,
            "frames_beyond_depth": FRAMES_BEYOND_DEPTH,
            "verdicts": as_record([verdict for group in groups for verdict in group.judgements()]),
        },
    }


def _group_record(group: Group) -> dict[str, Any]:
    return {
        "job": asdict(group.job),
        "input_bytes": group.input_bytes,
        "methods": [_row_record(row) for row in group.rows],
    }


def _row_record(row: Row) -> dict[str, Any]:
    summary = row.summary()
    return {
        "name": row.method.name,
        "kind": row.method.kind,
        "pixel_format": row.method.pixel_format,
        "own_ffmpeg": row.method.own_ffmpeg,
        "skipped": row.skipped,
        "error": row.error,
        "median": None if summary is None else asdict(summary),
        "rounds": [asdict(result) for result in row.rounds],
    }
