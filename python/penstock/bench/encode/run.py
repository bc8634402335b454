"""Runs the cases in turn, and keeps all that they measured."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from penstock.bench import machine
from penstock.bench.encode.cases import (
    CODEC,
    FRAMES_PER_S,
    OURS,
    OUTPUT_PIXEL_FORMAT,
    Job,
    Method,
    Settings,
)
from penstock.bench.encode.goals import SOURCE, judge
from penstock.bench.encode.worker import Result, Task
from penstock.bench.goals import ROUNDS_NEEDED, Judgement, as_record
from penstock.bench.isolated import FailedError, run_module
from penstock.bench.record import header
from penstock.bench.rivals import unavailable
from penstock.bench.rounds import interleaved, over
from penstock.bench.spread import iqr

#: Of the record's layout; a change that a reader of records must know about counts it up.
SCHEMA = 1
#: Frames whose content is compared, for each method: each of 3 buffers is overwritten and sent 4 times.
CONTENT_FRAMES = 12
#: Whose versions bear on the result.
PACKAGES = (
    "av",
    "imageio-ffmpeg",
    "moviepy",
    "numpy",
    "opencv-python-headless",
    "turbopipe",
    "vidgear",
)

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
    start_s: float
    cpu_own_s: float
    cpu_child_s: float
    blocked_p50_ms: float | None
    blocked_p99_ms: float | None
    #: Of all rounds the largest, as the two peaks are.
    blocked_max_ms: float | None
    copy_p99_ms: float | None
    peak_own_bytes: float | None
    peak_child_bytes: float | None
    output_bytes: float


@dataclass
class Row:
    """One method in one group."""

    method: Method
    rounds: list[Result] = field(default_factory=list)
    #: Why there is nothing to measure: the rival is not installed, tmpfs is too small.
    skipped: str | None = None
    #: What went wrong. A case that lost or tore a frame has no speed.
    error: str | None = None
    #: What the check of the content found.
    content: Result | None = None

    def summary(self) -> Summary | None:
        """None for a row without a valid measurement."""
        if self.skipped or self.error or not self.rounds:
            return None
        rates = [result.frames_sent / result.seconds for result in self.rounds]
        return Summary(
            fps=statistics.median(rates),
            fps_min=min(rates),
            fps_max=max(rates),
            fps_iqr=iqr(rates),
            seconds=self._of_rounds("seconds", statistics.median) or 0.0,
            start_s=self._of_rounds("start_s", statistics.median) or 0.0,
            cpu_own_s=self._of_rounds("cpu_own_s", statistics.median) or 0.0,
            cpu_child_s=self._of_rounds("cpu_child_s", statistics.median) or 0.0,
            blocked_p50_ms=self._of_rounds("blocked_p50_ms", statistics.median),
            blocked_p99_ms=self._of_rounds("blocked_p99_ms", statistics.median),
            blocked_max_ms=self._of_rounds("blocked_max_ms", max),
            copy_p99_ms=self._of_rounds("copy_p99_ms", statistics.median),
            peak_own_bytes=self._of_rounds("peak_own_bytes", max),
            peak_child_bytes=self._of_rounds("peak_child_bytes", max),
            output_bytes=self._of_rounds("output_bytes", statistics.median) or 0.0,
        )

    def _of_rounds(self, name: str, reduce: Callable[[list[float]], float]) -> float | None:
        return over(self.rounds, name, reduce)


@dataclass
class Group:
    """The rows of one job and one FFmpeg, which are compared with each other."""

    job: Job
    ffmpeg: str
    rows: list[Row]

    def summaries(self) -> dict[str, Summary]:
        """Of the methods that were measured."""
        summaries = ((row.method.name, row.summary()) for row in self.rows)
        return {name: summary for name, summary in summaries if summary is not None}

    def judgements(self) -> list[Judgement]:
        """The goals about this job that its rows can judge."""
        summaries = self.summaries()
        rivals = [row.method.name for row in self.rows if row.method.kind == "rival"]
        fps = {name: summary.fps for name, summary in summaries.items()}
        ours = summaries.get(OURS)
        over_copy = None
        if ours is not None and ours.blocked_p99_ms is not None and ours.copy_p99_ms is not None:
            over_copy = ours.blocked_p99_ms / ours.copy_p99_ms
        return judge(self.job, fps, over_copy, rivals)


def run_groups(settings: Settings, report: Report = lambda _: None) -> Iterator[Group]:
    """Each group's result as soon as it is there. ``report`` is told what is about to run."""
    for ffmpeg in settings.ffmpegs:
        for job in settings.jobs:
            methods = [method for method in settings.methods if method.serves(job)]
            group = Group(job, ffmpeg, [Row(method, skipped=unavailable(method.needs)) for method in methods])
            if methods:
                _run_group(settings, group, report)
                yield group


def _run_group(settings: Settings, group: Group, report: Report) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=_folder()))
        output = str(Path(folder) / "video.mp4")
        if settings.check_content:
            _check_content(settings, group, output, report)
        files = _bound_files(settings, group, stack)
        _run_rounds(settings, group, output, files, report)


def _folder() -> Path | None:
    """Where the videos go: shared memory, so that no disk is measured, or else the temporary folder."""
    return machine.SHARED_MEMORY if machine.no_room(0) is None else None


