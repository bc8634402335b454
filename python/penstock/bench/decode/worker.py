"""One case in one process: ``python -m penstock.bench.decode.worker`` takes a `Task` and answers with a `Result`.

The clock runs from before the method is started until it has given its last frame and ended what it started, for
every method and for the bound. A sample is taken of every frame while the clock runs: pixels of rows all over it, the
same for all methods, so that no frame counts that is not there. They are compared afterwards.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench.accounts import (
    children,
    children_cpu_s,
    children_peak_bytes,
    own_cpu_s,
    peak_above,
    reset_peak,
)
from penstock.bench.decode import checks, feeder
from penstock.bench.decode.cases import CHANNELS, Job, Method
from penstock.bench.decode.methods import Decoding, Target, check_exit, decoding_of, ffmpeg_command
from penstock.bench.isolated import answer

if TYPE_CHECKING:
    from penstock.bench.decode.checks import Samples
    from penstock.bench.decode.methods import Frame

#: Where those that cannot be told at the call look for the program. ffmpegcv takes the first on ``PATH``.
FFMPEG_VARIABLES = ("IMAGEIO_FFMPEG_EXE", "PENSTOCK_FFMPEG")
#: How often FFmpeg's memory is looked at: it is gone when the last frame has come, and a look takes its time.
LOOKS = 4


@dataclass(frozen=True)
class Task:
    """One run of one case."""

    method: Method
    job: Job
    ffmpeg: str
    #: The video; of a pipe, what the feeder writes.
    path: str
    #: Samples of the frames that are in it, as NumPy saves them.
    reference_path: str

    def to_json(self) -> str:
        """The task as text for another process."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        """The task that ``to_json`` wrote."""
        fields: dict[str, Any] = json.loads(text)
        method = fields["method"]
        fields["method"] = Method(**(method | {"needs": tuple(method["needs"])}))
        fields["job"] = Job(**fields["job"])
        return Task(**fields)


@dataclass
class Result:
    """What one run took. With an ``error``, the numbers say nothing of the method's speed."""

    frames_read: int = 0
    #: From before the start until the end.
    seconds: float = 0.0
    #: Of these, until the first frame was there; None for the bound.
    start_s: float | None = None
    cpu_own_s: float = 0.0
    #: Of FFmpeg, or of who fills the pipe.
    cpu_child_s: float = 0.0
    #: Peak of our resident memory above what it was before; None where it cannot be known.
    peak_own_bytes: int | None = None
    #: Peak of the children's resident memory; None if there were none.
    peak_child_bytes: int | None = None
    #: See `checks.compare`; None for the bound.
    difference: float | None = None
    notes: dict[str, object] = field(default_factory=dict)
    error: str | None = None


def run_task(task: Task, decoding: Decoding | None = None) -> Result:
    """Run one case here, and check its frames."""
    os.environ.update(dict.fromkeys(FFMPEG_VARIABLES, task.ffmpeg))
    os.environ["PATH"] = os.pathsep.join((str(Path(task.ffmpeg).parent), os.environ.get("PATH", os.defpath)))
    result = Result()
    try:
        for module in task.method.needs:
            importlib.import_module(module)
        if task.method.kind == "bound":
            _timed(result, children(), lambda: _run_bound(task, result))
        else:
            _run_method(task, decoding or decoding_of(task.method), result)
    except Exception as problem:  # whatever a method raises is its result, not ours
        result.error = f"{type(problem).__name__}: {problem}"
    if result.error is None and result.frames_read != task.job.frames:
        result.error = f"there are {task.job.frames} frames, and it read {result.frames_read}"
    return result


def _run_method(task: Task, decoding: Decoding, result: Result) -> None:
    samples = _room_for_samples(task.job)
    before = children()
    fd = -1 if task.job.source == "file" else _start_feeder(task)
    target = Target(task.job, task.ffmpeg, task.path, task.method.pixel_format, fd, result.notes)
    _timed(result, before, lambda: _consume(decoding(target), task.job, samples, result))
    _compare(task, samples[: result.frames_read], result)


def _room_for_samples(job: Job) -> Samples:
    import numpy as np

    rows, columns = (len(range(0, pixels, job.sample_step)) for pixels in (job.height, job.width))
    # Written to, so that it is resident before the memory is looked at.
    return np.full((job.frames, rows, columns, CHANNELS), 255, np.uint8)


def _start_feeder(task: Task) -> int:
    """A pipe, with its first bytes in it: the other process's start is nobody's speed."""
    reader, writer = os.pipe()
    arguments = [task.path, str(task.job.frame_bytes), str(task.job.frames)]
    subprocess.Popen([sys.executable, "-I", "-S", str(feeder.__file__), *arguments], stdout=writer)
    os.close(writer)
    select.select([reader], [], [])
    return reader


def _timed(result: Result, before: Set[int], run: Callable[[], None]) -> None:
    """``before`` are the children that are not the method's."""
    resident = reset_peak()
    own_before_s, children_before_s = own_cpu_s(), children_cpu_s()
    started = time.perf_counter()
    run()
    result.seconds = time.perf_counter() - started
    result.cpu_own_s = own_cpu_s() - own_before_s
    _wait_for(children() - before)
    result.cpu_child_s = children_cpu_s() - children_before_s
    result.peak_own_bytes = peak_above(resident)


def _wait_for(pids: Iterable[int]) -> None:
    """Their CPU seconds count only then, and not every library waits for its own children."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _consume(frames: Iterator[Frame], job: Job, samples: Samples, result: Result) -> None:
    started = time.perf_counter()
    step = job.sample_step
    look_every = max(1, job.frames // LOOKS)
    for frame in frames:
        number = result.frames_read
        if number == 0:
            result.start_s = time.perf_counter() - started
        if frame.shape != job.shape or frame.dtype != samples.dtype:
            raise ValueError(f"frame {number} is {frame.dtype} of {frame.shape}")
        if number < job.frames:
            samples[number] = frame[::step, ::step]
        if number % look_every == look_every // 2:
            _look_at_children(result)
        result.frames_read += 1


def _look_at_children(result: Result) -> None:
    peak = children_peak_bytes()
    if peak is not None:
        result.peak_child_bytes = max(peak, result.peak_child_bytes or 0)


def _run_bound(task: Task, result: Result) -> None:
    command = ffmpeg_command(task.ffmpeg, task.path, "-progress", "pipe:1", "-f", "null", "-")
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            name, _, value = line.strip().partition("=")
            if name == "frame":
                result.frames_read = int(value)
            elif name == "progress":
                _look_at_children(result)
    check_exit(child.returncode)


def _compare(task: Task, samples: Samples, result: Result) -> None:
    import numpy as np

    reference = np.load(task.reference_path)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    exact = task.job.source == "pipe"
    result.difference, result.error = checks.compare(samples, reference, exact=exact)


def main() -> None:
    """Run the task on standard input."""
    answer(lambda task: asdict(run_task(Task.from_json(task))))


if __name__ == "__main__":
    main()
