"""Runs one case in a process of its own.

No method inherits threads, heap or loaded libraries from the one before, and its peak memory is its own.
Task and result are pickled, so a benchmark's classes must be found under its module's name (see `main` there).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

from benchmarks.harness.machine import ROOT
from benchmarks.harness.results import Row, Run

#: How much of a process's output goes into an error message.
SAID_CHARACTERS = 2000

Task = TypeVar("Task")


class CaseError(Exception):
    """The process has no result."""


def isolated(
    measure: Callable[[Task], Run], task_of: Callable[[Row], Task], timeout_s: float
) -> Callable[[Row], Run]:
    """`run_isolated` for the rows of a group."""
    return lambda row: run_isolated(measure, task_of(row), timeout_s)


def run_isolated(measure: Callable[[Task], Run], task: Task, timeout_s: float) -> Run:
    """What ``measure(task)`` returns in a fresh interpreter.

    When it takes too long it is killed. An FFmpeg that it has started then ends too, as its pipe does.

    Raises:
        CaseError: it took too long, or its process failed.
    """
    command = [sys.executable, "-m", "benchmarks.harness.isolated"]
    try:
        done = subprocess.run(
            command, input=pickle.dumps((measure, task)), capture_output=True, timeout=timeout_s, cwd=ROOT
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
    """Run the task on standard input, and write its result to standard output."""
    from benchmarks.harness.rounds import attempt

    measure, task = pickle.load(sys.stdin.buffer)
    # What libraries print must not get into the result.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(out, "wb") as file:
        pickle.dump(attempt(task, measure), file)


if __name__ == "__main__":
    _answer()