def _check_content(settings: Settings, group: Group, output: str, report: Report) -> None:
    """One untimed pass in which every buffer is overwritten as soon as the method says that it may be."""
    frames = min(group.job.frames, CONTENT_FRAMES)
    job = replace(group.job, content="smooth", frames=frames, paced_fps=None)
    for row in group.rows:
        if row.skipped or row.method.kind == "bound":
            continue
        report(f"{group.job.name}, content: {row.method.name}")
        task = Task(row.method, job, settings.seed, group.ffmpeg, output, check_content=True)
        row.content = run_isolated(task, job.timeout_s)
        row.error = row.content.error


def _run_rounds(settings: Settings, group: Group, output: str, files: dict[str, str], report: Report) -> None:
    for number, row in interleaved(group.rows, settings.rounds, settings.seed):
        report(f"{group.job.name}, round {number + 1} of {settings.rounds}: {row.method.name}")
        path = files.get(row.method.name)
        task = Task(row.method, group.job, settings.seed, group.ffmpeg, output, input_path=path)
        result = run_isolated(task, group.job.timeout_s)
        row.rounds.append(result)
        row.error = result.error


def run_isolated(task: Task, timeout_s: float) -> Result:
    """Run one task in a fresh interpreter, and remove its file."""
    try:
        return Result(**run_module("penstock.bench.encode.worker", task.to_json(), timeout_s))
    except FailedError as error:
        return Result(task.job.frames, error=str(error))
    finally:
        Path(task.output).unlink(missing_ok=True)


def _bound_files(settings: Settings, group: Group, stack: ExitStack) -> dict[str, str]:
    """For each bound a file in tmpfs with all frames; where there is no room its row says so."""
    files = {}
    for row in group.rows:
        if row.method.kind != "bound":
            continue
        pictures = _raw_pictures(settings, group, row.method.pixel_format)
        nbytes = group.job.frames * len(pictures[0])
        row.skipped = machine.no_room(nbytes)
        if row.skipped:
            continue
        file = stack.enter_context(_nameless_file())
        write_frames(file, pictures, group.job.frames)
        files[row.method.name] = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    return files


def _nameless_file() -> IO[bytes]:
    """In shared memory; its bytes are given back however this process ends."""
    return tempfile.TemporaryFile(dir=machine.SHARED_MEMORY)


def _raw_pictures(settings: Settings, group: Group, pixel_format: str) -> list[bytes]:
    """The job's pictures in that format, as FFmpeg converts them."""
    from penstock.bench.frames import Pictures

    job = group.job
    pictures = Pictures(job.content, job.width, job.height, settings.seed).all()
    size = ["-s", f"{job.width}x{job.height}"]
    read = [*("-f", "rawvideo", "-pix_fmt", "rgb24"), *size, "-i", "-"]
    write = ["-f", "rawvideo", "-pix_fmt", pixel_format, "-"]
    command = [group.ffmpeg, "-hide_banner", "-loglevel", "error", *read, *write]
    sent = b"".join(picture.tobytes() for picture in pictures)
    raw = subprocess.run(command, input=sent, capture_output=True, check=True).stdout
    nbytes = len(raw) // len(pictures)
    return [raw[start : start + nbytes] for start in range(0, len(raw), nbytes)]


def write_frames(file: IO[bytes], pictures: Sequence[bytes], frames: int) -> None:
    """Write so many frames, the pictures in turn."""
    for number in range(frames):
        file.write(pictures[number % len(pictures)])
    file.flush()


def has_errors(groups: Sequence[Group]) -> bool:
    """Whether any case lost or tore a frame, or failed."""
    return any(row.error for group in groups for row in group.rows)


def make_record(settings: Settings, before: dict[str, Any], groups: Sequence[Group]) -> dict[str, Any]:
    """Everything that was measured, ready for JSON. ``before`` describes the machine before the run."""
    versions = [machine.ffmpeg_version(ffmpeg) for ffmpeg in settings.ffmpegs]
    software = machine.describe_software(
        ffmpeg="; ".join(versions), **{name: machine.package_version(name) for name in PACKAGES}
    )
    return header("encode", SCHEMA, before, software) | {
        "settings": {
            "jobs": [job.name for job in settings.jobs],
            "methods": [method.name for method in settings.methods],
            "codec": CODEC,
            "output_pixel_format": OUTPUT_PIXEL_FORMAT,
            "fps": FRAMES_PER_S,
            "rounds": settings.rounds,
            "seed": settings.seed,
            "check_content": settings.check_content,
        },
        "groups": [_group_record(group) for group in groups],
        "goals": {
            "source": SOURCE,
            "rounds_needed": ROUNDS_NEEDED,
            "verdicts": as_record([verdict for group in groups for verdict in group.judgements()]),
        },
    }


def _group_record(group: Group) -> dict[str, Any]:
    return {
        "job": asdict(group.job),
        # The version and not the path, which names folders of the host.
        "ffmpeg": machine.ffmpeg_version(group.ffmpeg),
        "methods": [_row_record(row) for row in group.rows],
    }


def _row_record(row: Row) -> dict[str, Any]:
    summary = row.summary()
    return {
        "name": row.method.name,
        "kind": row.method.kind,
        "own_ffmpeg": row.method.own_ffmpeg,
        "skipped": row.skipped,
        "error": row.error,
        "mean_difference": None if row.content is None else row.content.mean_difference,
        "row_difference": None if row.content is None else row.content.row_difference,
        "median": None if summary is None else asdict(summary),
        "rounds": [asdict(result) for result in row.rounds],
    }
