"""Runs the cases in turn, and keeps all that they measured."""

from __future__ import annotations

import importlib
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from penstock.bench import machine
from penstock.bench.goals import ROUNDS_NEEDED, Verdict, as_record
from penstock.bench.isolated import FailedError, run_module
from penstock.bench.pipe.cases import STANDARD, TMPFS, Group, Method, Settings
from penstock.bench.pipe.goals import GOALS, MEMORY_LIMIT_BYTES, SOURCE, judge
from penstock.bench.pipe.worker import Result, Task, make_frames
from penstock.bench.record import header
from penstock.bench.rounds import interleaved
from penstock.bench.spread import iqr

#: Of the record's layout; a change that a reader of records must know about counts it up.
SCHEMA = 1
#: Frames whose content is compared, for each method: each of 4 buffers is overwritten and sent 4 times.
CONTENT_FRAMES = 16
STARTUP_RUNS = 3
#: Whose versions bear on the result.
PACKAGES = ("numpy", "turbopipe")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """Medians and spread of a case over the rounds."""

    fps: float
    fps_min: float
    fps_max: float
    #: The middle half of the rounds lies this far apart.
    fps_iqr: float
    gb_per_s: float
    seconds: float
    cpu_own_s: float
    cpu_child_s: float
    peak_extra_bytes: int | None


@dataclass
class Row:
    """One method in one group."""

    method: Method
    rounds: list[Result] = field(default_factory=list)
    #: Why there is nothing to measure: the rival is not installed, tmpfs is too small.
    skipped: str | None = None
    #: What went wrong. A case that lost or tore a frame has no speed.
    error: str | None = None

    def summary(self, frame_bytes: int) -> Summary | None:
        """None for a row without a valid measurement."""
        if self.skipped or self.error or not self.rounds:
            return None
        rates = [result.frames_sent / result.seconds for result in self.rounds]
        peaks = [result.peak_extra_bytes for result in self.rounds if result.peak_extra_bytes is not None]
        fps = statistics.median(rates)
        return Summary(
            fps=fps,
            fps_min=min(rates),
            fps_max=max(rates),
            fps_iqr=iqr(rates),
            gb_per_s=fps * frame_bytes / 1e9,
            seconds=statistics.median(result.seconds for result in self.rounds),
            cpu_own_s=statistics.median(result.cpu_own_s for result in self.rounds),
            cpu_child_s=statistics.median(result.cpu_child_s for result in self.rounds),
            peak_extra_bytes=max(peaks) if peaks else None,
        )


@dataclass
class GroupResult:
    """The rows of one group."""

    group: Group
    rows: list[Row]
    #: Median time of a run with one frame: the part of every case that is FFmpeg's start and end.
    startup_s: float | None = None

    def rates(self) -> dict[str, float]:
        """Median frames per second of the methods that were measured."""
        summaries = ((row.method.name, row.summary(self.group.size.frame_bytes)) for row in self.rows)
        return {name: summary.fps for name, summary in summaries if summary is not None}

    def startup_share(self) -> float | None:
        """FFmpeg's start as a part of the fastest method's run: so much do the ratios lean towards 1."""
        summaries = [row.summary(self.group.size.frame_bytes) for row in self.rows]
        seconds = [summary.seconds for summary in summaries if summary is not None]
        return self.startup_s / min(seconds) if self.startup_s is not None and seconds else None

    def verdicts(self) -> list[Verdict]:
        """The goals about this group that its rows can judge."""
        rates = self.rates()
        about = (self.group.size.name, self.group.encode.name, self.group.buffers)
        judged = (judge(goal, rates) for goal in GOALS if (goal.size, goal.encode, goal.buffers) == about)
        return [verdict for verdict in judged if verdict is not None]


def run_groups(settings: Settings, report: Report = lambda _: None) -> Iterator[GroupResult]:
    """Each group's result as soon as it is there. ``report`` is told what is about to run."""
    for group in settings.groups():
        rows = [Row(method, skipped=_unavailable(method)) for method in settings.methods]
        result = GroupResult(group, rows)
        with _bound_file(settings, group, rows) as path:
            if settings.check_content:
                _check_content(settings, group, rows, report)
            result.startup_s = _startup_s(settings, group, report)
            _run_rounds(settings, group, rows, path, report)
        yield result


def _run_rounds(settings: Settings, group: Group, rows: list[Row], path: str | None, report: Report) -> None:
    for number, row in interleaved(rows, settings.rounds, settings.seed):
        report(f"{group.title}, round {number + 1} of {settings.rounds}: {row.method.name}")
        result = run_isolated(_task(settings, group, row.method, path), group.timeout_s)
        row.rounds.append(result)
        row.error = result.error


