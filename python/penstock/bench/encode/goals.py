"""What the project wants to reach, as data, and whether a run reached it.

A goal compares medians within one group of one run, so that it holds on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.bench.encode.cases import BOUND, OURS, SUBMIT, Job
from penstock.bench.goals import Judgement, Limit, Verdict

SOURCE = (
    "the goals of Penstock's Encoder, set from what FFmpeg alone reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds and one FFmpeg"
)


@dataclass(frozen=True)
class Goal:
    """Of one job: frames per second over the best rival's, the bound's and `submit`'s; None for no such goal."""

    job: str
    over_best_rival: float
    over_bound: float | None = None
    over_submit: float | None = None


GOALS = (
    Goal("ultrafast-720p", 1.5, 0.85, 0.95),
    Goal("ultrafast-1080p", 1.5, 0.85, 0.95),
    Goal("ultrafast-2160p", 1.5, 0.85, 0.95),
    Goal("texture-1080p", 1.25),
    Goal("medium-1080p", 1.02),
)
#: Of the caller, in the paced job.
PACED_JOB = "paced-1080p"
BLOCKED_OVER_MEMCPY_AT_MOST = 1.5


def judge(
    job: Job, fps: Mapping[str, float], blocked_over_memcpy: float | None, rivals: Sequence[str]
) -> list[Judgement]:
    """What the median rates and times say of the goals about that job, as far as the methods were run.

    Args:
        blocked_over_memcpy: the 99th percentile of our call over that of a copy of the frame; None without a pace.
    """
    if OURS not in fps:
        return []
    if job.name == PACED_JOB:
        assert blocked_over_memcpy is not None, "known of every paced job"
        what = f"caller blocked, p99, {job.name}"
        return [Limit(what, blocked_over_memcpy, BLOCKED_OVER_MEMCPY_AT_MOST, "x a memcpy")]
    measured = [name for name in rivals if name in fps]
    return [verdict for goal in GOALS if goal.job == job.name for verdict in _verdicts(goal, fps, measured)]


def _verdicts(goal: Goal, fps: Mapping[str, float], rivals: Sequence[str]) -> list[Judgement]:
    pairs: list[tuple[str, float]] = []
    if rivals:
        pairs.append((max(rivals, key=lambda name: fps[name]), goal.over_best_rival))
    if goal.over_bound is not None and BOUND in fps:
        pairs.append((BOUND, goal.over_bound))
    if goal.over_submit is not None and SUBMIT in fps:
        pairs.append((SUBMIT, goal.over_submit))
    return [Verdict(f"{OURS} / {other}, {goal.job}", fps[OURS] / fps[other], least) for other, least in pairs]
