"""Runs one case in its own process.

So no method inherits threads, heap or loaded libraries from another, and its peak memory is its own. The case and its
result are pickled, so a benchmark must run under its module's name: ``__main__`` imports it and calls `main`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from benchmarks.harness.files import folder_in_memory
from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import FrameJob, Method
from benchmarks.harness.results import OUTPUT_CHARACTERS, Group, Measure, Run
from benchmarks.harness.rounds import attempt

#: Frames of a content check: each buffer of a method is overwritten several times.
CHECKED_FRAMES = 20

#: Environment variables that name FFmpeg for libraries that have no argument for it. Some take the first on ``PATH``.
FFMPEG_VARIABLES = ("FFMPEG_BINARY", "IMAGEIO_FFMPEG_EXE", "PENSTOCK_FFMPEG")

Case = TypeVar("Case")
Job = TypeVar("Job", bound=FrameJob)


@dataclass(frozen=True)
class Task(Generic[Job]):
    """One run of one method."""

    method: Method
    job: Job
    ffmpeg: str
    #: The input of FFmpeg or of the method. For a bound it is a file instead of a pipe.
    source: str = "-"
    #: Where the method may write.
    folder: str = ""
    #: What the method reports about itself, for the record.
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """The video that a method makes."""
        return f"{self.folder}/video.mp4"

    def load(self) -> None:
        """Import the method's modules and tell libraries which FFmpeg to use, before the clock starts."""
        os.environ.update(dict.fromkeys(FFMPEG_VARIABLES, self.ffmpeg))
        for module in self.method.needs:
            import_module(module)


class CaseError(Exception):
    """The process gave no result."""


TaskRun = Callable[[Task[Job]], Run]


def isolated(
    job: Job,
    ffmpeg: str,
    measure: TaskRun[Job],
    check: TaskRun[Job] | None = None,
    *,
    folder: str = "",
    source: str = "-",
    bounds: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Measure | None, Measure]:
    """The content check, with few frames, and the measurement of a row, each in its own process.

    ``bounds`` has the sources of methods that do not read ``source``.
    """

    def in_process(run: TaskRun[Job], job: Job) -> Measure:
        return lambda row: run_isolated(
            run, Task(row.method, job, ffmpeg, bounds.get(row.name, source), folder), job.timeout_s
        )

    few = replace(job, frames=min(job.frames, CHECKED_FRAMES))
    return check and in_process(check, few), in_process(measure, job)


def unprepared(
    measure: TaskRun[Job], check: TaskRun[Job] | None = None
) -> Callable[[Job, str, Group], AbstractContextManager[tuple[Measure | None, Measure]]]:
    """`Benchmark.prepare` of jobs without inputs: there is only a folder for what the methods write."""

    @contextmanager
    def prepare(job: Job, ffmpeg: str, _group: Group) -> Iterator[tuple[Measure | None, Measure]]:
        with folder_in_memory() as folder:
            yield isolated(job, ffmpeg, measure, check, folder=folder)

    return prepare


def run_isolated(
    measure: Callable[[Case], Run], case: Case, timeout_s: float, env: Mapping[str, str] | None = None
) -> Run:
    """Call ``measure(case)`` in a fresh interpreter, with this environment instead of ours.

    After ``timeout_s`` the process is killed. An FFmpeg that it has started then ends too, because its pipe is closed.

    Raises:
        CaseError: it took too long, or its process failed.
    """
    command = [sys.executable, "-m", "benchmarks.harness.isolated"]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps((measure, case)),
            capture_output=True,
            timeout=timeout_s,
            cwd=ROOT,
            env=env,
        )
    except subprocess.TimeoutExpired:
        raise CaseError(f"did not end within {timeout_s:.0f} s") from None
    output = done.stderr.decode(errors="replace").strip()[-OUTPUT_CHARACTERS:]
    if done.returncode != 0:
        raise CaseError(f"its process exited with {done.returncode}: {output}")
    run: Run = pickle.loads(done.stdout)
    if run.error and output:
        run.error += f"; its output: {output}"
    return run


def _answer() -> None:
    """Run the case on standard input, and write its result to standard output."""
    measure, case = pickle.load(sys.stdin.buffer)
    # Libraries may print: keep that out of the result.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(out, "wb") as file:
        pickle.dump(attempt(case, measure), file)


if __name__ == "__main__":
    _answer()