def _check_content(settings: Settings, group: Group, rows: list[Row], report: Report) -> None:
    """One untimed pass in which every buffer is overwritten as soon as the method says that it may be."""
    for row in rows:
        if row.skipped or row.method.name == TMPFS:
            continue
        report(f"{group.title}, content: {row.method.name}")
        task = _task(settings, group, row.method, None, min(group.frames, CONTENT_FRAMES), check_content=True)
        row.error = run_isolated(task, group.timeout_s).error


def _startup_s(settings: Settings, group: Group, report: Report) -> float | None:
    report(f"{group.title}, FFmpeg's start")
    method = Method(STANDARD, "")
    results = [
        run_isolated(_task(settings, group, method, None, 1), group.timeout_s) for _ in range(STARTUP_RUNS)
    ]
    good = [result.seconds for result in results if result.error is None]
    return statistics.median(good) if good else None


def _task(
    settings: Settings,
    group: Group,
    method: Method,
    path: str | None,
    frames: int | None = None,
    *,
    check_content: bool = False,
) -> Task:
    return Task(
        method=method,
        size=group.size,
        encode=group.encode,
        buffers=group.buffers,
        frames=group.frames if frames is None else frames,
        seed=settings.seed,
        ffmpeg=settings.ffmpeg,
        input_path=path if method.name == TMPFS else None,
        check_content=check_content,
    )


def run_isolated(task: Task, timeout_s: float) -> Result:
    """Run one task in a fresh interpreter."""
    try:
        return Result(**run_module("penstock.bench.pipe.worker", task.to_json(), timeout_s))
    except FailedError as error:
        return Result(task.frames, 0, 0.0, 0.0, 0.0, None, error=str(error))


def _unavailable(method: Method) -> str | None:
    if method.needs is None:
        return None
    try:
        importlib.import_module(method.needs)
    except ImportError as error:
        return f"not installed ({error})"
    return None


@contextmanager
def _bound_file(settings: Settings, group: Group, rows: list[Row]) -> Iterator[str | None]:
    """The group's frames in tmpfs, if the bound is wanted and there is room; else its row says why not."""
    row = next((row for row in rows if row.method.name == TMPFS), None)
    if row is None:
        yield None
        return
    row.skipped = machine.no_room(group.nbytes)
    if row.skipped:
        yield None
        return
    # Without a name in any directory, so that its memory is given back however this process ends.
    with tempfile.TemporaryFile(dir=machine.SHARED_MEMORY) as file:
        write_frames(file, group, settings.seed)
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"


def write_frames(file: IO[bytes], group: Group, seed: int) -> None:
    """Write the bytes that every method of the group sends."""
    frames = make_frames(group.size, group.buffers, seed)
    for number in range(group.frames):
        file.write(frames[number % group.buffers].data)
    file.flush()


def has_errors(results: list[GroupResult]) -> bool:
    """Whether any case lost or tore a frame, or failed."""
    return any(row.error for result in results for row in result.rows)


def make_record(settings: Settings, before: dict[str, Any], results: list[GroupResult]) -> dict[str, Any]:
    """Everything that was measured, ready for JSON. ``before`` describes the machine before the run."""
    software = machine.describe_software(
        ffmpeg=machine.ffmpeg_version(settings.ffmpeg),
        **{name: machine.package_version(name) for name in PACKAGES},
    )
    return header("pipe", SCHEMA, before, software) | {
        "settings": {
            "sizes": [size.name for size in settings.sizes],
            "encodes": [encode.name for encode in settings.encodes],
            "buffers": list(settings.buffers),
            "methods": [method.name for method in settings.methods],
            "bytes_per_case": settings.bytes_per_case,
            "rounds": settings.rounds,
            "seed": settings.seed,
            "check_content": settings.check_content,
        },
        "groups": [_group_record(result) for result in results],
        "goals": {
            "source": SOURCE,
            "rounds_needed": ROUNDS_NEEDED,
            "memory_limit_bytes": MEMORY_LIMIT_BYTES,
            "verdicts": as_record([verdict for result in results for verdict in result.verdicts()]),
        },
    }


def _group_record(result: GroupResult) -> dict[str, Any]:
    group = result.group
    return {
        "size": asdict(group.size),
        "encode": {"name": group.encode.name, "arguments": list(group.encode.arguments)},
        "buffers": group.buffers,
        "frames": group.frames,
        "bytes": group.nbytes,
        "startup_s": result.startup_s,
        "methods": [_row_record(row, group.size.frame_bytes) for row in result.rows],
    }


def _row_record(row: Row, frame_bytes: int) -> dict[str, Any]:
    summary = row.summary(frame_bytes)
    return {
        "name": row.method.name,
        "skipped": row.skipped,
        "error": row.error,
        "median": None if summary is None else asdict(summary),
        "rounds": [asdict(result) for result in row.rounds],
    }
