"""One case, in its own process: it is timed, and its frames are compared."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.decode.jobs import Job
from benchmarks.decode.methods import clips_in
from benchmarks.harness.accounts import accounted, children, note_children_peak
from benchmarks.harness.content import Frame, apart
from benchmarks.harness.isolated import Task
from benchmarks.harness.results import Run

#: Pixels of rows all over each frame.
Samples = Frame

FRAMES_PER_S = 30
#: Different frames in the pipe: a prime, so that they have no period in common with any method's buffers.
PIPE_FRAMES = 5
FEEDER = Path(__file__).parents[1] / "harness" / "feeder.py"
#: How often FFmpeg's memory is read. It is gone after the last frame, and each look takes time.
LOOKS = 4
#: The file with samples of the input's frames, in the folder of a task.
REFERENCE = "reference.npy"

#: Frames are compared by so many tiles, across and down. Another way to enlarge chroma changes sharp edges, which
#: cancels out within a tile. The error of a wrong matrix does not.
TILES = 8
# The limit on the difference between a method's frame and FFmpeg's own, in code values: the absolute mean errors of
# the tiles, and their mean. Measured from 96x64 to 1080p with FFmpeg 5.1: another rounding and another way to enlarge
# chroma (accurate_rnd+full_chroma_int) make at most 1.7; a wrong matrix makes 3.3 or more, a wrong range 8.2.
MAX_DIFFERENCE = 2.5


def measure(task: Task[Job]) -> Run:
    """Time one run, and compare its frames with the input's."""
    # Before the imports: libraries count the CPUs when they are loaded.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task.job.cpus])
    task.load()
    os.environ["PATH"] = os.pathsep.join((str(Path(task.ffmpeg).parent), os.environ.get("PATH", os.defpath)))
    run = Run()
    frames = _run_bound(task, run) if task.method.kind == "bound" else _run_method(task, run)
    run.count_frames(task.job.frames, frames)
    return run


def _run_method(task: Task[Job], run: Run) -> int:
    job = task.job
    rows, columns = (len(range(0, pixels, job.sample_step)) for pixels in job.shape[:2])
    # Filled, so that it is resident before the memory is measured.
    samples = np.full((job.frames, rows, columns, 3), 255, np.uint8)
    others = children()
    source = str(_start_feeder(task)) if job.kind == "pipe" else task.source
    target = replace(task, source=source, notes=run.notes)
    with accounted(run, others), _company(job):
        frames = _consume(_decoding(target, run), job, samples, run)
    reference = np.load(Path(task.folder) / REFERENCE)
    if task.method.pixel_format == "bgr24":
        reference = reference[..., ::-1]
    run.figures["difference"], run.error = compare(samples[:frames], reference, exact=job.kind == "pipe")
    return frames


@contextmanager
def _company(job: Job) -> Iterator[None]:
    """A thread that never sleeps, for a job that has one."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            pass

    thread = threading.Thread(target=work, daemon=True)
    if job.kind == "busy":
        thread.start()
    try:
        yield
    finally:
        is_over.set()


def _decoding(task: Task[Job], run: Run) -> Iterator[Any]:
    """The frames that the method gives, of several files one after another."""
    if task.job.kind == "first":
        return _first_frames(task, run)
    takes_all = task.job.kind != "clips" or task.method.serves == ("clips",)
    sources = [task.source] if takes_all else clips_in(task.source)
    return chain.from_iterable(task.method.start(replace(task, source=one)) for one in sources)


def _first_frames(task: Task[Job], run: Run) -> Iterator[Frame]:
    """The first frame, again and again. The median of the times has none of what is done once in a process."""
    times = []
    for _ in range(task.job.frames):
        started = time.perf_counter()
        frames = task.method.start(task)
        first = next(frames)
        times.append(time.perf_counter() - started)
        yield first
        frames.close()
    run.figures["first_frame_s"] = statistics.median(times)


def _start_feeder(task: Task[Job]) -> int:
    """Start the feeder, and wait for its first bytes, so that its start is not measured."""
    reader, writer = os.pipe()
    arguments = [task.source, str(task.job.frame_bytes), str(task.job.frames)]
    subprocess.Popen([sys.executable, "-I", "-S", FEEDER, *arguments], stdout=writer)
    os.close(writer)
    select.select([reader], [], [])
    return reader


def _consume(frames: Iterable[Frame], job: Job, samples: Samples, run: Run) -> int:
    """Sample and count the frames."""
    started = time.perf_counter()
    step = job.sample_step
    look_every = max(1, job.frames // LOOKS)
    count = 0
    for number, frame in enumerate(frames):
        if number == 0:
            run.figures["start_s"] = time.perf_counter() - started
        if frame.shape != job.shape or frame.dtype != samples.dtype:
            raise ValueError(f"frame {number} is {frame.dtype} of {frame.shape}")
        if number < job.frames:
            samples[number] = frame[::step, ::step]
        if number % look_every == look_every // 2:
            note_children_peak(run)
        count = number + 1
    return count


def _run_bound(task: Task[Job], run: Run) -> int:
    """Count frames that are no arrays, and look at their size."""
    count, started = 0, time.perf_counter()
    with accounted(run), _company(task.job):
        for count, frame in enumerate(_decoding(task, run), 1):
            if count == 1:
                run.figures["start_s"] = time.perf_counter() - started
            if (frame.width, frame.height) != task.job.size:
                raise ValueError(f"frame {count} is {frame.width}x{frame.height}")
    return count


def compare(samples: Samples, reference: Samples, *, exact: bool = False) -> tuple[float, str | None]:
    """The largest difference between a method's frames and the reference, and an error if there is one.

    A shorter reference is repeated. ``exact`` is for frames that nobody converts.
    """
    worst = 0.0
    for number, shown in enumerate(samples):
        expected = reference[number % len(reference)]
        off = difference(shown, expected)
        worst = max(worst, off)
        if off > MAX_DIFFERENCE or (exact and (shown != expected).any()):
            return worst, f"frame {number} shows something else: it is {off:.1f} code values off"
        for n in (number - 1, number + 1):
            other = reference[n % len(reference)]
            if _pixels_apart(shown, other) < _pixels_apart(shown, expected):
                return worst, f"frame {number} shows what frame {n % len(reference)} has to show"
    return worst, None


def difference(shown: Samples, expected: Samples) -> float:
    """The difference of two frames, by their tiles."""
    return float(np.abs(_tiles(shown) - _tiles(expected)).mean())


def _tiles(samples: Samples) -> NDArray[np.float64]:
    """The mean of each channel in each tile."""
    sums = samples.astype(np.float64)
    for axis in (0, 1):
        length = samples.shape[axis]
        starts = np.linspace(0, length, min(TILES, length), endpoint=False).astype(int)
        widths = np.diff(starts, append=length)
        sums = np.add.reduceat(sums, starts, axis=axis) / np.expand_dims(widths, (1 - axis, 2))
    return sums


def _pixels_apart(shown: Samples, expected: Samples) -> float:
    """The mean difference of all values. It depends on the position of edges, which tells one frame from the next."""
    return float(apart(shown, expected).mean(dtype=np.float32))
