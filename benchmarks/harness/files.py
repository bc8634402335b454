"""Unnamed files in shared memory, so that no disk is measured. They vanish however this process ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from benchmarks.harness.machine import meminfo_bytes
from benchmarks.harness.results import Group, Row

SHARED_MEMORY = Path("/dev/shm")
#: Memory that a file leaves free, for everything else that runs.
MEMORY_MARGIN_BYTES = 2 * 10**9


def no_room(nbytes: int) -> str | None:
    """Why ``nbytes`` do not fit into `SHARED_MEMORY`, or None if they do."""
    if not SHARED_MEMORY.is_dir() or not Path("/proc/self/fd").is_dir():
        return f"no {SHARED_MEMORY} here"
    memory = meminfo_bytes("MemAvailable")
    free = shutil.disk_usage(SHARED_MEMORY).free
    # The size of a tmpfs is a limit, not a reservation: the memory must be available too.
    usable = free if memory is None else min(free, memory - MEMORY_MARGIN_BYTES)
    if usable >= nbytes:
        return None
    return f"needs {nbytes / 1e9:.1f} GB in {SHARED_MEMORY}, {max(0, usable) / 1e9:.1f} GB can be used"


def nameless_file(in_shared_memory: bool = True) -> IO[bytes]:
    """In shared memory, or else in the temporary folder."""
    return tempfile.TemporaryFile(dir=SHARED_MEMORY if in_shared_memory else None)


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """A folder in shared memory, or else in the temporary folder."""
    return tempfile.TemporaryDirectory(dir=SHARED_MEMORY if no_room(0) is None else None)


@contextmanager
def bound_files(
    group: Group, pictures_of: Callable[[Row], Sequence[bytes]], count: int
) -> Iterator[dict[str, str]]:
    """By the name of each bound, the path of a file with ``count`` frames, the pictures in turn.

    If there is no room for a file, the row is skipped.
    """
    paths = {}
    with ExitStack() as stack:
        for row in group.rows:
            if row.method.kind != "bound":
                continue
            pictures = pictures_of(row)
            row.skipped = no_room(count * len(pictures[0]))
            if not row.skipped:
                file = stack.enter_context(nameless_file())
                for number in range(count):
                    file.write(pictures[number % len(pictures)])
                file.flush()
                paths[row.name] = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        yield paths
