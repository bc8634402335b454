"""What a group's figures have to reach, and whether they do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.harness.results import Group, Outcome

#: The share of a bound that is enough, however fast the others are. Chosen: what is left is for the caller's arrays.
BOUND_SHARE = 0.92


@dataclass(frozen=True)
class Goal:
    """One of ours has to be so many times another method, by the medians of a group."""

    ours: str
    other: str
    ratio: float
    limit: Literal["at least", "at most"] = "at least"
    figure: str = "fps"
    #: The method that nobody can pass. `BOUND_SHARE` of it is enough, where that is less.
    bound: str | None = None

    def __str__(self) -> str:
        what = {
            "peak_own_bytes": "the memory of ",
            "peak_child_bytes": "the memory of the children of ",
            "first_frame_s": "the time of ",
        }.get(self.figure, "")
        return f"{self.ours}: {self.limit} {self.ratio:g} × {what}{self.other}"


def judge(goals: Iterable[Goal], group: Group) -> list[Outcome]:
    """The outcome of each goal whose methods take part in the group."""
    names = {row.name for row in group.rows}
    return [_outcome(goal, group) for goal in goals if {goal.ours, goal.other} <= names]


def _outcome(goal: Goal, group: Group) -> Outcome:
    medians = group.medians(goal.figure)
    ours, other = medians.get(goal.ours), medians.get(goal.other)
    if ours is None or not other:
        return Outcome(str(goal))
    ratio, bound = ours / other, medians.get(goal.bound or "")
    if goal.limit == "at most":
        return Outcome(str(goal), ratio, is_met=ratio <= goal.ratio)
    enough = None if bound is None else BOUND_SHARE * bound / other
    return Outcome(str(goal), ratio, enough, is_met=ratio >= min(goal.ratio, enough or goal.ratio))
