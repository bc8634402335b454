"""What the project wants to reach, as data, and whether a run reached it.

A goal compares medians within one group of one run, so that it holds on any machine; only the time for which a
paced caller is blocked is in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.bench.encode.cases import BOUND, OURS, Job
from penstock.bench.goals import Judgement, Limit, Verdict

SOURCE = (
    "the goals of Penstock's Encoder, set from what FFmpeg alone reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds and one FFmpeg"
)


@dataclass(frozen=True)
class Goal:
    """Of one job: frames per second over those of the best rival and of the bound; None for no such goal."""

    job: str
    over_best_rival: float
    over_bound: float | None = None


GOALS = (
    Goal("ultrafast-720p", 1.5, 0.85),
    Goal("ultrafast-1080p", 1.5, 0.85),
    Goal("ultrafast-2160p", 1.5, 0.85),
    Goal("texture-1080p", 1.25),
    Goal("medium-1080p", 1.02),
)
#: Of the caller, in the paced job.
PACED_JOB = "paced-1080p"
BLOCKED_P99_AT_MOST_MS = 0.5


def judge(
    job: Job, fps: Mapping[str, float], blocked_p99_ms: Mapping[str, float | None], rivals: Sequence[str]
) -> list[Judgement]:
    """What the median rates and times say of the goals about that job, as far as the methods were run."""
    if OURS not in fps:
        return []
    if job.name == PACED_JOB:
        blocked_ms = blocked_p99_ms[OURS]
        assert blocked_ms is not None, "only of the bound it is not known"
        return [Limit(f"caller blocked, p99, {job.name}", blocked_ms, BLOCKED_P99_AT_MOST_MS, "ms")]
    measured = [name for name in rivals if name in fps]
    return [verdict for goal in GOALS if goal.job == job.name for verdict in _verdicts(goal, fps, measured)]


def _verdicts(goal: Goal, fps: Mapping[str, float], rivals: Sequence[str]) -> list[Judgement]:
    pairs: list[tuple[str, float]] = []
    if rivals:
        pairs.append((max(rivals, key=lambda name: fps[name]), goal.over_best_rival))
    if goal.over_bound is not None and BOUND in fps:
        pairs.append((BOUND, goal.over_bound))
    return [Verdict(f"{OURS} / {other}, {goal.job}", fps[OURS] / fps[other], least) for other, least in pairs]
