"""Describes the machine and the software. Nothing in it names the host or its user."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import penstock
from penstock import cpu

#: The repository.
ROOT = Path(__file__).resolve().parents[2]
#: All of it but the records.
MEASURED = ("--", ".", ":(exclude)benchmarks/records")


def describe_machine() -> dict[str, Any]:
    """The processor, the memory, the kernel, and the kernel settings that the transports depend on."""
    return {
        "cpu": cpu.topology().model or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "memory_bytes": meminfo_bytes("MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "transparent_hugepage": _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        "shmem_hugepage": _chosen(_read("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        "pipe_max_size_bytes": _number("/proc/sys/fs/pipe-max-size"),
        "pipe_user_pages_soft": _number("/proc/sys/fs/pipe-user-pages-soft"),
        # Above a few tenths something else was running: then look at the spread before the medians.
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def describe_software(packages: Iterable[str], ffmpegs: Iterable[str | None]) -> dict[str, Any]:
    """The versions of everything that took part."""
    known = "; ".join(dict.fromkeys(ffmpeg for ffmpeg in ffmpegs if ffmpeg))
    return {
        "penstock": penstock.__version__,
        "git": git_state(),
        "python": platform.python_version(),
        **{name: _package_version(name) for name in packages},
        **({"ffmpeg": known} if known else {}),
    }


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def slug(machine: dict[str, Any]) -> str:
    """A short name of the processor for file names, such as ``2-core-xeon-2-50ghz``."""
    words = re.sub(r"\((?:r|tm|c)\)|\b(?:intel|amd|cpu|processor)\b|@", " ", str(machine["cpu"]).lower())
    return f"{machine['cores']}-core-" + "-".join(re.findall(r"[a-z0-9]+", words)[:5])


def git_state() -> str | None:
    """The measured commit; None if `penstock` was imported from somewhere else than this checkout.

    A new record is no change of what is measured.
    """
    if not Path(penstock.__file__).resolve().is_relative_to(ROOT / "python"):
        return None
    try:
        commit = git("rev-parse", "HEAD")
        return f"{commit}, with uncommitted changes" if git("status", "--porcelain", *MEASURED) else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def meminfo_bytes(field: str) -> int | None:
    """A field of /proc/meminfo, or None."""
    match = re.search(rf"^{field}:\s*(\d+) kB", _read("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _chosen(setting: str | None) -> str | None:
    """The bracketed word of a setting such as ``always [madvise] never``."""
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
