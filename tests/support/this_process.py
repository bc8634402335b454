"""What this process has: descriptors, threads, memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path


def open_fds() -> dict[str, str]:
    """Our descriptors and what they lead to."""
    fds = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            fds[entry.name] = str(entry.readlink())
    return fds


def workers() -> set[int]:
    """Ids of our native threads."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (task / "comm").read_text().strip() == "penstock":
                found.add(int(task.name))
    return found


def threads() -> set[int]:
    """Ids of all our threads."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def are_asleep(tasks: Callable[[], set[int]]) -> bool:
    """Whether these threads sleep, at ten looks in a row. A thread that polls without a pause is runnable at each."""
    for _ in range(10):
        for task in tasks():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                stat = Path(f"/proc/self/task/{task}/stat").read_text()
                if stat.rpartition(") ")[2][0] != "S":
                    return False
        time.sleep(0.005)
    return True


def rss_bytes() -> int:
    """Our memory that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
