"""The content checks of sound: they find a method whose claps and flashes are apart, or that loses some.

No test compares times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import sound
from benchmarks.harness.isolated import Task
from benchmarks.harness.methods import Method
from benchmarks.harness.results import Run
from benchmarks.harness.rounds import attempt
from benchmarks.sound import Target, wav_and_stdin
from penstock.video import find_ffmpeg

pytestmark = pytest.mark.slow

VIDEO = sound.Job("video", 64, 48, 45, "out.mp4", "aac")


def sounded(folder: Path, change: Callable[[Target], Target]) -> Run:
    """The run of a plain method whose frames or samples were changed before."""

    def start(target: Target) -> None:
        wav_and_stdin(change(target))

    return attempt(
        Task(Method("changed", "", start=start), VIDEO, find_ffmpeg(), folder=str(folder)), sound.measure
    )


def test_check_accepts_correct_audio(tmp_path: Path) -> None:
    for method in sound.METHODS:
        if not method.missing():
            run = attempt(Task(method, VIDEO, find_ffmpeg(), folder=str(tmp_path)), sound.measure)
            assert run.error is None, method.name
            assert "fps" in run.figures and ("apart_ms" in run.figures) == (method.kind != "other")
    assert list(tmp_path.iterdir()) == []


def late(target: Target) -> Target:
    return replace(target, samples=np.roll(target.samples, 3200, axis=0))


def short(target: Target) -> Target:
    return replace(target, samples=target.samples[:-4800])


def silent(target: Target) -> Target:
    return replace(target, samples=0 * target.samples)


def without_flashes(target: Target) -> Target:
    return replace(target, frames=target.frames[1:])


def without_the_last_frame(target: Target) -> Target:
    return replace(target, job=replace(target.job, frames=target.job.frames - 1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (late, "claps and flashes are 66.7 ms apart"),
        (short, "the sound takes 1.4"),
        (silent, "there are 2 seconds, and 0 claps"),
        (without_flashes, "2 flashes were sent, 0 are shown"),
        (without_the_last_frame, "45 frames were sent, 44 were received"),
    ],
)
def test_check_rejects_audio_that_does_not_fit(
    tmp_path: Path, change: Callable[[Target], Target], reason: str
) -> None:
    assert (sounded(tmp_path, change).error or "").startswith(reason)
