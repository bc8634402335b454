"""A case in a process of its own, which keeps the cases apart: no method inherits threads, heap or loaded libraries
from the one before, and the peak of its memory is its own. Task and result are JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

#: As much of what a process said as an error message can use.
SAID_CHARACTERS = 2000


class FailedError(Exception):
    """The process has no result."""


def run_module(module: str, task: str, timeout_s: float) -> dict[str, Any]:
    """What a module's `answer` makes of the task, in a fresh interpreter.

    When it takes too long it is killed; an FFmpeg that it has started then ends by itself, as its pipe does.

    Raises:
        FailedError: it took too long, or its process failed.
    """
    command = [sys.executable, "-m", module]
    try:
        done = subprocess.run(command, input=task, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise FailedError(f"did not end within {timeout_s:.0f} s") from None
    said = done.stderr.strip()[-SAID_CHARACTERS:]
    if done.returncode != 0:
        raise FailedError(f"its process exited with {done.returncode}: {said}")
    result: dict[str, Any] = json.loads(done.stdout)
    if result["error"] and said:
        result["error"] += f"; it said: {said}"
    return result


def answer(run: Callable[[str], dict[str, Any]]) -> None:
    """Run the task on standard input, and write its result to standard output."""
    task = sys.stdin.read()
    # What libraries print must not come between.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(run(task)))
