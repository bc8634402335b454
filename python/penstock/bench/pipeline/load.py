"""The work in the background: processes that burn a CPU each, if they can get one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: It says when its priority is set, and ends with its parent at the latest: a benchmark that is killed leaves none.
BURN = """
import os, sys
from penstock import cpu
applied = cpu.set_priority(sys.argv[1])
print(applied.nice, flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def background(workers: int) -> Iterator[None]:
    """So many workers at it: the first, the third… at normal, the others at below-normal priority."""
    burning: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(workers):
            priority = "below-normal" if number % 2 else "normal"
            command = [sys.executable, "-c", BURN, priority]
            burning.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        for worker in burning:
            assert worker.stdout is not None
            if not worker.stdout.readline():
                raise RuntimeError("a worker of the background did not start")
        yield
    finally:
        for worker in burning:
            worker.kill()
        for worker in burning:
            worker.communicate()
