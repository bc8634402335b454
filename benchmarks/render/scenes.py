"""What the render benchmark draws. Each scene draws any frame from its index alone."""

from __future__ import annotations

from functools import lru_cache

from benchmarks.harness.content import Film, Frame

#: Steps of a loop of plain Python for a frame: some 30 ms on a 2.5 GHz x86-64.
STEPS = 300_000


def working(index: int, time_s: float, view: Frame) -> None:
    """A loop that holds the interpreter's lock, and a bar whose place tells the index."""
    total = index
    for step in range(STEPS):
        total = (total * 31 + step) & 0xFFFFFFFF
    view[:] = total % 256
    view[:, index % view.shape[1]] = 255


@lru_cache
def _film(height: int, width: int) -> Film:
    return Film("camera", width, height)


def filmed(index: int, time_s: float, view: Frame) -> None:
    """Rendered motion with a sensor's noise, as in the encode benchmark."""
    view[:] = _film(*view.shape[:2]).frame(index)
