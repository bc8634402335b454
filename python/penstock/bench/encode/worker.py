"""One case in one process: ``python -m penstock.bench.encode.worker`` takes a `Task` and answers with a `Result`.

The clock runs from before the method is started until the file is complete, for every method and for the bound:
FFmpeg has then exited, or the library closed the file. The file is counted afterwards.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench.accounts import (
    children_cpu_s,
    children_peak_bytes,
    own_cpu_s,
    peak_above,
    reset_peak,
)
from penstock.bench.encode import checks
from penstock.bench.encode.cases import Job, Method
from penstock.bench.encode.methods import Sender, Target, check_exit, ffmpeg_command, make_sender
from penstock.bench.isolated import answer

if TYPE_CHECKING:
    from penstock.bench.frames import Frame

SenderFactory = Callable[[Method, Target, Sequence["Frame"]], Sender]

#: Where those that cannot be told at the call look for the program.
FFMPEG_VARIABLES = ("IMAGEIO_FFMPEG_EXE", "FFMPEG_BINARY")
#: Of the check of the content: few, so that each is overwritten often.
CHECKED_BUFFERS = 3


@dataclass(frozen=True)
class Task:
    """One run of one case."""

    method: Method
    job: Job
    seed: int
    ffmpeg: str
    output: str
    #: What FFmpeg reads instead of a pipe, for the bound.
    input_path: str | None = None
    #: Compare what a decoder shows, frame by frame, instead of timing it.
    check_content: bool = False

    @property
    def target(self) -> Target:
        """What the method is asked for."""
        return Target(self.job, self.ffmpeg, self.output)

    def to_json(self) -> str:
        """The task as text for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """The task that ``to_json`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        method = fields["method"]
        lists = {name: tuple(method[name]) for name in ("needs", "loads")}
        fields["method"] = Method(**(method | lists))
        fields["job"] = Job(**fields["job"])
        return Task(**fields)


@dataclass
class Result:
    """What one run took. With an ``error``, the numbers say nothing of the method's speed."""

    frames_sent: int
    #: None where the file cannot be read.
    frames_in_file: int | None = None
    #: From before the start until the file was complete.
    seconds: float = 0.0
    #: Of these, until the method was ready for its first frame.
    start_s: float = 0.0
    cpu_own_s: float = 0.0
    cpu_child_s: float = 0.0
    #: How long a frame kept the caller, in ms; None for the bound.
    blocked_p50_ms: float | None = None
    blocked_p99_ms: float | None = None
    blocked_max_ms: float | None = None
    #: In a paced job: how long a plain copy of a frame takes there, in ms, at the 99th percentile.
    copy_p99_ms: float | None = None
    #: Peak of our resident memory above what it was with the buffers filled; None where it cannot be known.
    peak_own_bytes: int | None = None
    #: Peak of FFmpeg's resident memory until the last frame was handed over; None if it runs in our process.
    peak_child_bytes: int | None = None
    output_bytes: int = 0
    #: Where the content was checked: see `checks.Difference`.
    mean_difference: float | None = None
    row_difference: float | None = None
    notes: dict[str, object] = field(default_factory=dict)
    error: str | None = None


def run_task(task: Task, make: SenderFactory = make_sender) -> Result:
    """Run one case here, and check its file."""
    os.environ.update(dict.fromkeys(FFMPEG_VARIABLES, task.ffmpeg))
    for module in task.method.loads:
        importlib.import_module(module)
    result = Result(task.job.frames)
    try:
        if task.check_content:
            _check_content(task, make, result)
        elif task.input_path:
            _timed(task, result, lambda: _run_bound(task))
        else:
            frames = make_frames(task)
            _timed(task, result, lambda: _feed(task, make, frames, result))
        _count(task, result)
    except Exception as problem:  # whatever a method raises is its result, not ours
        result.error = f"{type(problem).__name__}: {problem}"
    return result


def make_frames(task: Task) -> list[Frame]:
    """The buffers of a timed run, filled."""
    from penstock.bench.frames import Pictures

    job = task.job
    frames = Pictures(job.content, job.width, job.height, task.seed).all()
    return [_in_format(task.method, frame) for frame in frames]


