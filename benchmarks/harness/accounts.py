"""Measures wall time, CPU time and memory of a block of code, for this process and for its children."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.harness.results import OTHERS, Run

with suppress(ImportError):  # Windows has none, and tests there use other parts of this module
    import resource

#: The two accounts that `watch` compares count ticks of 10 ms. On an idle machine they differed by up to 0.02 s.
UNCERTAIN_S = 0.03


@contextmanager
def accounted(run: Run, others: frozenset[int] | None = None) -> Iterator[None]:
    """Measure the block, and store the figures in the run.

    ``seconds``; ``cpu_own_s`` and ``cpu_child_s``, each user and system; ``peak_own_bytes``, the peak of our resident
    memory above its value before the block, or None if unknown; and ``others_cpus``, as `watch` has it. ``others`` are
    children that do not count; by default those that exist before the block.
    """
    others = children() if others is None else others
    others_cpus = watch()
    resident = _reset_peak()
    own_s, child_s = _cpu_s(resource.RUSAGE_SELF), _cpu_s(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    yield
    run.figures["seconds"] = time.perf_counter() - started
    run.figures["cpu_own_s"] = _cpu_s(resource.RUSAGE_SELF) - own_s
    run.figures[OTHERS] = others_cpus()
    # The kernel adds a child's CPU time once it was waited for. Not every library waits for its children.
    for pid in children() - others:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    run.figures["cpu_child_s"] = _cpu_s(resource.RUSAGE_CHILDREN) - child_s
    peak = status_bytes("self", "VmHWM")
    run.figures["peak_own_bytes"] = None if resident is None else max(0, peak - resident)


def note_children_peak(run: Run) -> None:
    """Raise ``peak_child_bytes`` to the peak memory of all children that run now.

    It comes from /proc: getrusage(2) includes the memory that a child inherits from us by fork.
    """
    peaks = []
    for pid in children():
        with suppress(OSError):  # it has ended
            peaks.append(status_bytes(str(pid), "VmHWM"))
    if peaks:
        run.figures["peak_child_bytes"] = max(sum(peaks), run.figures.get("peak_child_bytes") or 0)


def tree_cpu_s() -> float:
    """CPU seconds of this process, of all that descend from it, and of those that any of them waited for."""
    ticks: dict[int, int] = {}
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            # The name, in parentheses, may have blanks in it.
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            below.setdefault(int(state[1]), []).append(int(folder.name))
            ticks[int(folder.name)] = sum(map(int, state[11:15]))
    tree = [os.getpid()]
    for pid in tree:
        tree += below.get(pid, [])
    return sum(ticks.get(pid, 0) for pid in tree) / os.sysconf("SC_CLK_TCK")


def watch() -> Callable[[], float | None]:
    """A function that tells how many CPUs other processes have used since now, in the mean; None if it is unknown.

    Other processes are those that do not descend from this one.
    """
    before_s, started_s = _others_cpu_s(), time.perf_counter()

    def others_cpus() -> float | None:
        now_s, seconds = _others_cpu_s(), time.perf_counter() - started_s
        if before_s is None or now_s is None:
            return None
        return max(0.0, now_s - before_s - UNCERTAIN_S) / seconds

    return others_cpus


def _others_cpu_s() -> float | None:
    """Without interrupts, for the kernel does not say whose they are."""
    with suppress(OSError):
        user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
        return (user + nice + system) / os.sysconf("SC_CLK_TCK") - tree_cpu_s() if user else None
    return None


def children() -> frozenset[int]:
    """The PIDs of our children, zombies included."""
    while True:
        try:
            lists = [(thread / "children").read_text() for thread in Path("/proc/self/task").iterdir()]
            return frozenset(int(pid) for pids in lists for pid in pids.split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread ended meanwhile, and another has its children now


def _cpu_s(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def _reset_peak() -> int | None:
    """Reset this process's peak memory, and return its resident memory; None if the kernel refuses."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return status_bytes("self", "VmRSS")
    except OSError:
        return None


def status_bytes(pid: str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/{pid}/status")
