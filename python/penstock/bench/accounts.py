"""What a run took of the machine: CPU time and memory, of this process and of its children."""

from __future__ import annotations

import resource
from pathlib import Path


def own_cpu_s() -> float:
    """CPU time of this process, all of its threads, user and system."""
    return _cpu_s(resource.RUSAGE_SELF)


def children_cpu_s() -> float:
    """CPU time of the children that have ended and were waited for."""
    return _cpu_s(resource.RUSAGE_CHILDREN)


def _cpu_s(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def reset_peak() -> int | None:
    """Forget this process's peak memory so far, and tell what is resident; None where that is impossible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status_bytes("self", "VmRSS")
    except OSError:
        return None


def peak_above(resident: int | None) -> int | None:
    """How far the peak since `reset_peak` was above what it told."""
    return None if resident is None else max(0, _status_bytes("self", "VmHWM") - resident)


def children_peak_bytes() -> int | None:
    """The peak memory of the children that run, together; None without one.

    By this and not by getrusage(2), which counts for a child what was resident here when it was forked.
    """
    peaks = []
    for pid in children():
        try:
            peaks.append(_status_bytes(str(pid), "VmHWM"))
        except OSError:  # it has ended
            continue
    return sum(peaks) if peaks else None


def children() -> set[int]:
    """Our children, and those that have ended and were not waited for."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(pid) for children in lists for pid in children.read_text().split()}


def _status_bytes(pid: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/{pid}/status")
