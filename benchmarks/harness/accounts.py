"""What a block of code takes: wall time, CPU time and memory, of this process and of its children."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.harness.results import Run


@contextmanager
def accounted(run: Run, others: frozenset[int] | None = None) -> Iterator[None]:
    """Record what the block takes in the run's figures.

    ``seconds``, ``cpu_own_s`` and ``cpu_child_s`` (user and system), and ``peak_own_bytes``: the peak of our resident
    memory above what it was before, None where that is unknown. ``others`` are children that do not
    count; by default all that are there before the block.
    """
    others = children() if others is None else others
    resident = _reset_peak()
    own_s, child_s = _cpu_s(resource.RUSAGE_SELF), _cpu_s(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    yield
    run.figures["seconds"] = time.perf_counter() - started
    run.figures["cpu_own_s"] = _cpu_s(resource.RUSAGE_SELF) - own_s
    # The CPU time of a child counts once it was waited for, and not every library waits for its own.
    for pid in children() - others:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    run.figures["cpu_child_s"] = _cpu_s(resource.RUSAGE_CHILDREN) - child_s
    run.figures["peak_own_bytes"] = (
        None if resident is None else max(0, _status_bytes("self", "VmHWM") - resident)
    )


def note_children_peak(run: Run) -> None:
    """Raise ``peak_child_bytes`` to the peak memory of all children that run now.

    From /proc, because getrusage(2) counts for a child what was resident here when it was forked.
    """
    peaks = []
    for pid in children():
        with suppress(OSError):  # it has ended
            peaks.append(_status_bytes(str(pid), "VmHWM"))
    if peaks:
        run.figures["peak_child_bytes"] = max(sum(peaks), run.figures.get("peak_child_bytes") or 0)


def children() -> frozenset[int]:
    """Our children, and those that have ended and were not waited for."""
    lists = Path("/proc/self/task").glob("*/children")
    return frozenset(int(pid) for children in lists for pid in children.read_text().split())


def _cpu_s(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def _reset_peak() -> int | None:
    """Forget this process's peak memory so far; what is resident, or None where that is impossible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_bytes("self", "VmRSS")
    except OSError:
        return None


def _status_bytes(pid: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/{pid}/status")
