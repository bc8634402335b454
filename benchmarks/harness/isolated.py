"""Runs one case in a process of its own.

No method inherits threads, heap or loaded libraries from the one before, and its peak memory is its own.
Case and result are pickled, so a benchmark must run under its module's name: ``__main__`` imports it and calls `main`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar

from benchmarks.harness.machine import ROOT
from benchmarks.harness.results import Method, Row, Run

#: How much of a process's output goes into an error message.
SAID_CHARACTERS = 2000

#: Where libraries that cannot be told at the call look for FFmpeg. Some take the first on ``PATH``.
FFMPEG_VARIABLES = ("FFMPEG_BINARY", "IMAGEIO_FFMPEG_EXE", "PENSTOCK_FFMPEG")

Case = TypeVar("Case")
Job = TypeVar("Job")


@dataclass(frozen=True)
class Task(Generic[Job]):
    """One run of one method."""

    method: Method
    job: Job
    ffmpeg: str
    #: What FFmpeg or the method reads; of a bound a file instead of a pipe.
    source: str = "-"
    #: Where the method may write.
    folder: str = ""

    def load(self) -> None:
        """Import the method's modules, and have it find the FFmpeg: both before the clock starts."""
        os.environ.update(dict.fromkeys(FFMPEG_VARIABLES, self.ffmpeg))
        for module in self.method.needs:
            import_module(module)

    def start(self, *arguments: Any) -> Any:
        """What the method makes of these arguments."""
        assert self.method.start is not None
        return self.method.start(*arguments)


class CaseError(Exception):
    """The process has no result."""


def isolated(
    measure: Callable[[Case], Run], case_of: Callable[[Row], Case], timeout_s: float
) -> Callable[[Row], Run]:
    """`run_isolated` for the rows of a group."""
    return lambda row: run_isolated(measure, case_of(row), timeout_s)


def run_isolated(measure: Callable[[Case], Run], case: Case, timeout_s: float) -> Run:
    """What ``measure(case)`` returns in a fresh interpreter.

    When it takes too long it is killed. An FFmpeg that it has started then ends too, as its pipe does.

    Raises:
        CaseError: it took too long, or its process failed.
    """
    command = [sys.executable, "-m", "benchmarks.harness.isolated"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps((measure, case)), capture_output=True, timeout=timeout_s, cwd=ROOT
        )
    except subprocess.TimeoutExpired:
        raise CaseError(f"did not end within {timeout_s:.0f} s") from None
    said = done.stderr.decode(errors="replace").strip()[-SAID_CHARACTERS:]
    if done.returncode != 0:
        raise CaseError(f"its process exited with {done.returncode}: {said}")
    run: Run = pickle.loads(done.stdout)
    if run.error and said:
        run.error += f"; it said: {said}"
    return run


def _answer() -> None:
    """Run the case on standard input, and write its result to standard output."""
    from benchmarks.harness.rounds import attempt

    measure, case = pickle.load(sys.stdin.buffer)
    # What libraries print must not get into the result.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(out, "wb") as file:
        pickle.dump(attempt(case, measure), file)


if __name__ == "__main__":
    _answer()
