"""What the project wants to reach, as data, and whether a run reached it.

A goal compares medians within one group of one run, so that it holds on any machine; memory is counted in frames.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.bench.decode.cases import METHODS, OUR_READER, OURS, PIPE_STANDARD, Job
from penstock.bench.goals import Judgement, Limit, Verdict

SOURCE = (
    "the goals of Penstock's Decoder and Reader, set from what the others reached on a 2-core x86-64 virtual machine; "
    "medians of one run with at least 5 interleaved rounds and one FFmpeg"
)

FILE_JOB, PIPE_JOB = "h264-1080p", "reader"
OVER_BEST_RIVAL = 1.05
#: Of those that drive FFmpeg by a pipe, as the Decoder does.
OVER_PIPES = 1.4
OVER_READINTO = 1.3

#: Frames that wait for the caller at most, unless it says otherwise.
DEPTH = 4
#: Beyond them one that is being read, one that the caller holds, and one that is free for the next; the fourth is for
#: everything else: threads' stacks, scratch memory, what is loaded at the first call (guessed).
FRAMES_BEYOND_DEPTH = 4


def judge(job: Job, fps: Mapping[str, float], peak_bytes: Mapping[str, float | None]) -> list[Judgement]:
    """What the median rates and the peaks say of the goals about that job, as far as the methods were run."""
    if job.name == PIPE_JOB:
        pairs = [(OUR_READER, PIPE_STANDARD, OVER_READINTO)]
    elif job.name == FILE_JOB:
        pairs = [(OURS, other, least) for other, least in _rivals(fps)]
    else:
        return []
    ratios: list[Judgement] = [
        Verdict(f"{ours} / {other}, {job.name}", fps[ours] / fps[other], least)
        for ours, other, least in pairs
        if ours in fps and other in fps
    ]
    return ratios + _memory(job, peak_bytes)


def _rivals(fps: Mapping[str, float]) -> list[tuple[str, float]]:
    rivals = [method for method in METHODS if method.kind == "rival" and method.name in fps]
    if not rivals:
        return []
    best = max(rivals, key=lambda method: fps[method.name])
    return [
        (best.name, OVER_BEST_RIVAL),
        *((method.name, OVER_PIPES) for method in rivals if method.drives_pipe and method != best),
    ]


def _memory(job: Job, peak_bytes: Mapping[str, float | None]) -> list[Judgement]:
    ours = OUR_READER if job.source == "pipe" else OURS
    peak = peak_bytes.get(ours)
    if peak is None:
        return []
    most = DEPTH + FRAMES_BEYOND_DEPTH
    return [Limit(f"peak memory of {ours}'s process, {job.name}", peak / job.frame_bytes, most, "frames")]
