"""Frames from a video file, or from a pipe, into memory, by every library in turn.

The clock runs from before the method is started until it has given its last frame and ended everything it started, for
every method and for the bound. Each frame is sampled while the clock runs, at pixels of rows all over it, so that a
frame counts only if it is there. The samples are compared afterwards.

By default: all jobs, every method that is installed, 5 rounds; 38 minutes. The files are made first, which
takes some minutes the first time: they are kept in build/bench-decode. The last table has the goals, and which of them
were missed. Every option that selects what to run also narrows --quick. A method that loses a frame, or shows another
one or other colors, is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decode.checks import REFERENCE, compare, measure
from benchmarks.decode.dataset import DATASET_JOB, make_dataset, measure_dataset
from benchmarks.decode.inputs import KEPT, link_programs, make_input
from benchmarks.decode.jobs import (
    BOUND,
    JOBS,
    PICKED_STANDARD,
    PIPE_STANDARD,
    QUICK_JOBS,
    SAMPLES_STANDARD,
    STANDARD,
    Job,
    Kind,
)
from benchmarks.decode.methods import METHODS, Target, clips_in, readinto, stdout_readinto
from benchmarks.decode.sound import SOUND_JOBS, SoundJob, make_sound, measure_sound
from benchmarks.harness.command import Benchmark, JobSettings
from benchmarks.harness.goals import judge
from benchmarks.harness.isolated import isolated
from benchmarks.harness.options import FRAMES, SIZE
from benchmarks.harness.results import Group, Measure

__all__ = [
    "BOUND",
    "JOBS",
    "METHODS",
    "PIPE_STANDARD",
    "REFERENCE",
    "Kind",
    "Target",
    "compare",
    "readinto",
    "stdout_readinto",
]


def _how(job: Job) -> tuple[Any, Any]:
    """What makes the job's input, and what measures it."""
    if isinstance(job, SoundJob):
        return make_sound, measure_sound
    return (make_dataset, measure_dataset) if job.kind == "dataset" else (make_input, measure)


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[Measure | None, Measure]]:
    """Make the input and its samples, and judge the figures at last."""
    with tempfile.TemporaryDirectory() as folder:
        program = link_programs(ffmpeg, Path(folder))
        make, run = _how(job)
        path, reference = make(job, program, Path(folder), KEPT)
        files = clips_in(path) if Path(path).is_dir() else [path]
        group.about["input_bytes"] = sum(Path(file).stat().st_size for file in files)
        np.save(Path(folder) / REFERENCE, reference)
        yield isolated(job, program, run, folder=folder, source=path)
    group.outcomes = judge(job.goals, group)


BENCHMARK = Benchmark(
    "decode",
    settings=JobSettings((*JOBS, *SOUND_JOBS, DATASET_JOB), METHODS),
    quick=JobSettings(QUICK_JOBS, METHODS, rounds=2),
    quick_help="Two minutes at most: one content, few frames, 2 rounds.",
    prepare=prepare,
    options=[SIZE, FRAMES],
    figures=["first_frame_s", "fps"],
    standards=[STANDARD, PIPE_STANDARD, PICKED_STANDARD, SAMPLES_STANDARD],
)
main = BENCHMARK.command(__name__, __doc__)
