"""/proc, /sys and getrlimit(2)."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def memory_bytes() -> int | None:
    """The machine's memory."""
    match = re.search(r"^MemTotal:\s*(\d+) kB", setting("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def setting(path: str) -> str | None:
    """What a file of the kernel says; None if it can't be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def limit(name: str) -> int | None:
    """A soft limit of this process; None for none."""
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft
