"""How much CPU time the control groups of this process grant.

The files are those of proc_pid_cgroup(5), proc_pid_mountinfo(5), and of Linux's admin-guide/cgroup-v2.rst (``cpu.max``)
and scheduler/sched-bwc.rst (``cpu.cfs_quota_us``, version 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class _Mount:
    """A mounted hierarchy of control groups that may limit CPU time."""

    is_v2: bool
    #: The group that is mounted there.
    root: PurePosixPath
    folder: Path

    def quotas(self, group: PurePosixPath) -> Iterator[float]:
        """The quotas of a group, and of those above it that can be seen here, in CPUs."""
        if not group.is_relative_to(self.root) or ".." in group.parts:
            return  # a group of others is mounted, whose limits are not those of this process
        below = group.relative_to(self.root)
        for one in (below, *below.parents):
            folder = self.folder / one
            # Missing or "max" where nothing is limited; -1 in version 1.
            with suppress(OSError, ValueError, ZeroDivisionError):
                quota, period = self._limit(folder)
                if quota > 0:
                    yield quota / period

    def _limit(self, folder: Path) -> tuple[int, int]:
        if self.is_v2:
            quota, period = (folder / "cpu.max").read_text().split()
            return int(quota), int(period)
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota), int(period)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The time per second that all threads of this process may use together; None without a limit.

    Args:
        root: the folder with the ``proc`` and ``sys`` of the machine.
    """
    groups = _groups(root / "proc/self/cgroup")
    mounts = _mounts(root)
    quotas = [
        quota
        for mount in mounts
        if (group := groups.get("" if mount.is_v2 else "cpu")) is not None
        for quota in mount.quotas(group)
    ]
    return min(quotas, default=None)


def _groups(path: Path) -> dict[str, PurePosixPath]:
    """The group of this process for each controller of version 1, and for "" in version 2."""
    groups: dict[str, PurePosixPath] = {}
    for line in _lines(path):
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), PurePosixPath(group))
    return groups


def _mounts(root: Path) -> Iterator[_Mount]:
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, of_type = line.partition(" - ")
        kind, _, options = of_type.split(" ")[:3]
        if kind == "cgroup2" or (kind == "cgroup" and "cpu" in options.split(",")):
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
