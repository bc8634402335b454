"""Runs one case in its own process.

So no method inherits threads, heap or loaded libraries from another, and its peak memory is its own. The case and its
result are pickled, so a benchmark must run under its module's name: ``__main__`` imports it and calls `main`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Generic, TypeVar

from benchmarks.harness.machine import ROOT
from benchmarks.harness.methods import FrameJob, Method
from benchmarks.harness.results import Row, Run
from benchmarks.harness.rounds import attempt

#: How much of a process's output goes into an error message.
OUTPUT_CHARACTERS = 2000

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


def isolated(
    measure: Callable[[Task[Job]], Run],
    job: Job,
    ffmpeg: str,
    *,
    folder: str = "",
    source: str = "-",
    bounds: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Row], Run]:
    """``measure`` for the rows of a group, each run in its own process.

    ``bounds`` has the sources of methods that do not read ``source``.
    """

    def run(row: Row) -> Run:
        task = Task(row.method, job, ffmpeg, bounds.get(row.name, source), folder)
        return run_isolated(measure, task, job.timeout_s)

    return run


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
