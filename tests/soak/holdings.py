"""What a process holds: threads, descriptors, children, memory."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

PATIENCE_S = 20.0
"""How long what is leaving may take to be gone. Guessed: generous on a busy machine."""


@dataclass(frozen=True)
class Holdings:
    """Counts of what there was at one moment, and their names."""

    threads: tuple[str, ...]
    fds: tuple[str, ...]
    children: tuple[str, ...]

    @classmethod
    def now(cls) -> Self:
        gc.collect()
        return cls(_threads(), _fds(), _children())

    def settled(self) -> Self:
        """The holdings once they have not changed for 2 s."""
        settled, since_s, begun_s = type(self).now(), time.monotonic(), time.monotonic()
        while time.monotonic() - since_s < 2 and time.monotonic() - begun_s < PATIENCE_S:
            time.sleep(0.2)
            if (now := type(self).now()) != settled:
                settled, since_s = now, time.monotonic()
        return settled

    def kept(self) -> str:
        """What there is more than at this moment, also after patience; nothing if all is as it was."""
        begun_s = time.monotonic()
        while kept := self._more(type(self).now()):
            if time.monotonic() - begun_s > PATIENCE_S:
                return kept
            time.sleep(0.1)
        return ""

    def _more(self, now: Self) -> str:
        told = []
        for kind in ("threads", "fds", "children"):
            before, after = getattr(self, kind), getattr(now, kind)
            if len(after) > len(before):
                told.append(f"{len(after) - len(before)} {kind} of {sorted(set(after))[:20]}")
        return "; ".join(told)


def _threads() -> tuple[str, ...]:
    found = [f"Python's {thread.name}" for thread in threading.enumerate()]
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (name := (task / "comm").read_text().strip()) == "penstock":
                found.append(name)
    return tuple(sorted(found))


def _fds() -> tuple[str, ...]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found.append(str(entry.readlink()).split(":")[0])
    return tuple(sorted(found))


def _children() -> tuple[str, ...]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(parent) == os.getpid():
                    found.append(f"{(entry / 'comm').read_text().strip()} ({state})")
    return tuple(sorted(found))


def rss_bytes() -> int:
    """Our memory that is resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
