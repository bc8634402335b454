"""What the project wants to reach, as data, and whether a run reached it.

A goal compares medians of frames per second within one group of one run, so that it holds on any machine; the
machine that the numbers were set on is in `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.bench.goals import Verdict

SOURCE = (
    "the goals of Penstock's first version, set from what a C prototype reached on a 2-core x86-64 virtual "
    "machine; medians of one run with at least 5 interleaved rounds"
)

#: The engine's own memory above the caller's buffers, for each of our methods.
MEMORY_LIMIT_BYTES = 16 * 2**20

STAGED = ("staged",)
BETTER = ("staged", "staged-recycled", "zero-copy")
#: Takes part in "the better of" when it was run, but a run without it can be judged.
OPTIONAL = {"staged-recycled"}


@dataclass(frozen=True)
class Goal:
    """The best of ``methods`` over the best of ``rivals`` must be ``at_least``, in the group named."""

    methods: tuple[str, ...]
    rivals: tuple[str, ...]
    size: str
    at_least: float
    encode: str = "null"
    buffers: int = 4


def _row(methods: tuple[str, ...], rivals: tuple[str, ...], *ratios: float) -> list[Goal]:
    sizes = ("720p", "1080p", "1440p", "2160p")
    return [Goal(methods, rivals, size, ratio) for size, ratio in zip(sizes, ratios, strict=True)]


GOALS: tuple[Goal, ...] = (
    *_row(STAGED, ("turbopipe",), 2.2, 2.1, 2.1, 1.8),
    *_row(BETTER, ("turbopipe",), 3.5, 2.8, 2.3, 1.9),
    *_row(BETTER, ("tmpfs",), 1.0, 1.0, 0.9, 0.9),
    *_row(("auto",), BETTER, 0.9, 0.9, 0.9, 0.9),
    Goal(("auto",), ("turbopipe",), "1080p", 1.10, encode="ultrafast"),
)


def judge(goal: Goal, fps: Mapping[str, float]) -> Verdict | None:
    """Whether the group's median rates reach the goal; None if a method it needs was not run."""
    needed = {*goal.methods, *goal.rivals} - OPTIONAL
    if not needed <= fps.keys():
        return None
    best, rival = _best(goal.methods, fps), _best(goal.rivals, fps)
    where = goal.size if goal.encode == "null" else f"{goal.size} {goal.encode}"
    return Verdict(f"{best} / {rival} at {where}", fps[best] / fps[rival], goal.at_least)


def _best(names: Sequence[str], fps: Mapping[str, float]) -> str:
    return max((name for name in names if name in fps), key=lambda name: fps[name])