def _in_format(method: Method, frame: Frame) -> Frame:
    return frame[..., ::-1].copy() if method.pixel_format == "bgr24" else frame


def _timed(task: Task, result: Result, run: Callable[[], None]) -> None:
    resident = reset_peak()
    own_before_s, children_before_s = own_cpu_s(), children_cpu_s()
    started = time.perf_counter()
    run()
    result.seconds = time.perf_counter() - started
    result.cpu_own_s = own_cpu_s() - own_before_s
    result.cpu_child_s = children_cpu_s() - children_before_s
    result.peak_own_bytes = peak_above(resident)


def _run_bound(task: Task) -> None:
    assert task.input_path is not None, "only the bound comes here"
    command = ffmpeg_command(task.target, task.input_path, task.method.pixel_format)
    check_exit(subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).returncode)


def _feed(task: Task, make: SenderFactory, frames: Sequence[Frame], result: Result) -> None:
    started = time.perf_counter()
    sender = make(task.method, task.target, frames)
    ready = time.perf_counter()
    result.start_s = ready - started
    blocked_s, copied_s = [], []
    copy = frames[0].copy()
    for number in range(task.job.frames):
        if task.job.paced_fps:
            time.sleep(max(0.0, ready + number / task.job.paced_fps - time.perf_counter()))
        index = number % len(frames)
        # The same frame is copied before every second call and after the others: both find it in the cache as often.
        if task.job.paced_fps and number % 2:
            copied_s.append(_timed_copy(copy, frames[index]))
        before = time.perf_counter()
        sender.wait_until_free(index)
        sender.send(index)
        blocked_s.append(time.perf_counter() - before)
        if task.job.paced_fps and not number % 2:
            copied_s.append(_timed_copy(copy, frames[index]))
    result.peak_child_bytes = children_peak_bytes()
    sender.finish()
    result.blocked_p50_ms = 1e3 * quantile(blocked_s, 0.5)
    result.blocked_p99_ms = 1e3 * quantile(blocked_s, 0.99)
    result.blocked_max_ms = 1e3 * max(blocked_s)
    if copied_s:
        result.copy_p99_ms = 1e3 * quantile(copied_s, 0.99)
    result.notes = sender.notes()


def _timed_copy(copy: Frame, frame: Frame) -> float:
    before = time.perf_counter()
    copy[...] = frame
    return time.perf_counter() - before


def _check_content(task: Task, make: SenderFactory, result: Result) -> None:
    """Send the texture through buffers that are overwritten as soon as the method says that they may be."""
    from penstock.bench.frames import LOOP_FRAMES, Pictures

    job = task.job
    pictures = Pictures("smooth", job.width, job.height, task.seed)

    def picture(number: int) -> Frame:
        return pictures.texture(number * checks.CHECKED_STEP % LOOP_FRAMES)

    frames = [_in_format(task.method, picture(0)) for _ in range(CHECKED_BUFFERS)]
    sender = make(task.method, task.target, frames)
    for number in range(job.frames):
        index = number % CHECKED_BUFFERS
        sender.wait_until_free(index)
        frames[index][...] = _in_format(task.method, picture(number))
        sender.send(index)
    sender.finish()
    decoded = checks.decode(task.ffmpeg, task.output, job.width, job.height)
    worst, result.error = checks.compare(decoded, job.frames, picture)
    result.mean_difference, result.row_difference = worst.mean, worst.row


def _count(task: Task, result: Result) -> None:
    result.output_bytes = Path(task.output).stat().st_size
    result.frames_in_file = checks.count_frames(task.ffmpeg, task.output)
    if result.frames_in_file != result.frames_sent and result.error is None:
        result.error = f"{result.frames_sent} frames were sent, and the file has {result.frames_in_file}"


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def main() -> None:
    """Run the task on standard input."""
    answer(lambda task: asdict(run_task(Task.from_json(task))))


if __name__ == "__main__":
    main()
