"""Renders for the tests: a scene whose frames tell their numbers, and what is left of it on the disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import map_video, render
from penstock.rendering import Plan, RenderReport
from support.media import decode

SIZE = (64, 48)
FAST = {"preset": "ultrafast"}
SLOW = pytest.mark.slow
#: SIGKILL, which Windows has no name for: there, any number ends a process.
KILL = 9


def scene(index: int, time_s: float, view: np.ndarray) -> None:
    view[:] = 4 * index % 256


def settings(folder: Path, **others: Any) -> dict[str, Any]:
    given = {
        "frames": 32,
        "size": SIZE,
        "fps": 30,
        "output": folder / "video.mp4",
        "workers": 2,
        "chunk_frames": 8,
    }
    return given | {"encoder_options": FAST} | others


def rendered(what: Any, output: Path, **options: Any) -> RenderReport:
    """`render` on threads, by default on one: the start of a program takes half a second."""
    given = {"workers": 1} | options
    with ThreadPoolExecutor(given["workers"]) as pool:
        return render(what, output, executor=pool, **given)


def mapped(source: Path, output: Path, function: Any = None, **options: Any) -> RenderReport:
    """`map_video` on threads, as above."""
    given = {"workers": 1} | options
    with ThreadPoolExecutor(given["workers"]) as pool:
        return map_video(function, source, output, executor=pool, **given)


def chunks(folder: Path) -> list[str]:
    """The chunks that are kept for ``video.mp4``."""
    return sorted(path.name for path in folder.glob("video.mp4.chunks/*/*.mov"))


def count(plan: Plan) -> int:
    return len(plan.chunks)


def is_whole(video: Path, frames: int = 32) -> bool:
    got = decode(video, SIZE)
    wanted = 4 * np.arange(frames).reshape(-1, 1, 1, 1) % 256
    return len(got) == frames and bool(np.abs(got.astype(int) - wanted).max() <= 8)
