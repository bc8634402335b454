"""What a measurement was made on, without anything that names the host or its user."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import penstock

SHARED_MEMORY = Path("/dev/shm")
#: What is left free of the memory when a file is written there, for everything else that runs.
MEMORY_MARGIN_BYTES = 2 * 10**9


def describe_machine() -> dict[str, Any]:
    """Processor, memory, kernel, and the kernel's settings that the transports depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "architecture": platform.machine(),
        "memory_bytes": _meminfo_bytes("MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent_hugepage": _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "shmem_hugepage": _chosen(_read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        "pipe_max_size_bytes": _number("/proc/sys/fs/pipe-max-size"),
        "pipe_user_pages_soft": _number("/proc/sys/fs/pipe-user-pages-soft"),
        # Above a few tenths, something else was running: read the spread before the medians.
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def describe_software(**others: str | None) -> dict[str, Any]:
    """Versions of everything that took part."""
    return {
        "penstock": penstock.__version__,
        "git": _git_state(),
        "python": platform.python_version(),
        **others,
    }


def ffmpeg_version(ffmpeg: str) -> str:
    """The first line of ``ffmpeg -version``.

    Raises:
        OSError: it cannot be run.
    """
    shown = subprocess.run([ffmpeg, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if shown.returncode != 0:
        raise OSError(f"{ffmpeg} -version exited with {shown.returncode}: {shown.stderr.strip()}")
    return (shown.stdout.splitlines() or [""])[0].partition(" Copyright")[0]


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def no_room(nbytes: int) -> str | None:
    """Why so many bytes cannot be kept in `SHARED_MEMORY`; None if they can."""
    if not SHARED_MEMORY.is_dir() or not Path("/proc/self/fd").is_dir():
        return f"no {SHARED_MEMORY} here"
    memory = _meminfo_bytes("MemAvailable")
    free = shutil.disk_usage(SHARED_MEMORY).free
    # What tmpfs may hold is a limit and no reservation: the memory must be there too.
    usable = free if memory is None else min(free, memory - MEMORY_MARGIN_BYTES)
    if usable >= nbytes:
        return None
    return f"needs {nbytes / 1e9:.1f} GB in {SHARED_MEMORY}, {max(0, usable) / 1e9:.1f} GB can be used"


def slug(machine: dict[str, Any]) -> str:
    """A short name for files, such as ``2-core-xeon-2-50ghz``: of the processor, not of the host."""
    words = re.sub(r"\((?:r|tm|c)\)|\b(?:intel|amd|cpu|processor)\b|@", " ", str(machine["cpu"]).lower())
    return f"{machine['cores']}-core-" + "-".join(re.findall(r"[a-z0-9]+", words)[:5])


def checkout() -> Path | None:
    """The repository that this package is run from; None for an installed copy."""
    root = Path(penstock.__file__).resolve().parents[2]
    return root if (root / ".git").exists() and (root / "crates").is_dir() else None


def _git_state() -> str | None:
    root = checkout()
    if root is None:
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return f"{commit}, with uncommitted changes" if _git(root, "status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", root, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def _cpu_model() -> str:
    match = re.search(
        r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", _read("/proc/cpuinfo") or "", re.MULTILINE
    )
    return match[1].strip() if match else platform.processor() or platform.machine()


def _meminfo_bytes(field: str) -> int | None:
    match = re.search(rf"^{field}:\s*(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _chosen(setting: str | None) -> str | None:
    """The word in brackets of a setting such as ``always [madvise] never``."""
    match = re.search(r"\[(.+?)\]", setting or "")
    return match[1] if match else None


def _number(path: str) -> int | None:
    text = _read(path)
    return int(text) if text else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
