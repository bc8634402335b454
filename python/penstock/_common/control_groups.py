"""How much CPU time and memory the control groups of this process grant.

The files are those of proc_pid_cgroup(5), proc_pid_mountinfo(5), proc_meminfo(5), and of Linux's
admin-guide/cgroup-v2.rst (``cpu.max``, ``memory.max``), scheduler/sched-bwc.rst (``cpu.cfs_quota_us``, version 1) and
admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from penstock._platform.programs import usable_cpus


@dataclass(frozen=True)
class _Mount:
    """A mounted hierarchy of control groups that has a controller."""

    is_v2: bool
    #: The group that is mounted there.
    root: PurePosixPath
    folder: Path

    def folders(self, group: PurePosixPath) -> Iterator[Path]:
        """The folders of a group, and of those above it that can be seen here."""
        if not group.is_relative_to(self.root) or ".." in group.parts:
            return  # a group of others is mounted, whose limits are not those of this process
        below = group.relative_to(self.root)
        for one in (below, *below.parents):
            yield self.folder / one


def whole_cpus() -> int:
    """How many threads this process can keep busy: `penstock.cpu.usable`, rounded up, by a quota that is read once."""
    allowed = usable_cpus()
    quota = _first_quota()
    return allowed if quota is None else min(allowed, math.ceil(quota))


@cache
def _first_quota() -> float | None:
    return cpu_quota()


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The time per second that all threads of this process may use together; None without a limit.

    Args:
        root: the folder with the ``proc`` and ``sys`` of the machine.
    """
    quotas: list[float] = []
    for is_v2, folder in _folders("cpu", root):
        # Missing or "max" where nothing is limited; -1 in version 1.
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = _cpu_limit(folder, is_v2=is_v2)
            if quota > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


def available_bytes(root: Path = Path("/")) -> int | None:
    """The memory that this process can still take without swapping or being killed; None if nothing tells it.

    Args:
        root: the folder with the ``proc`` and ``sys`` of the machine.
    """
    left: list[int] = []
    with suppress(KeyError, ValueError):
        left.append(1024 * _numbers(root / "proc/meminfo")["MemAvailable"])
    for is_v2, folder in _folders("memory", root):
        with suppress(OSError, ValueError):  # missing or "max" where nothing is limited
            left.append(max(0, _memory_left(folder, is_v2=is_v2)))
    return min(left, default=None)


def _cpu_limit(folder: Path, *, is_v2: bool) -> tuple[int, int]:
    if is_v2:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota), int(period)
    quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota), int(period)


def _memory_left(folder: Path, *, is_v2: bool) -> int:
    names = ("max", "current") if is_v2 else ("limit_in_bytes", "usage_in_bytes")
    limit, used = (int((folder / f"memory.{name}").read_text()) for name in names)
    # The kernel takes back the pages of files that nobody has read for long.
    reclaimable = _numbers(folder / "memory.stat").get("inactive_file" if is_v2 else "total_inactive_file", 0)
    return limit - used + reclaimable


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number in each line."""
    return {line[0].rstrip(":"): int(line[1]) for line in map(str.split, _lines(path)) if len(line) > 1}


def _folders(controller: str, root: Path) -> Iterator[tuple[bool, Path]]:
    """The folders of this process's group and of those above, and whether each is of version 2."""
    groups = _groups(root / "proc/self/cgroup")
    for mount in _mounts(controller, root):
        if (group := groups.get("" if mount.is_v2 else controller)) is not None:
            for folder in mount.folders(group):
                yield mount.is_v2, folder


def _groups(path: Path) -> dict[str, PurePosixPath]:
    """The group of this process for each controller of version 1, and for "" in version 2."""
    groups: dict[str, PurePosixPath] = {}
    for line in _lines(path):
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), PurePosixPath(group))
    return groups


def _mounts(controller: str, root: Path) -> Iterator[_Mount]:
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, of_type = line.partition(" - ")
        kind, _, options = of_type.split(" ")[:3]
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            mounted, folder = map(_unescaped, fields.split(" ")[3:5])
            yield _Mount(kind == "cgroup2", PurePosixPath(mounted), root / folder.lstrip("/"))


def _unescaped(field: str) -> str:
    """A path, in which blanks and backslashes are written as ``\\040`` and the like."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
