"""One video by several workers: what processes and Ray gain, and what chunks and the join cost.

By default: all jobs, 5 rounds; a quarter of an hour, and 7 GB of shared memory. A render that loses a frame
is an error and has no speed; the exit status is then 1.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.command import Benchmark, JobSettings, Measure
from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.isolated import Task, isolated
from benchmarks.harness.options import chosen, counted
from benchmarks.harness.results import Group, Run
from benchmarks.render import methods, pool
from benchmarks.render.jobs import JOBS, QUICK_JOBS, Job
from benchmarks.render.methods import METHODS


def measure(task: Task[Job]) -> Run:
    """Run a method once, in its process."""
    task.load()
    run = Run()
    with tempfile.TemporaryDirectory(dir=task.folder or None) as folder:
        task.method.start(replace(task, folder=folder), run)
    return run


@contextmanager
def prepare(job: Job, ffmpeg: str, group: Group) -> Iterator[tuple[None, Measure]]:
    """Make a folder for the videos, and the chunks of a join."""
    with folder_in_memory() as folder:
        source = pool.fill(Path(folder), job) if job.name == "join" else "-"
        yield None, isolated(measure, job, ffmpeg, folder=folder, source=source)
        if job.name == "python":
            group.findings = findings(group)


# --- findings and report ---------------------------------------------------------------------------


def findings(group: Group) -> list[str]:
    """What Ray itself costs on this machine."""
    fps = group.medians("fps")
    if not {methods.DRAWN_ON_RAY, methods.DRAWN_TWICE, methods.RAY, methods.TWO} <= fps.keys():
        return []
    bound, ours = fps[methods.DRAWN_ON_RAY] / fps[methods.DRAWN_TWICE], fps[methods.RAY] / fps[methods.TWO]
    return [
        f"{methods.RAY} / {methods.TWO} is {ours:.2f}x. {methods.DRAWN_ON_RAY} / {methods.DRAWN_TWICE} is "
        f"{bound:.2f}x: bare Ray tasks against bare processes, without Penstock."
    ]


BENCHMARK = Benchmark(
    "render",
    settings=JobSettings(JOBS, tuple(METHODS)),
    quick=JobSettings(QUICK_JOBS, tuple(METHODS), rounds=1),
    quick_help="About half a minute: small videos, 1 round.",
    prepare=prepare,
    options=[
        chosen("--job", "jobs", JOBS),
        chosen("--method", "methods", METHODS),
        counted("--frames", "frames", "Frames of each video, instead of each job's own."),
    ],
    figures=["mb_per_s", "fps"],
    standards=[methods.ONE, methods.WHOLE, methods.CP],
)
main = BENCHMARK.command(__doc__)
