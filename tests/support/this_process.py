"""What this process has: descriptors, threads, memory; and whether threads sleep, also those of another."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

if sys.platform == "win32":
    from support import windows


def only_on_linux(reason: str) -> None:
    """Skips the test elsewhere: for helpers. A test that is for Linux itself has the mark `linux`."""
    if sys.platform == "win32":
        import pytest  # not at the top: programs that tests start import this module

        pytest.skip(f"for Linux: {reason}")


def open_fds() -> dict[str, str]:
    """Our descriptors and what they lead to."""
    if sys.platform == "win32":
        return windows.open_fds()
    fds = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            fds[entry.name] = str(entry.readlink())
    return fds


def workers() -> set[int]:
    """Ids of our native threads that move bytes."""
    return {task for task in threads() if name_of(task) == "penstock"}


def pixel_threads() -> set[int]:
    """Ids of our native threads that convert frames."""
    return {task for task in threads() if name_of(task) == "penstock-pixels"}


def name_of(task: int) -> str:
    """The name of one of our threads; nothing if it has ended."""
    if sys.platform == "win32":
        return windows.name_of(task)
    try:
        return Path(f"/proc/self/task/{task}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def libav_threads() -> set[int]:
    """Ids of the threads of libav's codecs in this process."""
    return {task for task in threads() if name_of(task).startswith("av:")}


def threads(pid: int | str = "self") -> set[int]:
    """Ids of all threads of a process."""
    if sys.platform == "win32":
        return windows.threads(os.getpid() if pid == "self" else int(pid))
    return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}


def state(task: int) -> str:
    """What a thread or process does, as a letter of proc(5); nothing if it has ended."""
    try:
        return Path(f"/proc/{task}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def are_asleep(tasks: Callable[[], set[int]]) -> bool:
    """Whether there are such threads, and all sleep at ten looks in a row. One that polls without a pause does not.

    Nor, on a busy machine, does an encoder's worker that waits: it often waits for a processor too, by its priority.
    On Windows, threads sleep that have used no processor meanwhile, of which the system counts each 10 ms.
    """
    if sys.platform == "win32":
        before = windows.processor_times(tasks())
        time.sleep(0.1)
        return bool(before) and windows.processor_times(tasks()) == before
    for _ in range(10):
        if {state(task) for task in tasks()} - {""} != {"S"}:
            return False
        time.sleep(0.005)
    return True


class Policy(NamedTuple):
    """What the system says of a thread."""

    nice: int
    """On Windows, that of the level with its priority."""
    is_idle: bool
    cpus: set[int]


def policy_of(thread: int | None = None) -> Policy:
    """The policy of a thread, by default of this one."""
    task = threading.get_native_id() if thread is None else thread
    if sys.platform == "win32":
        nice, cpus = windows.policy_of(task)
        return Policy(nice, nice == 19, cpus)
    is_idle = os.sched_getscheduler(task) == os.SCHED_IDLE
    return Policy(os.getpriority(os.PRIO_PROCESS, task), is_idle, os.sched_getaffinity(task))


def rss_bytes() -> int:
    """Our memory that is resident."""
    if sys.platform == "win32":
        return windows.rss_bytes()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
