"""What the project wants to reach, as data, and whether a run reached it.

A goal compares medians within one group of one run, so that it holds on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.bench.goals import Verdict
from penstock.bench.relay.cases import GIB, KIB, Way, show_size
from penstock.bench.relay.methods import READ_WRITE, RELAY, SINGLE, SPLICE, TEE, TUNED

SOURCE = (
    "the goals of Penstock's relay, set from what a prototype reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds"
)


@dataclass(frozen=True)
class Goal:
    """``method`` over the best of ``rivals`` must be ``at_least``, of the way named, from that size up."""

    way: str
    method: str
    rivals: tuple[str, ...]
    at_least: float
    from_bytes: int = 0


GOALS = (
    Goal("file-pipe", RELAY, (READ_WRITE,), 2.0, 64 * KIB),
    Goal("file-pipe", RELAY, (SPLICE, TUNED), 0.95, GIB),
    Goal("tee-4-paced", TEE, (SINGLE,), 0.9),
)


def judge(way: Way, nbytes: int, rates: Mapping[str, float]) -> list[Verdict]:
    """Which goals about that way and size the median rates reach, as far as the methods were run."""
    return [
        _verdict(goal, nbytes, rates)
        for goal in GOALS
        if goal.way == way.name and nbytes >= goal.from_bytes and {goal.method, *goal.rivals} <= rates.keys()
    ]


def _verdict(goal: Goal, nbytes: int, rates: Mapping[str, float]) -> Verdict:
    rival = max(goal.rivals, key=lambda name: rates[name])
    what = f"{goal.method} / {rival}, {goal.way}, {show_size(nbytes)}"
    return Verdict(what, rates[goal.method] / rates[rival], goal.at_least)
