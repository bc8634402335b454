"""Arrays on leased memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock._native import _Slot
from penstock.ffmpeg.pixels import FrameLayout


def view_of(slot: _Slot, layout: FrameLayout) -> npt.NDArray[Any]:
    """Return a writable array in the slot's memory, in the shape of a frame."""
    return np.frombuffer(memoryview(slot), dtype=layout.dtype).reshape(layout.shape)


def seal(view: npt.NDArray[Any]) -> None:
    """Make the array read-only: its frame is queued."""
    view.flags.writeable = False
